"""The ends of the model: embedding, multi-token-prediction inputs, final norm, output matrix and loss.

L = tokens * V' / TP in BF16 is one logits tensor. TE's fused cross entropy writes the gradient over the logits (saved L); unfused
Megatron cross entropy and its compiled native variant keep an fp32 softmax (saved 2L, peak 3L both ways). Source: B200 runs
within 0.05%; MI355X DeepSeek-V2-Lite loss fusion saved 20.0 GB, counted here 18.8.
"""

from __future__ import annotations

from primus_mcp.inputs.constants import MEMORY
from primus_mcp.projection.memory.activations.operation import Operation, kept
from primus_mcp.projection.memory.activations.settings import ActivationSettings
from primus_mcp.units import BF16_BYTES, INT64_BYTES


def embedding_operations(settings: ActivationSettings) -> tuple[Operation, ...]:
    """Token ids; the backward pass builds a whole BF16 gradient of the embedding before it is added to main_grad."""
    arch = settings.arch
    mask = settings.local_tokens * arch.hidden_size if arch.hidden_dropout else 0.0
    return (
        Operation(
            name="embedding",
            group="embedding",
            saved=kept(settings.tokens * INT64_BYTES, mask),
            forward_transient_bytes=2 * settings.full_hidden_bytes + _gathered_matrix_bytes(settings),
            backward_transient_bytes=2 * settings.hidden_bytes + _gradient_bytes(settings) + _gathered_matrix_bytes(settings),
        ),
    )


def mtp_input_operations(settings: ActivationSettings) -> tuple[Operation, ...]:
    """One multi-token-prediction depth before its layer: two norms and the 2h -> h projection of their concatenation."""
    hidden = settings.hidden_bytes
    wgrad = settings.wgrad_bytes(settings.arch.hidden_size / settings.tp, 2 * settings.arch.hidden_size)
    return (
        Operation(
            name="mtp_projection",
            group="head",
            saved=kept(4 * hidden),
            forward_transient_bytes=hidden,
            backward_transient_bytes=3 * hidden + wgrad,
            pinned_bytes=3 * hidden,
        ),
    )


def head_operations(settings: ActivationSettings, *, prefix: str = "") -> tuple[Operation, ...]:
    """Final norm, output matrix and loss; MTP depths have their own pass through the same matrix. A frozen matrix keeps no input."""
    hidden, full = settings.hidden_bytes, settings.full_hidden_bytes
    logits = settings.tokens * settings.arch.padded_vocab_size(settings.tp) / settings.tp * BF16_BYTES
    per_token = settings.tokens * MEMORY["loss_bytes_per_token"].value
    saved_logits, extra = _loss_bytes(settings, logits)
    scattered = hidden if settings.shards_sequence else 0.0
    # a root group of FSDP2 keeps this gradient to the end of the backward pass, so it is counted with the unsharded parameters
    gradient = 0.0 if settings.use_torch_fsdp2 and not settings.gathers_ends else _gradient_bytes(settings)
    matrix = _gathered_matrix_bytes(settings)
    norm = Operation(
        name=f"{prefix}final_norm",
        group="head",
        saved=kept(hidden, settings.norm_statistics_bytes),
        forward_transient_bytes=hidden,
        backward_transient_bytes=2 * hidden,
    )
    output = Operation(
        name=f"{prefix}output_and_loss",
        group="head",
        saved=kept(hidden if settings.trains_weights else 0.0, saved_logits),
        forward_transient_bytes=extra + per_token + matrix,
        backward_transient_bytes=full + scattered + extra + gradient + matrix,
        pinned_bytes=hidden + logits,
    )
    return norm, output


def _loss_bytes(settings: ActivationSettings, logits: float) -> tuple[float, float]:
    """(saved, alive beside them while the loss runs). torch.compile saves the BF16 logits and writes their gradient beside them."""
    fused = settings.cross_entropy_impl if settings.cross_entropy_loss_fusion else "native"
    return {"te": (logits, 0.0), "compiled": (logits, logits), "native": (2 * logits, logits)}[fused]


def _matrix_bytes(settings: ActivationSettings) -> float:
    return settings.arch.padded_vocab_size(settings.tp) / settings.tp * settings.arch.hidden_size * BF16_BYTES


def _gradient_bytes(settings: ActivationSettings) -> float:
    """A BF16 gradient (or its placeholder under fused accumulation) of the embedding or output matrix; none where they are frozen."""
    return _matrix_bytes(settings) if settings.trains_weights else 0.0


def _gathered_matrix_bytes(settings: ActivationSettings) -> float:
    """The embedding or output matrix where FSDP2 gathers it for its own operation alone."""
    return _matrix_bytes(settings) if settings.gathers_ends else 0.0
