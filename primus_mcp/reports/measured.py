"""The user's own run of the baseline against its projection."""

from __future__ import annotations

from dataclasses import dataclass

from primus_mcp.errors import InputError
from primus_mcp.evaluation.result import EvaluationResult


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredComparison:
    """Ratios are projected over measured: above 1 the projection is too high. `text` is one line."""

    measured_tokens_per_s_per_gpu: float
    projected_tokens_per_s_per_gpu: float
    throughput_ratio: float
    measured_memory_gb: float | None
    projected_memory_gb: float | None
    memory_ratio: float | None
    text: str


def compare_with_measured(
    projected: EvaluationResult, tokens_per_s_per_gpu: float, memory_gb: float | None = None, *, world_size: int = 1
) -> MeasuredComparison:
    """Projection over measurement. Raises InputError when the measurement would need more than the GPU's peak."""
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
    ratio = value / tokens_per_s_per_gpu
    text = f"baseline: projected {value:,.0f} tokens/s/GPU, your run {tokens_per_s_per_gpu:,.0f}: ratio {ratio:.2f}"
    memory_ratio = None
    if memory_gb is not None and projected.memory_per_gpu_gb is not None:
        memory_ratio = projected.memory_per_gpu_gb / memory_gb
        text += f"; projected {projected.memory_per_gpu_gb:.1f} GB, your run {memory_gb:.1f}: ratio {memory_ratio:.2f}"
    return MeasuredComparison(
        measured_tokens_per_s_per_gpu=tokens_per_s_per_gpu,
        projected_tokens_per_s_per_gpu=value,
        throughput_ratio=ratio,
        measured_memory_gb=memory_gb,
        projected_memory_gb=projected.memory_per_gpu_gb,
        memory_ratio=memory_ratio,
        text=text,
    )
