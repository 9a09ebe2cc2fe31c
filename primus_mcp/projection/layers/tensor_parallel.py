"""Traffic of tensor parallelism: what column- and row-parallel linears gather and reduce, and how much of it runs beside their GEMMs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import MEMORY, TIME
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import Piece
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.units import BF16_BYTES, FP8_BYTES, FP32_BYTES


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


def gathered_bytes(settings: LayerSettings, *, gradient: bool = False) -> float:
    """Bytes an element that an all-gather before a linear moves: TransformerEngine quantizes first and gathers FP8 with its scales.

    Products with block scales read an output gradient along both of its sides, and gather two copies of it. NVFP4: half a byte and a
    scale of a byte for 16. Sums over TP are BF16 in any case. Source: TransformerEngine pytorch/module/layernorm_linear.py,
    base.py (`grad_output_preprocess`), distributed.py (`gather_along_first_dim`) of NVIDIA and ROCm.
    """
    if settings.linear_precision == "bf16":
        return float(BF16_BYTES)
    scales = MEMORY["fp8_block_scale_bytes_per_element"].value
    if settings.linear_precision == "fp4":
        once = FP8_BYTES / 2 + 2 * scales
    elif settings.linear_scaling == "tensor":
        return float(FP8_BYTES)
    else:
        once = FP8_BYTES + scales
    return 2 * once if gradient else once


def _agreement(rates: Rates, settings: LayerSettings) -> list[_Transfer]:
    """The maximum of a tensor whose shards are cast, which the cast waits for: one fp32 figure, all latency.

    Source: TransformerEngine pytorch/module/linear.py (`with_amax_reduction` of column-parallel inputs and row-parallel output gradients).
    """
    if not settings.agrees_on_scale or not settings.sequence_parallel:
        return []
    return [_Transfer(rates.all_reduce_s(FP32_BYTES, settings.tp, 1), 0.0, 0.0)]


def _column(
    rates: Rates, settings: LayerSettings, elements: float, readers: Sequence[Piece], element_bytes: float, again: bool
) -> _Traffic:
    """Of linears that read the whole hidden state and split their outputs."""
    if not readers:
        return [], []
    product_s, input_gradient_s, weight_gradient_s = (
        sum(seconds) for seconds in zip(*((p.forward_s, p.backward_s, p.weight_s) for p in readers), strict=True)
    )
    beside_s = weight_gradient_s if settings.overlap_tp_all_reduce else 0.0
    if not settings.sequence_parallel:
        return [], [_Transfer(rates.all_reduce_s(elements * BF16_BYTES, settings.tp, 1), beside_s, 0.0)]
    gather_s = rates.all_gather_s(elements * element_bytes, settings.tp, 1)
    scatter_s = rates.reduce_scatter_s(elements * BF16_BYTES, settings.tp, 1)
    backward = [_Transfer(scatter_s, beside_s, weight_gradient_s or input_gradient_s)]
    if settings.trains_weights and again:
        backward.append(_Transfer(gather_s, input_gradient_s, input_gradient_s))
    return [_Transfer(gather_s, 0.0, product_s)], backward


def _row(rates: Rates, settings: LayerSettings, elements: float, closer: Piece | None, element_bytes: float) -> _Traffic:
    """Of a linear that sums over TP."""
    if closer is None:
        return [], []
    if not settings.sequence_parallel:
        return [_Transfer(rates.all_reduce_s(elements * BF16_BYTES, settings.tp, 1), 0.0, 0.0)], []
    forward = [_Transfer(rates.reduce_scatter_s(elements * BF16_BYTES, settings.tp, 1), 0.0, closer.forward_s)]
    return forward, [_Transfer(rates.all_gather_s(elements * element_bytes, settings.tp, 1), 0.0, closer.backward_s)]


def _piece(settings: LayerSettings, traffic: _Traffic, module: str | None = None) -> Piece:
    forward, backward = traffic
    user_buffers = settings.tp_comm_overlap and settings.sequence_parallel
    return Piece(
        name="tp",
        collective="tp",
        module=module,
        forward_s=sum(t.felt_s(user_buffers=user_buffers) for t in forward),
        backward_s=sum(t.felt_s(user_buffers=user_buffers) for t in backward),
        forward_total_s=sum(t.whole_s for t in forward),
        backward_total_s=sum(t.whole_s for t in backward),
    )


def tensor_parallel(
    rates: Rates,
    arch: Architecture,
    settings: LayerSettings,
    readers: Sequence[Piece],
    closer: Piece | None = None,
    *,
    width: float | None = None,
    module: str | None = None,
    quantized: bool = True,
    gathers_again: bool = True,
) -> list[Piece]:
    """Traffic of one block of T w elements, w the hidden size unless `width` says otherwise (latents, both inputs of an MTP depth):
    column-parallel `readers` of it, and the row-parallel `closer` that sums over TP.

    - sequence parallel, forward: all-gather before the readers, reduce-scatter after the closer. Backward: all-gather before the
      closer; all-gather of the saved input beside the readers' input gradient, reduce-scatter of it beside their weight gradient.
    - otherwise, forward: all-reduce after the closer. Backward: all-reduce of the readers' input gradient beside their weight gradient.

    What has no GEMM beside it is felt whole, the rest as `_Transfer` says. Under a split backward, and before 2022, no weight gradient
    runs there; frozen weights have none, and need no input again, nor does a reader that keeps the gathered one (not `gathers_again`).
    Gathers move what the linears multiply (`gathered_bytes`), which ranks may have to agree on a scale for (`_agreement`), unless not
    `quantized`; sums BF16. User buffers weave every transfer into a GEMM; they need sequence parallelism (NVIDIA/Megatron-LM
    training/arguments.py).
    Source: NVIDIA/Megatron-LM core/tensor_parallel/layers.py (LinearWithGradAccumulationAndAsyncCommunication.backward),
    TransformerEngine pytorch/module/layernorm_linear.py of NVIDIA and ROCm (`async_op=True` for all three, waited for after the GEMM);
    arXiv:2205.05198 section 6.2. Known error: 2 to 5% fast at TP 2 and 4 on B200, 12-layer Llama-3-70B 11 to 16% fast at TP 8; 22B and
    175B on A100 at TP 8 1 to 4% slow; no AMD run with TP is published.
    """
    if settings.tp == 1:
        return []
    elements = settings.tokens(arch) * (arch.hidden_size if width is None else width)
    inputs, gradients = (gathered_bytes(settings, gradient=g) if quantized else float(BF16_BYTES) for g in (False, True))
    column = _column(rates, settings, elements, readers, inputs, gathers_again)
    row = _row(rates, settings, elements, closer, gradients)
    agreed = _agreement(rates, settings) if quantized else []
    forward = [*column[0], *row[0], *(agreed if readers else [])]
    return [_piece(settings, (forward, [*column[1], *row[1], *(agreed if closer else [])]), module)]


def shard_gathered(rates: Rates, arch: Architecture, settings: LayerSettings, width: float) -> list[Piece]:
    """A tensor of T / TP rows and `width` columns gathered outside any linear, its gradients summed into shards; BF16, felt whole."""
    if settings.tp == 1 or not settings.sequence_parallel:
        return []
    size_bytes = settings.tokens(arch) * width * BF16_BYTES
    forward = [_Transfer(rates.all_gather_s(size_bytes, settings.tp, 1), 0.0, 0.0)]
    return [_piece(settings, (forward, [_Transfer(rates.reduce_scatter_s(size_bytes, settings.tp, 1), 0.0, 0.0)]))]


def columns_gathered(
    rates: Rates, arch: Architecture, settings: LayerSettings, width: float, name: str, *, sums: bool = True
) -> list[Piece]:
    """A tensor of all T rows whose `width` columns are split over TP, gathered and joined by a copy (part of `name`); BF16, felt whole.

    Backward: the gradients of all ranks are summed into columns, or (not `sums`) taken out of a gradient that every rank has whole.
    """
    if settings.tp == 1:
        return []
    size_bytes = settings.tokens(arch) * width * BF16_BYTES
    backward = [_Transfer(rates.reduce_scatter_s(size_bytes, settings.tp, 1), 0.0, 0.0)] if sums else []
    join_s = rates.pass_s(2 * size_bytes)
    return [
        _piece(settings, ([_Transfer(rates.all_gather_s(size_bytes, settings.tp, 1), 0.0, 0.0)], backward)),
        Piece(name=name, forward_s=join_s, backward_s=join_s if sums else 0.0),
    ]


def shard_taken(rates: Rates, arch: Architecture, settings: LayerSettings, width: float) -> list[Piece]:
    """A whole tensor of which each rank keeps its T / TP rows: nothing moves forward, gradients are gathered; BF16, felt whole."""
    if settings.tp == 1 or not settings.sequence_parallel:
        return []
    gather_s = rates.all_gather_s(settings.tokens(arch) * width * BF16_BYTES, settings.tp, 1)
    return [_piece(settings, ([], [_Transfer(gather_s, 0.0, 0.0)]))]


_SUMMING_PASSES = 4
"""Gradients are copied into one buffer and back, each read and written."""


def replicated_gradients_s(rates: Rates, arch: Architecture, settings: LayerSettings, elements: float) -> float:
    """A layer's share of the all-reduce over TP that ends an iteration under sequence parallelism: each rank saw another shard.

    bytes = gradients of what is whole on every TP rank: norms, router, the down-projections of latents. All layers of a stage go in one
    collective, whose latency is spread over the model's. Nothing runs beside it.
    Source: NVIDIA/Megatron-LM core/distributed/finalize_model_grads.py (`_allreduce_non_tensor_model_parallel_grads`).
    """
    if settings.tp == 1 or not settings.sequence_parallel or not settings.trains_weights:
        return 0.0
    size_bytes = elements * settings.main_grad_bytes
    summed_s = rates.all_reduce_s(arch.num_layers * size_bytes, settings.tp, 1) / arch.num_layers
    return summed_s + rates.pass_s(_SUMMING_PASSES * size_bytes)
