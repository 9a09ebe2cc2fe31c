"""Model FLOPs: what the mathematics needs, independent of how it is run."""

from __future__ import annotations

from functools import lru_cache

from primus_mcp.inputs.architecture import ATTENDING, FEEDING_FORWARD, MIXING, Architecture
from primus_mcp.projection.mixers import core_flops, mixer_weights
from primus_mcp.projection.ops.attention import attended_pairs

BACKWARD_AND_FORWARD = 3
FLOPS_PER_MULTIPLY_ADD = 2


def _attention_weights(arch: Architecture) -> int:
    heads, hidden, mla = arch.num_attention_heads, arch.hidden_size, arch.latent_attention
    if mla is None:
        return hidden * ((3 if arch.attention_output_gate else 2) * heads + 2 * arch.num_query_groups) * arch.head_dim
    query = heads * mla.qk_head_dim
    queries = hidden * query if mla.q_lora_rank is None else mla.q_lora_rank * (hidden + query)
    keys = hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim) + mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    return queries + keys + heads * mla.v_head_dim * hidden


def _mlp_weights(arch: Architecture, width: int) -> int:
    return (3 if arch.gated_mlp else 2) * arch.hidden_size * width


def _expert_weights(arch: Architecture) -> int:
    assert arch.experts is not None
    active = arch.experts.top_k * arch.experts.expert_ffn_hidden_size + arch.experts.shared_expert_ffn_hidden_size
    return _mlp_weights(arch, active) + arch.hidden_size * arch.experts.num_experts


@lru_cache(maxsize=1024)
def attention_core_flops(arch: Architecture, windowed: bool) -> float:
    """Forward FLOPs of scores and values of one sequence and layer, causal pairs only: 2 pairs a (d_qk + d_v)."""
    mla = arch.latent_attention
    dims = 2 * arch.head_dim if mla is None else mla.qk_head_dim + mla.v_head_dim
    pairs = attended_pairs(arch.seq_length, arch.sliding_window if windowed else None)
    return FLOPS_PER_MULTIPLY_ADD * pairs * arch.num_attention_heads * dims


def expert_gemm_flops(arch: Architecture) -> float:
    """Forward FLOPs a token of routed experts in all MoE layers."""
    if arch.experts is None:
        return 0.0
    per_layer = _mlp_weights(arch, arch.experts.top_k * arch.experts.expert_ffn_hidden_size)
    return float(FLOPS_PER_MULTIPLY_ADD * per_layer * (sum(arch.moe_layers) + arch.mtp_num_layers * arch.moe_layers[-1]))


@lru_cache(maxsize=1024)
def model_flops_per_sequence(arch: Architecture, tp: int, *, trains_weights: bool = True) -> float:
    """FLOPs of one sequence: 3 x (2 x active matrix elements x tokens + causal attention), without recompute.

    Counts every matrix a token multiplies (top-k experts, shared experts, router, output matrix over the padded vocabulary, MTP depths
    with their heads), attention over the causal half (window where there is one); norms and activations are not counted. A frozen base
    (LoRA) has no weight gradients: 2 x matrices instead of 3 x.
    """
    windowed = arch.layer_windows
    attention, head = _attention_weights(arch), arch.padded_vocab_size(tp) * arch.hidden_size
    weights, cores = head, 0.0
    for layer, narrow in enumerate(windowed):
        moe, kind = arch.layer_shape(layer)
        if kind in ATTENDING:
            weights += attention
            cores += attention_core_flops(arch, narrow)
        elif kind in MIXING:
            weights += mixer_weights(arch)
            cores += core_flops(arch) * arch.seq_length
        if kind in FEEDING_FORWARD:
            weights += _expert_weights(arch) if moe else _mlp_weights(arch, arch.ffn_hidden_size)
    depth = attention + (_expert_weights(arch) if arch.moe_layers[-1] else _mlp_weights(arch, arch.ffn_hidden_size))
    weights += arch.mtp_num_layers * (depth + head + 2 * arch.hidden_size**2)
    cores += arch.mtp_num_layers * attention_core_flops(arch, windowed[-1])
    matrices = FLOPS_PER_MULTIPLY_ADD * weights * arch.seq_length
    return matrices * (BACKWARD_AND_FORWARD if trains_weights else BACKWARD_AND_FORWARD - 1) + BACKWARD_AND_FORWARD * cores
