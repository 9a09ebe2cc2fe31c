"""Numbers for `--mode dry` and throughput for `--mode memory-real`: smooth, repeatable, and no estimate of any GPU.

The weights below have no source. They only make the loop's landscape plausible: something to trade, one optimum, no plateau.
"""

from __future__ import annotations

from math import log2

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.parameters import active_parameters, total_parameters

SYNTHETIC_TOKENS_PER_S = 1000.0
TP_WEIGHT, CP_WEIGHT, EP_WEIGHT, MBS_WEIGHT = 0.08, 0.06, 0.04, 0.10
FULL_RECOMPUTE_SLOWDOWN, SELECTIVE_SLOWDOWN, FP8_SPEEDUP, DEEPEP_SPEEDUP = 4 / 3, 1.05, 1.3, 1.05
BYTES_A_PARAMETER, ACTIVATION_SHARE_OF_HBM = 10.0, 0.15
HEURISTIC_MFU = 0.4
FLOPS_A_PARAMETER = 6


def bubble(config: TrainingConfig, micro_batches: int) -> float:
    """Idle share of an even pipeline: (PP - 1) / (VPP m + PP - 1); half of it with split weight gradients."""
    idle = (config.pp - 1) / 2 if config.splits_weight_gradient else config.pp - 1
    return idle / (config.vpp * micro_batches + idle)


def relative_speed(config: TrainingConfig, micro_batches: int) -> float:
    """Speed against a run without pipeline, tensor, context and expert parallelism, recompute and FP8 at MBS 1."""
    friction = 1 + TP_WEIGHT * log2(config.tp) + CP_WEIGHT * log2(config.cp) + EP_WEIGHT * log2(config.ep)
    recompute = {"none": 1.0, "selective": SELECTIVE_SLOWDOWN, "full": FULL_RECOMPUTE_SLOWDOWN}[config.recompute.granularity]
    gain = 1 + MBS_WEIGHT * log2(config.mbs)
    precision = FP8_SPEEDUP if config.fp8 is not None else 1.0
    exchange = DEEPEP_SPEEDUP if config.dispatcher == "deepep" else 1.0
    return gain * precision * exchange * (1 - bubble(config, micro_batches)) / (friction * recompute)


def synthetic_memory_bytes(arch: Architecture, config: TrainingConfig, cluster: Cluster) -> tuple[float, float]:
    """(parameters and optimizer, activations), made up: parameters over TP PP EP, activations a share of HBM that grows with MBS."""
    shards = config.tp * config.pp * (config.ep if arch.is_moe else 1)
    kept = {"none": 1.0, "selective": 0.6, "full": 0.1}[config.recompute.granularity]
    activations = ACTIVATION_SHARE_OF_HBM * cluster.hbm_bytes * kept * config.mbs / (config.tp * config.cp)
    return BYTES_A_PARAMETER * total_parameters(arch) / shards, activations


def heuristic_tokens_per_s(arch: Architecture, config: TrainingConfig, cluster: Cluster, micro_batches: int) -> float:
    """Tokens/s/GPU: a flat MFU of the sustained BF16 rate over 6 x active parameters, times `relative_speed`."""
    flops_a_token = FLOPS_A_PARAMETER * active_parameters(arch)
    rate = cluster.profile.sustained_flops["bf16"] * cluster.clock_ratio
    return HEURISTIC_MFU * rate / flops_a_token * relative_speed(config, micro_batches)
