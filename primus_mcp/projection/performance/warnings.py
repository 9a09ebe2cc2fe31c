"""What the numbers cannot show, said plainly. Codes are stable."""

from __future__ import annotations

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.performance.record import Warnings
from primus_mcp.projection.performance.stages import StageCost
from primus_mcp.projection.placement import Placement

LAUNCH_BOUND_RATIO = 0.8
FEW_MICRO_BATCHES = 5
UNVALIDATED = frozenset({"not_validated", "fp8_not_validated", "expert_parallel_across_nodes", "experts_without_ep", "few_micro_batches"})
"""Codes which say that no published AMD run validates a part of the time."""


def _balance(config: TrainingConfig) -> tuple[str, str]:
    if config.forced_balance:
        return (
            "forced_balance",
            "experts are force-balanced: learned routing is slower (one published pair: 385 against 557 TFLOP/s on DeepSeek-V2-Lite)",
        )
    if config.expert_load_imbalance == 1.0:
        return "balance_assumed", "learned routing is priced as balanced; expert_load_imbalance prices a slower worst rank"
    return "imbalance_priced", f"every MoE layer waits for a rank with {config.expert_load_imbalance:g}x the mean load"


def _expert_warnings(config: TrainingConfig, cluster: Cluster, placement: Placement) -> list[tuple[str, str]]:
    found = [] if config.ep == 1 else [_balance(config)]
    if config.ep * config.etp > cluster.network.node_size:
        text = f"EP {config.ep} leaves the node: no AMD run with inter-node EP validates this figure"
        found.append(("expert_parallel_across_nodes", text))
    if config.ep == 1:
        found.append(("experts_without_ep", "every GPU holds all experts: no AMD run with EP 1 validates this figure"))
    if config.a2a_ep_size not in (None, config.ep):
        text = f"the exchange is priced for {config.a2a_ep_size} ranks (target_ep_size), the run has EP {config.ep}"
        found.append(("exchange_override", text))
    if placement.micro_batches <= FEW_MICRO_BATCHES and placement.expert_dp * config.ep > cluster.gpus_per_node:
        count = "1 micro-batch leaves" if placement.micro_batches == 1 else f"{placement.micro_batches} micro-batches leave"
        text = f"{count} little to hide the experts' gradient exchange behind: not validated"
        found.append(("few_micro_batches", text))
    return found


_BLOCK_SCALED = {"mxfp8": "MXFP8", "blockwise": "blockwise FP8"}


def _precision_warnings(config: TrainingConfig, cluster: Cluster) -> list[tuple[str, str]]:
    """What of an FP8 recipe is priced, where no run shows it."""
    recipe = config.fp8_recipe
    if config.fp8 is None or cluster.gpu.vendor != "amd":
        return []
    if recipe not in _BLOCK_SCALED:
        return [("fp8_priced_alike", "hybrid and e4m3 are priced alike, delayed and tensorwise scaling by their casts alone")]
    rate = cluster.profile.figures[f"gemm_{recipe}_efficiency"]
    text = f"{_BLOCK_SCALED[recipe]} products are priced at {rate:.2f} of the rate with one scale a tensor, from kernels timed alone"
    return [("fp8_not_validated", f"{text}: no published AMD run validates them")]


def performance_warnings(
    arch: Architecture, config: TrainingConfig, cluster: Cluster, placement: Placement, stages: tuple[StageCost, ...]
) -> Warnings:
    """(code, text) of everything a reader must know beside the figures."""
    found = _expert_warnings(config, cluster, placement) if arch.is_moe else []
    found += _precision_warnings(config, cluster)
    host_ratio = max(stage.host_ratio for stage in stages)
    if host_ratio > LAUNCH_BOUND_RATIO:
        text = f"the CPU needs {host_ratio:.1f}x the GPU's time to launch kernels: NUMA binding and a larger MBS matter"
        found.append(("launch_bound", text))
    unvalidated = [name for name, used in (("TP", config.tp > 1), ("CP", config.cp > 1), ("FSDP2", config.use_torch_fsdp2)) if used]
    if unvalidated and cluster.gpu.vendor == "amd":
        found.append(("not_validated", f"no published AMD run validates the time of {' and '.join(unvalidated)} traffic"))
    if config.finetune == "lora" and arch.is_moe:
        text = "LoRA on a mixture of experts: the two figures that Primus states (DeepSeek-V2-Lite) are a third slower than priced, "
        text += "where pretraining on that machine was a quarter slower"
        found.append(("lora_on_experts", text))
    if config.optimizer == "muon":
        found.append(("muon_not_priced", "the matrix products of Muon's orthogonalisation are not priced: the optimizer step is too short"))
    return tuple(found)
