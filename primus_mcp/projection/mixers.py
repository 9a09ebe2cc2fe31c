"""Widths and FLOPs of what hybrid models run instead of attention. Per token, over all TP ranks.

A delta net works on chunks of C = 64 tokens: inside a chunk products of C x C, between chunks a state of d_k x d_v a head
(fla-org/flash-linear-attention ops/gated_delta_rule); Mamba-2 on chunks of 256 (state-spaces/mamba ops/triton/ssd_combined).
Known error: FLOPs of the chunk inverse are left out (C^2 of C d).
"""

from __future__ import annotations

from primus_mcp.inputs.architecture import Architecture, GatedDeltaNet, Mamba2, ShortConvolution

DELTA_CHUNK = 64
MAMBA_CHUNK = 256
_MULTIPLY_ADD = 2


def entry_width(arch: Architecture) -> int:
    """Outputs of the linear before the mixer."""
    mixer = arch.mixer
    if isinstance(mixer, ShortConvolution):
        return 3 * arch.hidden_size
    if isinstance(mixer, GatedDeltaNet):
        return 2 * mixer.key_width + 2 * mixer.value_width + 2 * mixer.value_heads
    assert isinstance(mixer, Mamba2)
    return 2 * mixer.inner_width + 2 * mixer.state_width + mixer.heads


def exit_width(arch: Architecture) -> int:
    """Inputs of the linear after the mixer."""
    mixer = arch.mixer
    if isinstance(mixer, ShortConvolution):
        return arch.hidden_size
    return mixer.value_width if isinstance(mixer, GatedDeltaNet) else _inner(mixer)


def _inner(mixer: object) -> int:
    assert isinstance(mixer, Mamba2)
    return mixer.inner_width


def mixer_weights(arch: Architecture) -> int:
    """Elements of both linears: what a token multiplies."""
    return arch.hidden_size * (entry_width(arch) + exit_width(arch))


def core_flops(arch: Architecture) -> float:
    """Forward FLOPs a token of the mixer itself.

    Delta net: C (3 d_k + 2 d_v) inside the chunk and 3 d_k d_v with the state, a value head; Mamba-2: C (N + P) inside and 2 N P with
    the state, a head, of which causality leaves half of the inside; short convolution: its taps.
    """
    mixer = arch.mixer
    if isinstance(mixer, ShortConvolution):
        return _MULTIPLY_ADD * mixer.kernel * arch.hidden_size
    if isinstance(mixer, GatedDeltaNet):
        key, value = mixer.key_head_dim, mixer.value_head_dim
        return _MULTIPLY_ADD * mixer.value_heads * (DELTA_CHUNK * (3 * key + 2 * value) + 3 * key * value)
    assert isinstance(mixer, Mamba2)
    state, head = mixer.state_dim, mixer.head_dim
    return _MULTIPLY_ADD * mixer.heads * (MAMBA_CHUNK / 2 * (state + head) + 2 * state * head)


def core_elements(arch: Architecture) -> float:
    """BF16 elements a token that the mixer's kernels read and write once: its inputs, what lies between kernels, its output."""
    mixer = arch.mixer
    if isinstance(mixer, ShortConvolution):
        return 5 * arch.hidden_size
    if isinstance(mixer, GatedDeltaNet):
        spread = 2 * mixer.value_heads * mixer.key_head_dim
        return 2 * mixer.key_width + mixer.value_width + spread + 3 * mixer.value_width + mixer.value_heads * DELTA_CHUNK
    assert isinstance(mixer, Mamba2)
    return 3 * mixer.inner_width + 2 * mixer.state_width + mixer.heads


def state_elements(arch: Architecture) -> float:
    """Elements a token of the states between chunks, which exist only while a kernel runs."""
    mixer = arch.mixer
    if isinstance(mixer, GatedDeltaNet):
        return mixer.value_heads * mixer.key_head_dim * mixer.value_head_dim / DELTA_CHUNK
    if isinstance(mixer, Mamba2):
        return mixer.heads * mixer.head_dim * mixer.state_dim / MAMBA_CHUNK
    return 0.0
