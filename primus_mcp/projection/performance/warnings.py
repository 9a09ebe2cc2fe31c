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


def _expert_warnings(arch: Architecture, config: TrainingConfig, cluster: Cluster, placement: Placement) -> list[tuple[str, str]]:
    if not arch.is_moe:
        return []
    found = []
    if config.forced_balance:
        found.append(
            (
                "forced_balance",
                "experts are force-balanced: learned routing is slower (one published pair: 385 against 557 TFLOP/s on DeepSeek-V2-Lite)",
            )
        )
    if config.ep * config.etp > cluster.network.node_size:
        found.append(
            ("expert_parallel_across_nodes", f"EP {config.ep} leaves the node: no AMD run with inter-node EP validates this figure")
        )
    if config.ep == 1:
        found.append(("experts_without_ep", "every GPU holds all experts: no AMD run with EP 1 validates this figure"))
    if placement.micro_batches <= FEW_MICRO_BATCHES and placement.expert_dp * config.ep > cluster.gpus_per_node:
        found.append(
            (
                "few_micro_batches",
                f"{placement.micro_batches} micro-batches leave little to hide the gradient exchange behind: its exposure is not validated",
            )
        )
    return found


def performance_warnings(
    arch: Architecture, config: TrainingConfig, cluster: Cluster, placement: Placement, stages: tuple[StageCost, ...]
) -> Warnings:
    """(code, text) of everything a reader must know beside the figures."""
    found = _expert_warnings(arch, config, cluster, placement)
    host_ratio = max(stage.host_ratio for stage in stages)
    if host_ratio > LAUNCH_BOUND_RATIO:
        found.append(
            ("launch_bound", f"the CPU needs {host_ratio:.1f}x the GPU's time to launch kernels: NUMA binding and a larger MBS matter")
        )
    unvalidated = [name for name, used in (("TP", config.tp > 1), ("CP", config.cp > 1), ("FSDP2", config.use_torch_fsdp2)) if used]
    if unvalidated and cluster.gpu.vendor == "amd":
        found.append(("not_validated", f"no published AMD run with {' or '.join(unvalidated)} > 1 validates the time of its traffic"))
    if config.optimizer == "muon":
        found.append(("muon_not_priced", "the matrix products of Muon's orthogonalisation are not priced: the optimizer step is too short"))
    if config.finetune == "lora":
        found.append(("lora_adapters_not_priced", "adapter GEMMs are not priced, only the missing weight gradients"))
    return tuple(found)
