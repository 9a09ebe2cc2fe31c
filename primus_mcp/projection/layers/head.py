"""The ends of the model: embedding, output matrix with loss, and the projection of a multi-token-prediction depth."""

from __future__ import annotations

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import TIME
from primus_mcp.projection.layers.linear import Accumulation, linear, model_linear
from primus_mcp.projection.layers.norms import NORM_BACKWARD_BYTES, NORM_FORWARD_BYTES, final_norm
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import Piece, communication
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.projection.layers.tensor_parallel import columns_gathered, shard_taken, tensor_parallel
from primus_mcp.units import BF16_BYTES, FP32_BYTES


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


def _loss_traffic(rates: Rates, settings: LayerSettings, tokens: float) -> list[Piece]:
    """What ranks tell each other of their share of the vocabulary, in fp32 a token: maximum, logit of the target, sum of exponentials.

    Three all-reduces, or two where the last two go together (native fusion), or one all-gather of all three (TransformerEngine). Source:
    NVIDIA/Megatron-LM core/tensor_parallel/cross_entropy.py, core/fusions/fused_cross_entropy.py; TransformerEngine pytorch/triton.
    """
    if settings.tp == 1:
        return []
    one = tokens * FP32_BYTES
    if settings.cross_entropy_loss_fusion and settings.cross_entropy_impl == "te":
        forward_s = rates.all_gather_s(3 * one * settings.tp, settings.tp, 1)
    else:
        sizes = (one, 2 * one) if settings.cross_entropy_loss_fusion else (one, one, one)
        forward_s = sum(rates.all_reduce_s(size_bytes, settings.tp, 1) for size_bytes in sizes)
    return [communication("tp", forward_s, 0.0)]


def head_pieces(rates: Rates, arch: Architecture, settings: LayerSettings) -> tuple[Piece, ...]:
    """Final norm, output GEMM in bf16 over the padded vocabulary / TP, loss."""
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
        final_norm(rates, arch, settings),
        output,
        Piece(name="loss", forward_s=loss_s, backward_s=loss_s),
        *tensor_parallel(rates, arch, settings, (output,), quantized=False),
        *_loss_traffic(rates, settings, tokens),
    )


def prediction_projection(rates: Rates, arch: Architecture, settings: LayerSettings) -> tuple[Piece, ...]:
    """MTP: embedding of the shifted tokens, norms of both inputs, their concatenation and the projection 2h -> h / TP of one depth (its
    layer and head are priced as such).

    The projection gathers T 2h; its output is gathered over columns, T h, and under sequence parallelism each rank keeps its rows.
    Source: NVIDIA/Megatron-LM core/transformer/multi_token_prediction.py (`_get_embeddings`, `_concat_embeddings`).
    """
    tokens, hidden = settings.tokens(arch), arch.hidden_size
    projection = model_linear(rates, settings, "mtp_projection", tokens, hidden / settings.tp, 2.0 * hidden, gathered="input")
    width = settings.sharded_tokens(arch) * hidden
    norm = Piece(
        name="norm",
        forward_s=rates.pass_s(width * 2 * (NORM_FORWARD_BYTES + 2 * BF16_BYTES)),
        backward_s=rates.pass_s(width * 2 * NORM_BACKWARD_BYTES),
    )
    return (
        *embedding_pieces(rates, arch, settings),
        projection,
        norm,
        *tensor_parallel(rates, arch, settings, (projection,), width=2 * hidden),
        *columns_gathered(rates, arch, settings, hidden, "mtp_projection", sums=False),
        *shard_taken(rates, arch, settings, hidden),
    )
