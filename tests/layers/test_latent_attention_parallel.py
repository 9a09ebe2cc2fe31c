"""Latent attention under tensor parallelism, in rows and bytes counted by hand from Megatron-Core 0.14 to 0.16 and TransformerEngine."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from architecture_cases import decoder
from counting_rates import CountingRates, counting_rates

from primus_mcp.inputs.architecture import LatentAttention
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.layers.latent import latent_projections
from primus_mcp.projection.layers.record import Piece
from primus_mcp.projection.layers.settings import layer_settings

TOKENS, HIDDEN, HEADS, TP = 4096, 7168, 128, 8
RANK_Q, RANK_KV, PLAIN, TURNED, VALUE = 1536, 512, 128, 64, 128
MLA = LatentAttention(q_lora_rank=RANK_Q, kv_lora_rank=RANK_KV, qk_nope_head_dim=PLAIN, qk_rope_head_dim=TURNED, v_head_dim=VALUE)
DEEPSEEK = replace(
    decoder(layers=2, hidden=HIDDEN, ffn=18432, heads=HEADS, groups=HEADS, vocab=129280, seq=TOKENS, name="latent", qk_norm=True),
    latent_attention=MLA,
)


def _pieces(mla: LatentAttention = MLA, **config: Any) -> tuple[list[Piece], CountingRates]:
    rates = counting_rates()
    settings = layer_settings(TrainingConfig(**{"tp": TP, "sequence_parallel": True, **config}))
    return latent_projections(rates, DEEPSEEK, mla, settings), rates


def _traffic(pieces: list[Piece]) -> tuple[float, float]:
    chosen = [p for p in pieces if p.collective == "tp"]
    return sum(p.forward_total_s for p in chosen), sum(p.backward_total_s for p in chosen)


def test_down_projections_run_on_the_shard_of_a_rank_and_up_projections_on_all_tokens() -> None:
    _, rates = _pieces()
    shard, heads = TOKENS / TP, HEADS / TP
    forward = [
        (shard, RANK_KV + TURNED, HIDDEN),
        (shard, RANK_Q, HIDDEN),
        (TOKENS, heads * (PLAIN + VALUE), RANK_KV),
        (TOKENS, heads * (PLAIN + TURNED), RANK_Q),
        (TOKENS, HIDDEN, heads * VALUE),
    ]
    assert all(shape in rates.products for shape in forward)
    assert len(rates.products) == 3 * len(forward)
    whole = _pieces(sequence_parallel=False)[1].products
    assert (TOKENS, RANK_Q, HIDDEN) in whole
    assert (TOKENS, RANK_KV + TURNED, HIDDEN) in whole


def test_latents_are_gathered_in_place_of_the_hidden_state_which_only_the_output_scatters() -> None:
    pieces, _ = _pieces()
    latents, hidden, key = 2 * TOKENS * (RANK_Q + RANK_KV), 2 * TOKENS * HIDDEN, 2 * TOKENS * TURNED
    forward, backward = _traffic(pieces)
    assert forward == latents + key + hidden
    assert backward == 2 * latents + key + hidden, "latents gathered again for weight gradients, and their gradients scattered"


def test_without_a_query_latent_the_hidden_state_is_gathered_for_queries() -> None:
    pieces, rates = _pieces(replace(MLA, q_lora_rank=None))
    assert (TOKENS, HEADS / TP * (PLAIN + TURNED), HIDDEN) in rates.products
    assert _traffic(pieces)[0] == 2 * TOKENS * (RANK_KV + TURNED + 2 * HIDDEN)


def test_without_sequence_parallelism_the_gradients_of_latents_are_all_reduced() -> None:
    _, rates = _pieces(sequence_parallel=False)
    assert Counter(rates.transfers) == Counter([("all_reduce", 2 * TOKENS * width) for width in (RANK_Q, RANK_KV, HIDDEN)])


def test_recomputing_up_projections_gathers_their_latents_again_but_not_the_rotary_key() -> None:
    pieces, _ = _pieces()
    replayed = [p for p in pieces if p.module == "mla_up_proj"]
    assert sum(p.forward_total_s for p in replayed) == 2 * TOKENS * (RANK_Q + RANK_KV)
    flops = sum(p.forward_s for p in replayed if p.name == "attention_linear")
    assert flops == 2 * TOKENS * HEADS / TP * ((PLAIN + VALUE) * RANK_KV + (PLAIN + TURNED) * RANK_Q)


def test_latent_norms_see_a_shard_and_the_rotation_the_heads_of_a_rank() -> None:
    norms = {tp: next(p for p in _pieces(tp=tp)[0] if p.name == "norm").forward_s for tp in (1, TP)}
    assert norms[1] == pytest.approx(TP * norms[TP])
    fused, apart = (next(p for p in _pieces(fused_rope=fused)[0] if p.name == "rope") for fused in (True, False))
    reads, writes = PLAIN + VALUE + TURNED, (PLAIN + TURNED) + VALUE + TURNED  # of Q its rotary columns alone, in place
    assert fused.forward_s == fused.backward_s == TOKENS * HEADS / TP * 2 * (reads + writes)
    joins = 2 * (PLAIN + TURNED) + (PLAIN + PLAIN + TURNED) + 2 * VALUE
    turned = TURNED * (HEADS / TP + 1)  # one key for all heads
    assert apart.forward_s == TOKENS * (HEADS / TP * 2 * joins + (24 + 4) * turned)
    assert apart.backward_s == TOKENS * (HEADS / TP * 2 * joins + (28 + 14) * turned), "even and odd columns: 2 (2 + 2) and 6"


def test_one_rank_gathers_nothing() -> None:
    assert _pieces(tp=1, sequence_parallel=False)[1].transfers == []
