"""Layer, embedding and head costs, memoised on exactly what they depend on: machine, architecture, settings, kind of layer."""

from __future__ import annotations

from functools import lru_cache

from primus_mcp.errors import InputError
from primus_mcp.inputs.architecture import ATTENDING, FEEDING_FORWARD, MIXING, Architecture, LayerKind, LayerShape
from primus_mcp.inputs.constants import TIME
from primus_mcp.projection.layers import host
from primus_mcp.projection.layers.adapters import adapter_launches, adapter_pieces
from primus_mcp.projection.layers.attention import attention_pieces
from primus_mcp.projection.layers.dense_mlp import dense_mlp_pieces
from primus_mcp.projection.layers.head import embedding_pieces, head_pieces, prediction_projection
from primus_mcp.projection.layers.linear import weight_cast_s
from primus_mcp.projection.layers.mixers import mixer_pieces
from primus_mcp.projection.layers.moe_mlp import moe_pieces
from primus_mcp.projection.layers.norms import norm_pieces
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import HostCost, PartCost, Piece, part_cost
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.projection.layers.tensor_parallel import replicated_gradients_s
from primus_mcp.projection.parameters import attention_parameters, layer_parameters

_CACHED_PARTS = 16_384


def _launch_s(rates: Rates, settings: LayerSettings, kind: str) -> float:
    """Host seconds per kernel that Python dispatches in a `dense` or `moe` block; 1F1B A2A overlap cuts layers into ordered pieces."""
    pieces = TIME["overlap_moe_launch_factor"] if settings.overlap_moe_a2a else 1.0
    return rates.cluster.profile.launch_s * TIME[f"host_work.{kind}"] * pieces


def _host_cost(seconds: host.Launches, settings: LayerSettings, stall_s: float = 0.0) -> HostCost:
    """Frozen weights have no gradient."""
    forward_s, backward_s, weight_s = seconds
    return HostCost(forward_s=forward_s, backward_s=backward_s, weight_s=weight_s if settings.trains_weights else 0.0, stall_s=stall_s)


def _dense_host(rates: Rates, arch: Architecture, settings: LayerSettings, kind: LayerKind, *, mlp: bool = True) -> HostCost:
    """A mixer is taken to launch as many kernels as attention."""
    if settings.full_graph:
        return HostCost()
    launches = host.added(
        host.attention_launches(arch, settings) if kind != "mlp_alone" else host.NO_LAUNCHES,
        host.dense_launches(settings) if mlp else host.NO_LAUNCHES,
        (*adapter_launches(arch, settings, (False, kind)), 0.0),
    )
    return _host_cost(host.times(launches, _launch_s(rates, settings, "dense")), settings)


def _moe_host(rates: Rates, arch: Architecture, settings: LayerSettings, kind: LayerKind) -> HostCost:
    """Host synchronisations cluster at the dispatch of each layer's forward pass.

    Between two clusters the host launches the experts of one layer and the attention of the next, as much as without them: they add
    idle GPU time (`stall_s`) and keep the host from running ahead, but do not add host time. The backward pass has none.
    """
    if settings.full_graph:
        return HostCost()
    attention = host.added(host.attention_launches(arch, settings), (*adapter_launches(arch, settings, (True, kind)), 0.0))
    experts = host.added(host.dispatch_launches(settings), host.expert_launches(arch, settings))
    seconds = host.added(
        host.times(attention, _launch_s(rates, settings, "dense")),
        host.times(experts, _launch_s(rates, settings, "moe")),
        host.times(host.loop_gemms(arch, settings), TIME["loop_launch_s"]),
        host.times(host.bias_launches(arch, settings), rates.cluster.profile.launch_s),
    )
    return _host_cost(seconds, settings, host.synchronisations(settings) * TIME["sync_bubble_s"])


def _weight_casts_s(rates: Rates, arch: Architecture, settings: LayerSettings, *, moe: bool, kind: LayerKind) -> float:
    whole = layer_parameters(arch, moe, settings.tp, settings.ep if moe else 1, settings.etp if moe else 1, kind)
    linears = whole.dense_sharded + (attention_parameters(arch, settings.tp).dense_replicated if kind in ATTENDING else 0)
    return weight_cast_s(rates, linears, settings, settings.linear_precision) + weight_cast_s(
        rates, whole.expert, settings, settings.expert_precision
    )


def _summed_once_s(rates: Rates, arch: Architecture, settings: LayerSettings, *, moe: bool, kind: LayerKind) -> float:
    whole = layer_parameters(arch, moe, settings.tp, settings.ep if moe else 1, settings.etp if moe else 1, kind)
    return replicated_gradients_s(rates, arch, settings, whole.dense_replicated)


def _first_half(rates: Rates, arch: Architecture, settings: LayerSettings, windowed: bool, shape: LayerShape) -> tuple[Piece, ...]:
    """Attention, the mixer, or nothing, with the norms and residuals of the whole layer."""
    moe, kind = shape
    apart = (kind in ATTENDING and arch.latent_attention is not None) + (moe and kind in FEEDING_FORWARD)
    norms = norm_pieces(rates, arch, settings, 2 if kind in ("attention", "mixer") else 1, apart=apart)
    if kind in ATTENDING:
        return (*attention_pieces(rates, arch, settings, windowed), *norms)
    return (*mixer_pieces(rates, arch, settings), *norms) if kind in MIXING else tuple(norms)


@lru_cache(maxsize=_CACHED_PARTS)
def decoder_layer(
    rates: Rates, arch: Architecture, settings: LayerSettings, *, moe: bool, windowed: bool, kind: LayerKind = "attention"
) -> PartCost:
    """One decoder layer of the given kind for one micro-batch. Raises InputError where EP does not divide the experts."""
    attention = (*_first_half(rates, arch, settings, windowed, (moe, kind)), *adapter_pieces(rates, arch, settings, (moe, kind)))
    once_s = _weight_casts_s(rates, arch, settings, moe=moe, kind=kind) + _summed_once_s(rates, arch, settings, moe=moe, kind=kind)
    if kind not in FEEDING_FORWARD:
        return part_cost(attention, _dense_host(rates, arch, settings, kind, mlp=False), once_s)
    if not moe:
        return part_cost((*attention, *dense_mlp_pieces(rates, arch, settings)), _dense_host(rates, arch, settings, kind), once_s)
    assert arch.experts is not None
    if arch.experts.num_experts % settings.ep:
        raise InputError(f"{settings.ep} does not divide {arch.experts.num_experts} experts", where="ep", remedy="choose a divisor")
    pieces = (*attention, *moe_pieces(rates, arch, arch.experts, settings))
    return part_cost(pieces, _moe_host(rates, arch, settings, kind), once_s)


def _end_host(rates: Rates, settings: LayerSettings, *, linears: int) -> HostCost:
    """An end with so many linears, each with one product for its weight gradient."""
    if settings.full_graph:
        return HostCost()
    counts = TIME["launches.ends"], TIME["launches.ends"], linears * TIME["launches.ends_weight"]
    return _host_cost(host.times(counts, _launch_s(rates, settings, "dense")), settings)


@lru_cache(maxsize=_CACHED_PARTS)
def embedding(rates: Rates, arch: Architecture, settings: LayerSettings) -> PartCost:
    """The input embedding."""
    return part_cost(embedding_pieces(rates, arch, settings), _end_host(rates, settings, linears=0))


@lru_cache(maxsize=_CACHED_PARTS)
def head(rates: Rates, arch: Architecture, settings: LayerSettings) -> PartCost:
    """The output matrix and the loss."""
    return part_cost(head_pieces(rates, arch, settings), _end_host(rates, settings, linears=1))


@lru_cache(maxsize=_CACHED_PARTS)
def prediction_depth(rates: Rates, arch: Architecture, settings: LayerSettings) -> tuple[PartCost, ...]:
    """One MTP depth: embedding and projection, a layer of the last layer's kind, and the shared head with its loss once more."""
    windowed = bool(arch.windowed_layers) and arch.windowed_layers[-1]
    return (
        part_cost(prediction_projection(rates, arch, settings), _end_host(rates, settings, linears=1)),
        decoder_layer(rates, arch, settings, moe=arch.moe_layers[-1], windowed=windowed, kind=arch.layer_kind(arch.num_layers - 1)),
        head(rates, arch, settings),
    )
