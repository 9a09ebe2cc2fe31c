"""The user's own run of the baseline against its projection."""

from __future__ import annotations

from dataclasses import dataclass

from primus_mcp.errors import InputError
from primus_mcp.evaluation.result import EvaluationResult

OFF = 0.10
"""Of a measured figure: a projection further away contradicts it."""
_REMEDIES = {
    "memory": "`--profiling-mode benchmark` on a GPU measures memory, no command corrects it from one figure",
    "time": "`primus-mcp calibrate` fits time to runs of yours",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredComparison:
    """Ratios are projected over measured: above 1 the projection is too high. `text` is one line.

    `caution`: what the measurement contradicts, so that it stands beside every figure of the answer; empty where it contradicts nothing.
    """

    measured_tokens_per_s_per_gpu: float | None
    projected_tokens_per_s_per_gpu: float | None
    throughput_ratio: float | None
    measured_memory_gb: float | None
    projected_memory_gb: float | None
    memory_ratio: float | None
    text: str
    caution: str


def compare_with_measured(
    projected: EvaluationResult, tokens_per_s_per_gpu: float | None = None, memory_gb: float | None = None, *, world_size: int = 1
) -> MeasuredComparison:
    """Projection over measurement, of what was measured. Raises InputError when the measurement would need more than the GPU's peak."""
    told: list[str] = []
    ratio = memory_ratio = None
    if tokens_per_s_per_gpu is not None:
        value = _projected_rate(projected, tokens_per_s_per_gpu, world_size)
        ratio = value / tokens_per_s_per_gpu
        told.append(f"projected {value:,.0f} tokens/s/GPU, your run {tokens_per_s_per_gpu:,.0f}: ratio {ratio:.2f}")
    if memory_gb is not None and projected.memory_per_gpu_gb is not None:
        memory_ratio = projected.memory_per_gpu_gb / memory_gb
        told.append(f"projected {projected.memory_per_gpu_gb:.1f} GB, your run {memory_gb:.1f}: ratio {memory_ratio:.2f}")
    return MeasuredComparison(
        measured_tokens_per_s_per_gpu=tokens_per_s_per_gpu,
        projected_tokens_per_s_per_gpu=projected.tokens_per_s_per_gpu,
        throughput_ratio=ratio,
        measured_memory_gb=memory_gb,
        projected_memory_gb=projected.memory_per_gpu_gb,
        memory_ratio=memory_ratio,
        text=f"baseline: {'; '.join(told) or 'nothing of it is projected here'}",
        caution=_caution(projected, ratio, memory_ratio),
    )


def _projected_rate(projected: EvaluationResult, tokens_per_s_per_gpu: float, world_size: int) -> float:
    """The projected throughput; what is measured is checked to be possible."""
    value = projected.tokens_per_s_per_gpu
    if value is None:
        raise InputError(
            "the baseline has no projected throughput to compare with",
            where="--measured-tokens-per-s",
            remedy=projected.reason or "use --mode full",
        )
    if projected.mfu is not None and projected.mfu * tokens_per_s_per_gpu / value > 1:
        raise InputError(
            f"{tokens_per_s_per_gpu:,.0f} tokens/s on one GPU is more than its peak FLOP/s allows",
            where="--measured-tokens-per-s",
            remedy=f"give tokens/s of one GPU; a total over {world_size} GPUs would be {tokens_per_s_per_gpu / world_size:,.1f}",
        )
    return value


def _caution(projected: EvaluationResult, ratio: float | None, memory_ratio: float | None) -> str:
    """What the run contradicts: memory or throughput that is more than OFF away, and that the baseline does not fit."""
    found, remedies = [], {}
    if projected.within_margin is False:
        found.append("it puts the baseline over the memory cap, and you have run it")
        remedies["memory"] = _REMEDIES["memory"]
    if memory_ratio is not None and abs(memory_ratio - 1) > OFF:
        found.append(f"memory by {memory_ratio:.2f} x: expect every memory figure of this answer to be off by about as much")
        remedies["memory"] = _REMEDIES["memory"]
    if ratio is not None and abs(ratio - 1) > OFF:
        found.append(f"throughput by {ratio:.2f} x: expect every throughput of this answer, and its band, to be off by about as much")
        remedies["time"] = _REMEDIES["time"]
    return f"the projection contradicts your run of the baseline: {'; '.join([*found, *remedies.values()])}" if found else ""
