"""Traffic of tensor parallelism: what column- and row-parallel linears gather and reduce, and how much of it runs beside their GEMMs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import TIME
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import Piece
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.units import BF16_BYTES


class _Transfer(NamedTuple):
    """A collective of `whole_s`, the seconds of the GEMM that it is started beside, and of the GEMM that user buffers weave it into."""

    whole_s: float
    beside_s: float
    woven_s: float

    def felt_s(self, *, user_buffers: bool) -> float:
        """Seconds that it adds to its GEMM: t - (1 - c) min(t, GEMM), or t - min(u t, GEMM) with user buffers.

        c = `tp_regather` of what runs beside is felt, because the collective holds compute units and bandwidth; what outlasts the GEMM is
        felt whole. u = `tp_overlap`.
        """
        if user_buffers:
            return self.whole_s - min(TIME["tp_overlap"] * self.whole_s, self.woven_s)
        return self.whole_s - (1 - TIME["tp_regather"]) * min(self.whole_s, self.beside_s)


_Traffic = tuple[list[_Transfer], list[_Transfer]]
"""Of the forward and of the backward pass."""


def _column(rates: Rates, settings: LayerSettings, size_bytes: float, readers: Sequence[Piece]) -> _Traffic:
    """Of linears that read the whole hidden state and split their outputs."""
    product_s, input_gradient_s, weight_gradient_s = (
        sum(seconds) for seconds in zip(*((p.forward_s, p.backward_s, p.weight_s) for p in readers), strict=True)
    )
    beside_s = weight_gradient_s if settings.overlap_tp_all_reduce else 0.0
    if not settings.sequence_parallel:
        return [], [_Transfer(rates.all_reduce_s(size_bytes, settings.tp, 1), beside_s, 0.0)]
    gather_s, scatter_s = rates.all_gather_s(size_bytes, settings.tp, 1), rates.reduce_scatter_s(size_bytes, settings.tp, 1)
    backward = [_Transfer(scatter_s, beside_s, weight_gradient_s or input_gradient_s)]
    if settings.trains_weights:
        backward.append(_Transfer(gather_s, input_gradient_s, input_gradient_s))
    return [_Transfer(gather_s, 0.0, product_s)], backward


def _row(rates: Rates, settings: LayerSettings, size_bytes: float, closer: Piece | None) -> _Traffic:
    """Of a linear that sums over TP."""
    if closer is None:
        return [], []
    if not settings.sequence_parallel:
        return [_Transfer(rates.all_reduce_s(size_bytes, settings.tp, 1), 0.0, 0.0)], []
    forward = [_Transfer(rates.reduce_scatter_s(size_bytes, settings.tp, 1), 0.0, closer.forward_s)]
    return forward, [_Transfer(rates.all_gather_s(size_bytes, settings.tp, 1), 0.0, closer.backward_s)]


def tensor_parallel(
    rates: Rates, arch: Architecture, settings: LayerSettings, readers: Sequence[Piece], closer: Piece | None = None
) -> list[Piece]:
    """Traffic of one block of T h 2 B: column-parallel `readers` of the hidden state, and the row-parallel `closer` that sums over TP.

    - sequence parallel, forward: all-gather before the readers, reduce-scatter after the closer. Backward: all-gather before the
      closer; all-gather of the saved input beside the readers' input gradient, reduce-scatter of it beside their weight gradient.
    - otherwise, forward: all-reduce after the closer. Backward: all-reduce of the readers' input gradient beside their weight gradient.

    What has no GEMM beside it is felt whole, the rest as `_Transfer` says. Under a split backward, and before 2022, no weight gradient
    runs there; frozen weights have none, and need no input again. User buffers weave every transfer into a GEMM; they need
    sequence parallelism (NVIDIA/Megatron-LM training/arguments.py).
    Source: NVIDIA/Megatron-LM core/tensor_parallel/layers.py (LinearWithGradAccumulationAndAsyncCommunication.backward),
    TransformerEngine pytorch/module/layernorm_linear.py of NVIDIA and ROCm (`async_op=True` for all three, waited for after the GEMM);
    arXiv:2205.05198 section 6.2. Known error: 2 to 5% fast at TP 2 and 4 on B200, 12-layer Llama-3-70B 11 to 16% fast at TP 8; 22B and
    175B on A100 at TP 8 1 to 4% slow; no AMD run with TP is published.
    """
    if settings.tp == 1:
        return []
    size_bytes = settings.tokens(arch) * arch.hidden_size * BF16_BYTES
    column, row = _column(rates, settings, size_bytes, readers), _row(rates, settings, size_bytes, closer)
    forward, backward = ([*column[i], *row[i]] for i in (0, 1))
    user_buffers = settings.tp_comm_overlap and settings.sequence_parallel
    return [
        Piece(
            name="tp",
            collective="tp",
            forward_s=sum(t.felt_s(user_buffers=user_buffers) for t in forward),
            backward_s=sum(t.felt_s(user_buffers=user_buffers) for t in backward),
            forward_total_s=sum(t.whole_s for t in forward),
            backward_total_s=sum(t.whole_s for t in backward),
        )
    ]
