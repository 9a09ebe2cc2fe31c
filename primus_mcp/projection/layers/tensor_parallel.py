"""Traffic of tensor parallelism: what column- and row-parallel linears gather and reduce, and how much of it runs beside their GEMMs."""

from __future__ import annotations

from collections.abc import Sequence

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import TIME
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import Piece
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.units import BF16_BYTES


def _beside_s(transfer_s: float, gemm_s: float) -> float:
    """Seconds that a transfer beside a GEMM adds to it: t - (1 - c) min(t, GEMM).

    c = `tp_regather` of what runs beside is felt, because the collective holds compute units and bandwidth; what outlasts the GEMM is
    felt whole. Continuous and monotonic in both.
    """
    return transfer_s - (1 - TIME["tp_regather"]) * min(transfer_s, gemm_s)


def _column_s(rates: Rates, settings: LayerSettings, size_bytes: float, readers: Sequence[Piece]) -> tuple[float, float, float, float]:
    """(forward, backward, whole forward, whole backward) of linears that read the whole hidden state and split their outputs."""
    input_gradient_s = sum(p.backward_s for p in readers)
    weight_gradient_s = sum(p.weight_s for p in readers) if settings.overlap_tp_all_reduce else 0.0
    if not settings.sequence_parallel:
        reduce_s = rates.all_reduce_s(size_bytes, settings.tp, 1)
        return 0.0, _beside_s(reduce_s, weight_gradient_s), 0.0, reduce_s
    gather_s, scatter_s = rates.all_gather_s(size_bytes, settings.tp, 1), rates.reduce_scatter_s(size_bytes, settings.tp, 1)
    again_s = gather_s if settings.trains_weights else 0.0
    backward_s = _beside_s(scatter_s, weight_gradient_s) + _beside_s(again_s, input_gradient_s)
    return gather_s, backward_s, gather_s, scatter_s + again_s


def _row_s(rates: Rates, settings: LayerSettings, size_bytes: float) -> tuple[float, float]:
    """(forward, backward) of a linear that sums over TP; nothing is left to run beside either."""
    if not settings.sequence_parallel:
        return rates.all_reduce_s(size_bytes, settings.tp, 1), 0.0
    return rates.reduce_scatter_s(size_bytes, settings.tp, 1), rates.all_gather_s(size_bytes, settings.tp, 1)


def tensor_parallel(
    rates: Rates, arch: Architecture, settings: LayerSettings, readers: Sequence[Piece], *, closes: bool = True
) -> list[Piece]:
    """Traffic of one block of S = T h 2 B: column-parallel `readers` of the hidden state, and, if it `closes`, a row-parallel linear.

    =================  ==========================  ======================================================
    .                  sequence parallel           otherwise
    =================  ==========================  ======================================================
    column, forward    all-gather                  -
    row, forward       reduce-scatter              all-reduce
    row, backward      all-gather                  -
    column, backward   all-gather of the saved     all-reduce beside the weight gradient
    .                  input beside the input
    .                  gradient, reduce-scatter
    .                  beside the weight gradient
    =================  ==========================  ======================================================

    What has no GEMM beside it is felt whole, the rest as `_beside_s` says; under a split backward, and before 2022, no weight gradient
    runs there. User buffers hide the fraction `tp_overlap` of every transfer, whatever it runs beside. Frozen weights need no input again.
    Source: NVIDIA/Megatron-LM core/tensor_parallel/layers.py (LinearWithGradAccumulationAndAsyncCommunication.backward),
    TransformerEngine pytorch/module/layernorm_linear.py and linear.py of NVIDIA and ROCm (`async_op=True` for all three, waited for after
    the GEMM); arXiv:2205.05198 section 6.2.
    Known error: see docs/performance.md; no AMD run with TP is published.
    """
    if settings.tp == 1:
        return []
    size_bytes = settings.tokens(arch) * arch.hidden_size * BF16_BYTES
    column = _column_s(rates, settings, size_bytes, readers)
    row = _row_s(rates, settings, size_bytes) if closes else (0.0, 0.0)
    whole_s = (column[2] + row[0], column[3] + row[1])
    felt_s = (column[0] + row[0], column[1] + row[1])
    if settings.tp_comm_overlap:
        felt_s = (whole_s[0] * (1 - TIME["tp_overlap"]), whole_s[1] * (1 - TIME["tp_overlap"]))
    return [
        Piece(
            name="tp",
            collective="tp",
            forward_s=felt_s[0],
            backward_s=felt_s[1],
            forward_total_s=whole_s[0],
            backward_total_s=whole_s[1],
        )
    ]
