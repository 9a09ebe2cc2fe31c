"""Balanced pipeline layouts for depths that do not divide the layers: stages that carry the embedding or the loss get fewer layers."""

from __future__ import annotations

from functools import lru_cache

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.layout import layout_text


def _attention_parameters(arch: Architecture) -> float:
    if arch.latent_attention is not None:
        mla = arch.latent_attention
        query = arch.num_attention_heads * mla.qk_head_dim
        down = arch.hidden_size * ((mla.q_lora_rank or 0) + mla.kv_lora_rank + mla.qk_rope_head_dim)
        up = query * (mla.q_lora_rank or arch.hidden_size) + mla.kv_lora_rank * arch.num_attention_heads * (
            mla.qk_nope_head_dim + mla.v_head_dim
        )
        return down + up + arch.num_attention_heads * mla.v_head_dim * arch.hidden_size
    return 2 * arch.hidden_size * arch.head_dim * (arch.num_attention_heads + arch.num_query_groups)


def loss_layer_equivalents(arch: Architecture) -> float:
    """Work of the output layer in decoder layers: V h over the active matrix parameters of the last decoder layer.

    GEMM FLOPs are proportional to active parameters; attention scores are left out, so the loss is overstated at long sequences.
    """
    matrices = 3 if arch.gated_mlp else 2
    width = arch.ffn_hidden_size
    if arch.experts is not None and arch.moe_layers and arch.moe_layers[-1]:
        width = arch.experts.top_k * arch.experts.expert_ffn_hidden_size + arch.experts.shared_expert_ffn_hidden_size
    layer = _attention_parameters(arch) + matrices * arch.hidden_size * width
    return arch.padded_vocab_size(1) * arch.hidden_size / layer


def _rank(chunk: int, pp: int, v_order: bool) -> int:
    return pp - 1 - chunk % pp if v_order and (chunk // pp) % 2 else chunk % pp


@lru_cache(maxsize=4096)
def balanced_chunks(arch: Architecture, pp: int, vpp: int, *, v_order: bool = False) -> tuple[int, ...]:
    """Decoder layers of each of the PP x VPP stages, in model order; every stage gets at least one (needs PP x VPP <= layers).

    Each layer left after the first one a stage goes to the rank with the least work (its layers, plus its MTP layers and the loss in layer
    equivalents); among equals to its stage with the least work, then away from the embedding, then to the later rank, which holds
    fewer activations in flight.
    """
    stages = pp * vpp
    if not 1 <= stages <= arch.num_layers:
        raise AssertionError(f"PP {pp} x VPP {vpp} stages for {arch.num_layers} layers")
    counts = [1] * stages
    owner = [_rank(chunk, pp, v_order) for chunk in range(stages)]
    tail = loss_layer_equivalents(arch) + arch.mtp_num_layers
    work = [1.0] * (stages - 1) + [1.0 + tail]
    load = [float(vpp)] * pp
    load[owner[-1]] += tail
    for _ in range(arch.num_layers - stages):
        chunk = min(range(stages), key=lambda i: (load[owner[i]], work[i], i == 0, -owner[i], -i))
        counts[chunk] += 1
        work[chunk] += 1
        load[owner[chunk]] += 1
    return tuple(counts)


def balanced_layout(arch: Architecture, pp: int, vpp: int, *, v_order: bool = False) -> str:
    """The layout string of `balanced_chunks`, with MTP layers and the loss on the last stage."""
    return layout_text(balanced_chunks(arch, pp, vpp, v_order=v_order), arch.mtp_num_layers)
