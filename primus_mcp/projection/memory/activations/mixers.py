"""What runs instead of attention in a hybrid layer, operation by operation: norm, linear in, mixer, linear out.

Source of what is saved: the kernels' autograd functions (fla-org/flash-linear-attention gated_delta_rule, state-spaces/mamba
mamba_split_conv1d_scan_combined, which keeps the projection and its output and computes the rest again) and eager PyTorch for the short
convolution. Known error: estimated; one published figure (1B delta-net stack on MI355X) is checked in the tests.
"""

from __future__ import annotations

from primus_mcp.projection.memory.activations.operation import Operation, kept
from primus_mcp.projection.memory.activations.settings import ActivationSettings
from primus_mcp.projection.mixers import core_elements, entry_width, exit_width, state_elements
from primus_mcp.units import BF16_BYTES


def mixer_operations(settings: ActivationSettings) -> tuple[Operation, ...]:
    """The mixer half of a layer, from its norm to the residual addition."""
    arch, hidden, tokens = settings.arch, settings.hidden_bytes, settings.tokens
    entry, exit_ = entry_width(arch) / settings.tp, exit_width(arch) / settings.tp
    projected, output = tokens * entry * BF16_BYTES, tokens * exit_ * BF16_BYTES
    inside = tokens * core_elements(arch) / settings.tp * BF16_BYTES
    states = tokens * state_elements(arch) / settings.tp * BF16_BYTES
    normed = settings.local_tokens * arch.hidden_size * settings.kept_input_bytes("in_proj", normed=True)
    own_copy = tokens * exit_ * settings.own_input_bytes("out_proj")
    full = settings.full_hidden_bytes
    return (
        Operation(
            name="mixer_norm",
            group="attention",
            saved=kept(hidden, settings.norm_statistics_bytes),
            forward_transient_bytes=hidden,
            backward_transient_bytes=3 * hidden,
        ),
        Operation(
            name="mixer_entry",
            group="attention",
            saved=kept(normed),
            forward_transient_bytes=settings.gathered_bytes + projected,
            backward_transient_bytes=settings.gathered_bytes + projected + full + hidden + settings.wgrad_bytes(entry, arch.hidden_size),
            pinned_bytes=normed + projected,
        ),
        Operation(
            name="mixer",
            group="attention",
            saved=kept(inside),
            forward_transient_bytes=states + output,
            backward_transient_bytes=2 * states + inside + hidden,
        ),
        Operation(
            name="mixer_exit",
            group="attention",
            saved=kept(output, own_copy),
            forward_transient_bytes=full,
            backward_transient_bytes=settings.gathered_bytes + full + output + hidden + settings.wgrad_bytes(arch.hidden_size, exit_),
            pinned_bytes=(own_copy or output) + full,
        ),
    )
