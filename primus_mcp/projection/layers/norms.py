"""Norms before the halves of a layer and before the output matrix, with the residual additions."""

from __future__ import annotations

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import TIME
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import Piece
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.units import BF16_BYTES

NORM_FORWARD_BYTES = 2 * BF16_BYTES
"""A norm alone: input read, output written."""
NORM_BACKWARD_BYTES = 3 * BF16_BYTES
"""Input and gradient read, gradient written."""


def _eager_backward_bytes(settings: LayerSettings) -> float:
    """Of the two norms of a layer."""
    return 0.0 if settings.fused_norm else TIME["norm_eager.backward"]


def norm_pieces(rates: Rates, arch: Architecture, settings: LayerSettings, halves: int, *, apart: int) -> list[Piece]:
    """Norms and residual additions of the halves (attention or mixer, MLP) that a layer has, on a rank's shard of the sequence.

    `apart` of these norms are modules of their own, before latent attention and before experts: recomputing `layernorm` runs them again.
    The others lie in one module with the linear behind them. Source: NVIDIA/Megatron-LM core/transformer/transformer_layer.py
    (`recompute_input_layernorm`, `recompute_pre_mlp_layernorm`), core/models/gpt/gpt_layer_specs.py.
    """
    elements, share = settings.sharded_tokens(arch) * arch.hidden_size, halves / 2
    replayed_bytes = apart * NORM_FORWARD_BYTES
    backward_bytes = share * (TIME["norm_residual.backward"] + _eager_backward_bytes(settings))
    once = Piece(
        name="norm",
        forward_s=rates.pass_s(elements * (share * TIME["norm_residual.forward"] - replayed_bytes)),
        backward_s=rates.pass_s(elements * backward_bytes),
    )
    if not apart:
        return [once]
    return [once, Piece(name="norm", module="layernorm", forward_s=rates.pass_s(elements * replayed_bytes))]


def final_norm(rates: Rates, arch: Architecture, settings: LayerSettings) -> Piece:
    """The norm before the output matrix, on a rank's shard of the sequence."""
    elements = settings.sharded_tokens(arch) * arch.hidden_size
    backward_bytes = NORM_BACKWARD_BYTES + _eager_backward_bytes(settings) / 2
    return Piece(name="norm", forward_s=rates.pass_s(elements * NORM_FORWARD_BYTES), backward_s=rates.pass_s(elements * backward_bytes))
