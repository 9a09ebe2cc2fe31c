"""The answer of the time projection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Warnings = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceProjection:
    """One training iteration of a configuration on a cluster. Seconds unless the name says otherwise.

    `time_breakdown_s` is of the busiest pipeline rank and sums to `iteration_s`. `communication_s` is the whole time its transfers
    take in an iteration, `exposed_s` what nothing hides (keys: tp, cp, a2a, pp, gradients, parameters). `bubble_ratio` is the idle share of
    the pipeline step averaged over all ranks; the `bubble` of `time_breakdown_s` is of the busiest rank alone, apart from exposed
    transfers, so it is smaller where stages differ. `model_flops` is of the whole job (see flops.py); `mfu` divides by the dense peak of
    `gemm_precision`, the precision that most GEMM FLOPs run in.
    """

    iteration_s: float
    tokens_per_s_per_gpu: float
    model_flops: float
    tflops_per_s_per_gpu: float
    mfu: float
    gemm_precision: str
    bubble_ratio: float
    communication_s: Mapping[str, float]
    exposed_s: Mapping[str, float]
    time_breakdown_s: Mapping[str, float]
    rank_end_s: tuple[float, ...]
    dp: int
    expert_dp: int
    micro_batches: int
    backend: str
    profile: str
    warnings: Warnings
