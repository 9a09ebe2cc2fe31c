"""The dense MLP of a layer (and, with another width, the shared expert)."""

from __future__ import annotations

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import TIME
from primus_mcp.projection.layers.linear import model_linear
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import Piece
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.projection.layers.tensor_parallel import tensor_parallel


def activation_bytes(arch: Architecture, *, fused: bool) -> tuple[float, float]:
    """Bytes (forward, backward) an element of the FFN width that the activation moves; a clamp before it is eager PyTorch."""
    if not arch.gated_mlp:
        return TIME["plain_activation.forward"], TIME["plain_activation.backward"]
    kind = "fused" if fused else "eager"
    clamp = clamp_bytes(arch)
    return TIME[f"gated_activation.{kind}.forward"] + clamp[0], TIME[f"gated_activation.{kind}.backward"] + clamp[1]


def clamp_bytes(arch: Architecture) -> tuple[float, float]:
    """Bytes (forward, backward) an element of the FFN width that clamping both halves moves."""
    return (0.0, 0.0) if arch.activation_clamp is None else (TIME["activation_clamp.forward"], TIME["activation_clamp.backward"])


def mlp_pieces(
    rates: Rates, arch: Architecture, settings: LayerSettings, width: int, *, name: str, module: str, casts_shards: bool = True
) -> tuple[Piece, ...]:
    """fc1 h -> (2) f / TP, activation, fc2 f / TP -> h, without communication."""
    tokens, local = settings.tokens(arch), width / settings.tp
    up = (2 if arch.gated_mlp else 1) * local
    linears = (
        model_linear(rates, settings, name, tokens, up, arch.hidden_size, module, gathered="input" if casts_shards else None),
        model_linear(rates, settings, name, tokens, arch.hidden_size, local, module, gathered="gradient" if casts_shards else None),
    )
    forward_bytes, backward_bytes = activation_bytes(arch, fused=settings.fused_swiglu)
    activation = Piece(
        name="activation",
        module=module,
        forward_s=rates.pass_s(tokens * local * forward_bytes),
        backward_s=rates.pass_s(tokens * local * backward_bytes),
    )
    return (*linears, activation)


def dense_mlp_pieces(rates: Rates, arch: Architecture, settings: LayerSettings) -> tuple[Piece, ...]:
    """The dense MLP with its TP traffic."""
    pieces = mlp_pieces(rates, arch, settings, arch.ffn_hidden_size, name="mlp", module="mlp")
    return (*pieces, *tensor_parallel(rates, arch, settings, pieces[:1], pieces[1], module="mlp"))
