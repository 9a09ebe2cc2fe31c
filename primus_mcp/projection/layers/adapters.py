"""The time of LoRA adapters beside the linears of a layer: thin products and eager tensor operations, bound by HBM, and their traffic."""

from __future__ import annotations

from primus_mcp.inputs.architecture import Architecture, LayerShape
from primus_mcp.inputs.constants import TIME
from primus_mcp.projection.adapters import AdaptedLinear, Adapters, adapted_linears
from primus_mcp.projection.layers.moe_mlp import expert_rows
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import Piece
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.units import BF16_BYTES


def _linears(arch: Architecture, settings: LayerSettings, shape: LayerShape, adapters: Adapters) -> tuple[AdaptedLinear, ...]:
    return adapted_linears(arch, shape, settings.tp, settings.ep, settings.etp, adapters)


def _rows(arch: Architecture, settings: LayerSettings, linear: AdaptedLinear) -> float:
    """All rows of a rank's experts pass their shared adapter, or each its own expert's: the same bytes. Replicated linears read a shard."""
    if linear.expert and arch.experts:
        return expert_rows(arch, arch.experts, settings)
    return settings.sharded_tokens(arch) if linear.form == "replicated" else settings.tokens(arch)


def adapter_pieces(rates: Rates, arch: Architecture, settings: LayerSettings, shape: LayerShape) -> list[Piece]:
    """The adapters of one layer for one micro-batch, as Primus runs them: y = W x + (alpha / r) B A dropout(x), each step a kernel.

    bytes a row: 2 (i p_i + o p_o), i and o the widths of the adapted linear on a rank, p the passes over them (`adapter.*` of the time
    constants): forward A reads, B writes, the product with alpha / r reads and writes (also where it is 1), the sum reads both and
    writes; backward the same way round, and the sum of two input gradients. Dropout reads and writes the input and a mask; at p = 0
    there is none. The weights themselves, r (i + o), are left out: a row in a thousand.
    Source: AMD-AGI/Primus backends/megatron/peft/utils.py (ParallelLinearAdapter.forward), lora_layers.py (LoRALinear.forward).
    Known error: GEMMs r wide are taken to reach the bandwidth of HBM, which no kernel run shows. Llama-2-70B, adapters on attention: 8%
    slow on 8 MI355X, 0 to 6% fast on 8 MI300X. The two figures of DeepSeek-V2-Lite (docs/performance.md): LoRA over pretraining 1.21, of
    the author's own figures 1.17.
    """
    adapters = settings.adapters
    if adapters is None:
        return []
    extra = TIME["adapter.dropout"] if adapters.dropout else 0.0
    forward_bytes = backward_bytes = 0.0
    linears = _linears(arch, settings, shape, adapters)
    for linear in linears:
        size = BF16_BYTES * _rows(arch, settings, linear)
        forward_bytes += size * ((TIME["adapter.input.forward"] + extra) * linear.inputs + TIME["adapter.output.forward"] * linear.outputs)
        backward_bytes += size * (
            (TIME["adapter.input.backward"] + extra) * linear.inputs + TIME["adapter.output.backward"] * linear.outputs
        )
    piece = Piece(name="adapters", forward_s=rates.pass_s(forward_bytes), backward_s=rates.pass_s(backward_bytes))
    return [piece, *_traffic(rates, arch, settings, linears, adapters.rank)]


def _transfers_s(rates: Rates, settings: LayerSettings, linear: AdaptedLinear, row_bytes: float, rank: int) -> tuple[float, float]:
    """(forward, backward) seconds of one adapter's collectives, see `_traffic`."""
    n, low, wide, read = linear.split, row_bytes * rank, row_bytes * linear.outputs, row_bytes * linear.inputs
    reduced_s, gathered_s = rates.all_reduce_s(low, n, 1), rates.all_gather_s(low, n, 1)
    if linear.expert:
        return (rates.all_gather_s(wide, n, 1) if linear.form == "row" else gathered_s), 0.0
    if linear.form == "row":
        wide_s = rates.all_gather_s(wide, n, 1)
        return reduced_s + wide_s, reduced_s + (wide_s if settings.sequence_parallel else 0.0)
    forward_s = gathered_s + (rates.all_gather_s(wide, n, 1) if linear.form == "replicated" else 0.0)
    if not settings.sequence_parallel:
        return forward_s, reduced_s + rates.all_reduce_s(read, n, 1)
    if linear.form == "column" or (linear.form == "normed" and settings.tp_comm_overlap):
        return forward_s + rates.all_gather_s(read, n, 1), reduced_s + rates.reduce_scatter_s(read, n, 1)
    return forward_s, reduced_s


def _traffic(rates: Rates, arch: Architecture, settings: LayerSettings, linears: tuple[AdaptedLinear, ...], rank: int) -> list[Piece]:
    """Collectives of adapters over n > 1 ranks (TP, of experts ETP); nothing hides them. T rows, i and o as above, BF16:

    - column-parallel: forward all-gather of A x, T r; backward all-reduce of the same and of the input gradient, T i. With sequence
      parallelism the base linear reduces the latter where it returns its gathered input (norm in one module, no TP overlap); elsewhere
      the adapter gathers T i forward and reduce-scatters it backward.
    - row-parallel: forward all-reduce of A x, T r, and all-gather of the output, T o; backward all-reduce of T r, and with sequence
      parallelism all-gather of T o.
    - replicated, T its own shard: forward all-gather of T r and T o; backward as column-parallel without sequence parallelism, else of T r
      alone.
    - of experts: forward all-gather of T r (column) or T o (row) alone.
    Source: NVIDIA/Megatron-LM core/tensor_parallel/layers.py (allreduce_dgrad, explicit_expert_comm), mappings.py; no run with TP > 1 and
    adapters on an AMD GPU is published.
    """
    forward_s = backward_s = 0.0
    for linear in linears:
        if linear.split > 1:
            spent = _transfers_s(rates, settings, linear, BF16_BYTES * _rows(arch, settings, linear), rank)
            forward_s, backward_s = forward_s + spent[0], backward_s + spent[1]
    if not forward_s:
        return []
    piece = Piece(
        name="tp",
        collective="tp",
        forward_s=forward_s,
        backward_s=backward_s,
        forward_total_s=forward_s,
        backward_total_s=backward_s,
    )
    return [piece]


def adapter_launches(arch: Architecture, settings: LayerSettings, shape: LayerShape) -> tuple[float, float]:
    """(forward, backward) kernels of a layer's adapters that Python dispatches."""
    adapters = settings.adapters
    if adapters is None:
        return 0.0, 0.0
    count = sum(linear.count for linear in _linears(arch, settings, shape, adapters))
    extra = TIME["launches.adapter_dropout"] if adapters.dropout else 0.0
    return count * (TIME["launches.adapter.forward"] + extra), count * (TIME["launches.adapter.backward"] + extra)
