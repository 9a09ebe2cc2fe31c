"""The ends of the model: embedding, output matrix with loss, and the projection of a multi-token-prediction depth."""

from __future__ import annotations

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import TIME
from primus_mcp.projection.layers.linear import Accumulation, linear, model_linear
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import Piece, communication
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.projection.layers.tensor_parallel import tensor_parallel
from primus_mcp.units import BF16_BYTES


def embedding_pieces(rates: Rates, arch: Architecture, settings: LayerSettings) -> tuple[Piece, ...]:
    """Look-up and its scatter-add; under TP the partial rows are reduce-scattered (sequence parallel) or all-reduced."""
    tokens = settings.tokens(arch)
    direction_s = rates.pass_s(tokens * arch.hidden_size * TIME["embedding"])
    look_up = Piece(name="embedding", forward_s=direction_s, backward_s=direction_s if settings.trains_weights else 0.0)
    if settings.tp == 1:
        return (look_up,)
    size_bytes = tokens * arch.hidden_size * BF16_BYTES
    if settings.sequence_parallel:
        forward_s, backward_s = rates.reduce_scatter_s(size_bytes, settings.tp, 1), rates.all_gather_s(size_bytes, settings.tp, 1)
    else:
        forward_s, backward_s = rates.all_reduce_s(size_bytes, settings.tp, 1), 0.0
    return (look_up, communication("tp", forward_s, backward_s))


def loss_bytes(settings: LayerSettings) -> float:
    """Bytes a logit that cross-entropy moves, forward and backward together."""
    if not settings.cross_entropy_loss_fusion:
        return TIME["loss.native"]
    return TIME["loss.fused_te" if settings.cross_entropy_impl == "te" else "loss.fused_native"]


def head_pieces(rates: Rates, arch: Architecture, settings: LayerSettings) -> tuple[Piece, ...]:
    """Final norm, output GEMM in bf16 over the padded vocabulary / TP, loss; the norm is a third of a layer's norm and residual traffic."""
    tokens, rows = settings.tokens(arch), arch.padded_vocab_size(settings.tp) / settings.tp
    output = linear(
        rates,
        "output_layer",
        tokens=tokens,
        outputs=rows,
        inputs=float(arch.hidden_size),
        precision="bf16",
        cast_bytes=0.0,
        accumulate=Accumulation(fused=settings.gradient_accumulation_fusion, main_grad_bytes=settings.main_grad_bytes),
        trains_weights=settings.trains_weights,
    )
    loss_s = rates.pass_s(tokens * rows * loss_bytes(settings) / 2)
    return (
        output,
        Piece(name="loss", forward_s=loss_s, backward_s=loss_s),
        *tensor_parallel(rates, arch, settings, (output,), quantized=False),
    )


def prediction_projection(rates: Rates, arch: Architecture, settings: LayerSettings) -> tuple[Piece, ...]:
    """MTP: norms of both inputs and the projection 2h -> h / TP of one depth (its layer and head are priced as such)."""
    projection = model_linear(
        rates, settings, "mtp_projection", settings.tokens(arch), arch.hidden_size / settings.tp, 2.0 * arch.hidden_size
    )
    width = settings.sharded_tokens(arch) * arch.hidden_size
    norm = Piece(
        name="norm",
        forward_s=rates.pass_s(width * TIME["norm_residual.forward"]),
        backward_s=rates.pass_s(width * TIME["norm_residual.backward"]),
    )
    return (projection, norm, *tensor_parallel(rates, arch, settings, (projection,), projection))
