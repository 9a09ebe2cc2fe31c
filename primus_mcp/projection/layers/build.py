"""Layer, embedding and head costs, memoised on exactly what they depend on: machine, architecture, settings, kind of layer."""

from __future__ import annotations

from functools import lru_cache

from primus_mcp.errors import InputError
from primus_mcp.inputs.architecture import ATTENDING, FEEDING_FORWARD, MIXING, Architecture, LayerKind
from primus_mcp.inputs.constants import TIME
from primus_mcp.projection.layers import host
from primus_mcp.projection.layers.adapters import adapter_launches, adapter_pieces
from primus_mcp.projection.layers.attention import attention_pieces
from primus_mcp.projection.layers.dense_mlp import dense_mlp_pieces
from primus_mcp.projection.layers.head import embedding_pieces, head_pieces, prediction_projection
from primus_mcp.projection.layers.linear import weight_cast_s
from primus_mcp.projection.layers.mixers import mixer_pieces, residual_pieces
from primus_mcp.projection.layers.moe_mlp import moe_pieces
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import HostCost, PartCost, Piece, part_cost
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.projection.parameters import attention_parameters, layer_parameters

_CACHED_PARTS = 16_384


def _launch_s(rates: Rates, settings: LayerSettings, kind: str) -> float:
    """Host seconds per kernel that Python dispatches in a `dense` or `moe` block; 1F1B A2A overlap cuts layers into ordered pieces."""
    pieces = TIME["overlap_moe_launch_factor"] if settings.overlap_moe_a2a else 1.0
    return rates.cluster.profile.launch_s * TIME[f"host_work.{kind}"] * pieces


def _dense_host(rates: Rates, arch: Architecture, settings: LayerSettings, kind: LayerKind, *, mlp: bool = True) -> HostCost:
    """A mixer is taken to launch as many kernels as attention."""
    if settings.full_graph:
        return HostCost()
    each = _launch_s(rates, settings, "dense")
    attention = host.attention_launches(arch, settings) if kind != "mlp_alone" else (0.0, 0.0)
    feed_forward = host.dense_launches(settings) if mlp else (0.0, 0.0)
    adapters = adapter_launches(arch, settings, (False, kind))
    forward, backward = (attention[i] + feed_forward[i] + adapters[i] for i in (0, 1))
    return HostCost(forward_s=forward * each, backward_s=backward * each)


def _moe_host(rates: Rates, arch: Architecture, settings: LayerSettings, kind: LayerKind) -> HostCost:
    """Host synchronisations cluster at the dispatch of each layer's forward pass.

    Between two clusters the host launches the experts of one layer and the attention of the next, as much as without them: they add
    idle GPU time (`stall_s`) and keep the host from running ahead, but do not add host time. The backward pass has none.
    """
    if settings.full_graph:
        return HostCost()
    dense_s, moe_s, loop_s = _launch_s(rates, settings, "dense"), _launch_s(rates, settings, "moe"), TIME["loop_launch_s"]
    attention, dispatch = host.attention_launches(arch, settings), host.dispatch_launches(settings)
    experts, loops, biases = host.expert_launches(arch, settings), host.loop_gemms(arch, settings), host.bias_launches(arch, settings)
    plain_s, adapters = rates.cluster.profile.launch_s, adapter_launches(arch, settings, (True, kind))
    forward_s, backward_s = (
        (attention[i] + adapters[i]) * dense_s + (dispatch[i] + experts[i]) * moe_s + loops[i] * loop_s + biases[i] * plain_s
        for i in (0, 1)
    )
    return HostCost(forward_s=forward_s, backward_s=backward_s, stall_s=host.synchronisations(settings) * TIME["sync_bubble_s"])


def _weight_casts_s(rates: Rates, arch: Architecture, settings: LayerSettings, *, moe: bool, kind: LayerKind) -> float:
    whole = layer_parameters(arch, moe, settings.tp, settings.ep if moe else 1, settings.etp if moe else 1, kind)
    linears = whole.dense_sharded + (attention_parameters(arch, settings.tp).dense_replicated if kind in ATTENDING else 0)
    return weight_cast_s(rates, linears, settings, settings.linear_precision) + weight_cast_s(
        rates, whole.expert, settings, settings.expert_precision
    )


def _first_half(rates: Rates, arch: Architecture, settings: LayerSettings, windowed: bool, kind: LayerKind) -> tuple[Piece, ...]:
    """Attention, the mixer, or nothing, with the norms and residuals of the whole layer."""
    halves = 2 if kind in ("attention", "mixer") else 1
    if kind in ATTENDING:
        return attention_pieces(rates, arch, settings, windowed, halves)
    if kind in MIXING:
        return mixer_pieces(rates, arch, settings, halves)
    return tuple(residual_pieces(rates, arch, settings, halves))


@lru_cache(maxsize=_CACHED_PARTS)
def decoder_layer(
    rates: Rates, arch: Architecture, settings: LayerSettings, *, moe: bool, windowed: bool, kind: LayerKind = "attention"
) -> PartCost:
    """One decoder layer of the given kind for one micro-batch. Raises InputError where EP does not divide the experts."""
    attention = (*_first_half(rates, arch, settings, windowed, kind), *adapter_pieces(rates, arch, settings, (moe, kind)))
    once_s = _weight_casts_s(rates, arch, settings, moe=moe, kind=kind)
    if kind not in FEEDING_FORWARD:
        return part_cost(attention, _dense_host(rates, arch, settings, kind, mlp=False), once_s)
    if not moe:
        return part_cost((*attention, *dense_mlp_pieces(rates, arch, settings)), _dense_host(rates, arch, settings, kind), once_s)
    assert arch.experts is not None
    if arch.experts.num_experts % settings.ep:
        raise InputError(f"{settings.ep} does not divide {arch.experts.num_experts} experts", where="ep", remedy="choose a divisor")
    pieces = (*attention, *moe_pieces(rates, arch, arch.experts, settings))
    return part_cost(pieces, _moe_host(rates, arch, settings, kind), once_s)


def _end_host(rates: Rates, settings: LayerSettings) -> HostCost:
    if settings.full_graph:
        return HostCost()
    each_s = TIME["launches.ends"] * _launch_s(rates, settings, "dense")
    return HostCost(forward_s=each_s, backward_s=each_s)


@lru_cache(maxsize=_CACHED_PARTS)
def embedding(rates: Rates, arch: Architecture, settings: LayerSettings) -> PartCost:
    """The input embedding."""
    return part_cost(embedding_pieces(rates, arch, settings), _end_host(rates, settings))


@lru_cache(maxsize=_CACHED_PARTS)
def head(rates: Rates, arch: Architecture, settings: LayerSettings) -> PartCost:
    """The output matrix and the loss."""
    return part_cost(head_pieces(rates, arch, settings), _end_host(rates, settings))


@lru_cache(maxsize=_CACHED_PARTS)
def prediction_depth(rates: Rates, arch: Architecture, settings: LayerSettings) -> tuple[PartCost, ...]:
    """One MTP depth: projection, a layer of the last layer's kind, and the shared head with its loss once more."""
    windowed = bool(arch.windowed_layers) and arch.windowed_layers[-1]
    return (
        part_cost(prediction_projection(rates, arch, settings), _end_host(rates, settings)),
        decoder_layer(rates, arch, settings, moe=arch.moe_layers[-1], windowed=windowed, kind=arch.layer_kind(arch.num_layers - 1)),
        head(rates, arch, settings),
    )
