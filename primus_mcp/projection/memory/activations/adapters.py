"""What LoRA adapters keep and what passes by while they run, beside the operation of the linear that they adapt."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from primus_mcp.projection.memory.activations.operation import Operation, kept
from primus_mcp.projection.memory.activations.settings import ActivationSettings
from primus_mcp.units import BF16_BYTES

Reads = Literal["norm", "sequence", "rows"]
"""What an adapter reads: the output of a norm in the same module, a tensor that sequence parallelism shards, or whole rows."""


def with_adapter(
    settings: ActivationSettings,
    operation: Operation,
    target: str,
    rows: float,
    widths: tuple[float, float],
    reads: Reads = "rows",
    *,
    expert: bool = False,
) -> Operation:
    """The operation of a linear of `widths` (inputs i, outputs o) on a rank, with its adapter where it has one; BF16, rank r.

    saved: A x, rows r 2 B (the input itself: `ActivationSettings.kept_input_bytes`), and the gathered sequence. Forward beside the base
    output: B's and the scaled one, 2 rows o 2 B. Backward beside base gradients: the scaled output gradient and A's input gradient,
    rows (o + i) 2 B. Source: AMD-AGI/Primus backends/megatron/peft/utils.py (ParallelLinearAdapter.forward).
    Known error: counted; the two runs with a figure have adapters on attention output, dense MLP and shared expert alone.
    """
    if settings.adapters is None or not settings.adapts(target, expert=expert):
        return operation
    element = rows * BF16_BYTES
    inputs, outputs = widths
    return replace(
        operation,
        saved=(*operation.saved, *kept(element * settings.adapters.rank, _gathered_bytes(settings, rows * inputs, reads))),
        forward_transient_bytes=operation.forward_transient_bytes + 2 * element * outputs,
        backward_transient_bytes=operation.backward_transient_bytes + element * (inputs + outputs),
    )


def _gathered_bytes(settings: ActivationSettings, elements: float, reads: Reads) -> float:
    """Sequence parallelism: A keeps its input of all TP ranks, beyond the shard that `kept_input_bytes` counts.

    The norm in one module keeps its own shard too; dropout follows the gather there (copy and mask whole) and comes before it elsewhere.
    """
    if reads == "rows" or not settings.shards_sequence or settings.adapters is None:
        return 0.0
    beyond = elements * (1 - 1 / settings.tp)
    if reads == "norm":
        return beyond * (BF16_BYTES + 1) if settings.adapters.dropout else elements * BF16_BYTES
    return beyond * BF16_BYTES
