"""What a rank of tensor parallelism does for its shard of the sequence and what for all tokens, in rows and bytes counted by hand.

Megatron-Core 0.16 (multi_token_prediction.py, shared_experts.py, cross_entropy.py, finalize_model_grads.py, moe/token_dispatcher.py).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from architecture_cases import decoder
from counting_rates import CountingRates, counting_rates

from primus_mcp.inputs.architecture import Architecture, LatentAttention, MixtureOfExperts
from primus_mcp.inputs.training import Recompute, TrainingConfig
from primus_mcp.projection.layers.build import decoder_layer, embedding, head
from primus_mcp.projection.layers.dense_mlp import dense_mlp_pieces
from primus_mcp.projection.layers.head import prediction_projection
from primus_mcp.projection.layers.linear import model_linear
from primus_mcp.projection.layers.moe_exchange import expert_tensor_parallel, permute_piece, router_piece
from primus_mcp.projection.layers.moe_mlp import expert_rows, moe_pieces
from primus_mcp.projection.layers.recompute import replay_s, replayed_modules
from primus_mcp.projection.layers.record import Piece
from primus_mcp.projection.layers.settings import LayerSettings, layer_settings

TOKENS, HIDDEN, TP = 4096, 4096, 8
TENSOR = TOKENS * HIDDEN * 2
EXPERTS = MixtureOfExperts(num_experts=64, top_k=6, expert_ffn_hidden_size=1408, shared_expert_ffn_hidden_size=2816)
MODEL = decoder(
    layers=4,
    hidden=HIDDEN,
    ffn=14336,
    heads=32,
    groups=8,
    vocab=128000,
    seq=TOKENS,
    name="shards",
    moe_layers=(False, True, True, True),
    experts=EXPERTS,
)
LATENT = LatentAttention(q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)


def _settings(**config: Any) -> LayerSettings:
    return layer_settings(TrainingConfig(**{"tp": TP, "sequence_parallel": True, **config}))


def _tp(pieces: tuple[Piece, ...]) -> tuple[float, float]:
    chosen = [p for p in pieces if p.collective == "tp"]
    return sum(p.forward_total_s for p in chosen), sum(p.backward_total_s for p in chosen)


def test_a_prediction_depth_embeds_again_gathers_both_inputs_and_then_its_projected_columns() -> None:
    embedded, both, columns = TENSOR, 2 * TENSOR, TENSOR
    forward, backward = _tp(prediction_projection(counting_rates(), MODEL, _settings()))
    assert forward == embedded + both + columns
    assert backward == embedded + 2 * both + columns, "scattered, and gathered again for the weight; the columns' gradient by rows"
    rates = counting_rates()
    prediction_projection(rates, MODEL, _settings(sequence_parallel=False))
    expected = [("all_reduce", TENSOR), ("all_reduce", 2 * TENSOR), ("all_gather", TENSOR)]
    assert Counter(rates.transfers) == Counter(expected)
    assert (TOKENS, HIDDEN / TP, 2 * HIDDEN) in rates.products


def test_an_embedding_scatters_its_partial_rows_and_gathers_their_gradients() -> None:
    assert _tp(embedding(counting_rates(), MODEL, _settings()).pieces) == (TENSOR, TENSOR)


@pytest.mark.parametrize(
    ("fused", "kind", "transfers"),
    [
        (False, "te", [("all_reduce", 4 * TOKENS)] * 3),
        (True, "native", [("all_reduce", 4 * TOKENS), ("all_reduce", 2 * 4 * TOKENS)]),
        (True, "te", [("all_gather", TP * 3 * 4 * TOKENS)]),
    ],
)
def test_the_loss_over_a_split_vocabulary_exchanges_fp32_figures_of_each_token(
    fused: bool, kind: Any, transfers: list[tuple[str, float]]
) -> None:
    rates = counting_rates()
    head(rates, MODEL, _settings(cross_entropy_loss_fusion=fused, cross_entropy_impl=kind))
    hidden = [("all_gather", TENSOR), ("reduce_scatter", TENSOR)]
    assert Counter(rates.transfers) == Counter([*hidden, *transfers])


def test_gradients_of_what_every_rank_holds_whole_are_summed_over_tp_once_an_iteration() -> None:
    whole = 2 * HIDDEN + EXPERTS.num_experts * HIDDEN  # two norms, the router

    def once(arch: Architecture, **config: Any) -> tuple[float, CountingRates]:
        rates = counting_rates()
        return decoder_layer(rates, arch, _settings(main_grad_bytes=4, **config), moe=True, windowed=False).once_s, rates

    seconds, rates = once(MODEL)
    assert ("all_reduce", 4 * 4 * whole) in rates.transfers, "fp32, four layers in one collective"
    assert seconds == 4 * whole + 4 * 4 * whole, "a layer's share, and four passes: flattened and copied back"
    down = HIDDEN * (1536 + 512 + 64) + 1536 + 512
    latent = replace(MODEL, latent_attention=LATENT, qk_norm=True)
    assert once(latent)[0] == 5 * 4 * (whole + down)
    for config in ({"sequence_parallel": False}, {"tp": 1, "sequence_parallel": False}, {"finetune": "lora", "lora_rank": 16}):
        assert once(MODEL, **config)[0] == 0


@pytest.mark.parametrize(("modules", "moe"), [(("mlp",), False), (("shared_experts",), True), (("moe",), True)])
def test_a_recomputed_mlp_gathers_and_scatters_again(modules: tuple[str, ...], moe: bool) -> None:
    part = decoder_layer(counting_rates(), MODEL, _settings(), moe=moe, windowed=False)
    quiet = decoder_layer(counting_rates(), MODEL, _settings(tp=1, sequence_parallel=False), moe=moe, windowed=False)
    chosen = replayed_modules(Recompute(granularity="selective", modules=modules))
    assert sum(p.forward_s for p in part.pieces if p.collective == "tp" and p.module in chosen) == 2 * TENSOR
    assert replay_s(part, chosen) < replay_s(quiet, chosen) + 2 * TENSOR
    assert sum(p.forward_s for p in part.pieces if p.collective == "tp" and p.module is None) == 2 * TENSOR, "of attention"


def test_a_shared_expert_that_overlaps_the_exchange_keeps_what_it_gathered() -> None:
    def traffic(**config: Any) -> tuple[float, float]:
        return _tp(moe_pieces(counting_rates(), MODEL, EXPERTS, _settings(ep=8, **config)))

    assert traffic() == (2 * TENSOR, 3 * TENSOR)
    assert traffic(shared_expert_overlap=True) == (2 * TENSOR, 2 * TENSOR)
    assert traffic(shared_expert_overlap=True, fp8="hybrid") == (2 * TENSOR, 2 * TENSOR), "gathered before it is cast"
    assert traffic(fp8="hybrid", fp8_recipe="delayed") == (1.5 * TENSOR, 2 * TENSOR)


def test_router_and_experts_see_a_shard_and_expert_tensor_parallelism_gathers_what_a_rank_received() -> None:
    rates = counting_rates()
    router_piece(rates, MODEL, EXPERTS, _settings())
    assert rates.products == [(TOKENS / TP, 64, HIDDEN)]
    assert expert_rows(MODEL, EXPERTS, _settings(ep=8)) == TOKENS / TP * 6
    assert expert_rows(MODEL, EXPERTS, _settings(ep=8, etp=TP)) == TOKENS * 6
    assert expert_tensor_parallel(counting_rates(), MODEL, EXPERTS, _settings(ep=8)) == []
    (piece,) = expert_tensor_parallel(counting_rates(), MODEL, EXPERTS, _settings(ep=8, etp=TP))
    assert (piece.forward_s, piece.backward_s) == (2 * 6 * TENSOR, 2 * 6 * TENSOR), "gathered and scattered, each way"


@pytest.mark.parametrize(
    ("recipe", "shard_bytes", "whole_bytes"),
    [("delayed", 3, 2), ("tensorwise", 5, 2), ("mxfp8", 4, 0), ("blockwise", 4, 0)],
)
def test_sequence_shards_are_cast_before_they_are_gathered(recipe: Any, shard_bytes: float, whole_bytes: float) -> None:
    """One scale a tensor: its transpose (a read and a write of a byte) is made of what was gathered; 4 (6) B in all without a gather."""
    inputs, outputs = 8192, 1024
    settings = _settings(fp8="hybrid", fp8_recipe=recipe)
    every, cast = TOKENS, shard_bytes * TOKENS / TP + whole_bytes * TOKENS
    both = settings.linear_cast_bytes

    def casts(gathered: Any) -> list[float]:
        rates = counting_rates()
        model_linear(rates, settings, "one", TOKENS, outputs, inputs, gathered=gathered)
        return rates.passed[:2]

    assert casts(None) == [every * inputs * both, every * outputs * both]
    assert casts("input") == pytest.approx([cast * inputs, every * outputs * both])
    assert casts("gradient") == pytest.approx([every * inputs * both, cast * outputs])


def test_a_dense_mlp_gathers_in_fp8_and_scatters_in_bf16() -> None:
    pieces = dense_mlp_pieces(counting_rates(), MODEL, _settings(fp8="hybrid", fp8_recipe="delayed"))
    assert _tp(pieces) == (1.5 * TENSOR, 2 * TENSOR)


@pytest.mark.parametrize(("ep", "etp"), [(8, 1), (4, 2), (1, 8)])
def test_the_all_gather_dispatcher_moves_every_token_to_every_rank_whatever_their_routing(ep: int, etp: int) -> None:
    ranks, shard = ep * etp, TOKENS / TP
    hidden, chosen = 2 * ranks * shard * HIDDEN, ranks * shard * 64
    rates = counting_rates()
    pieces = moe_pieces(rates, MODEL, EXPERTS, _settings(ep=ep, etp=etp, dispatcher="allgather"))
    exchange = next(p for p in pieces if p.name == "a2a")
    assert exchange.forward_s == 2 * hidden + 3 * chosen, "gathered with routing map and probabilities, outputs scattered"
    assert exchange.backward_s == 2 * hidden + 2 * chosen
    assert _tp(pieces) == (2 * TENSOR, 3 * TENSOR), "of the shared expert alone: ETP gathers nothing more"


def test_gathered_tokens_are_sorted_once_out_of_those_of_all_ranks() -> None:
    def passed(dispatcher: Any) -> float:
        rates = counting_rates()
        settings = _settings(ep=8, dispatcher=dispatcher, permute_fusion=True)
        return permute_piece(rates, MODEL, EXPERTS, settings).forward_s * rates.cluster.profile.figures["permute_efficiency"]

    elements = TOKENS / TP * HIDDEN
    assert passed("alltoall") == pytest.approx(elements * (12 * 6 + 4))
    assert passed("allgather") == pytest.approx(elements * (4 * 6 + 4 * 8))


@pytest.mark.parametrize(("latent", "moe", "norms"), [(None, False, 0), (None, True, 1), (LATENT, False, 1), (LATENT, True, 2)])
def test_recomputing_norms_runs_those_again_that_are_modules_of_their_own_and_no_residual_addition(
    latent: LatentAttention | None, moe: bool, norms: int
) -> None:
    arch = replace(MODEL, latent_attention=latent)
    part = decoder_layer(counting_rates(), arch, _settings(), moe=moe, windowed=False)
    chosen = replayed_modules(Recompute(granularity="selective", modules=("layernorm",)))
    assert replay_s(part, chosen) == norms * TOKENS / TP * HIDDEN * 2 * 2, "read and written"
    every = [p.forward_s for p in part.pieces if p.name == "norm" and p.module in (None, "layernorm")]
    assert sum(every) == TOKENS / TP * HIDDEN * 20


def test_the_norm_before_the_output_matrix_sees_a_shard() -> None:
    norm = next(p for p in head(counting_rates(), MODEL, _settings()).pieces if p.name == "norm")
    assert (norm.forward_s, norm.backward_s) == (TOKENS / TP * HIDDEN * 4, TOKENS / TP * HIDDEN * 6)
