"""Parameter counts against the published exact ones, and how they split over ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from architecture_cases import decoder

from primus_mcp.inputs.architecture import Architecture, LatentAttention, MixtureOfExperts
from primus_mcp.inputs.published import PublishedModel, published_models
from primus_mcp.projection.parameters import (
    active_parameters,
    embedding_parameters,
    final_norm_parameters,
    head_parameters,
    layer_parameters,
    mtp_parameters,
    total_parameters,
)

MODELS = published_models()
SPLITS = [(1, 1, 1), (2, 1, 1), (8, 1, 1), (1, 8, 1), (2, 4, 2)]


@pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
def test_every_catalogue_model_counts_exactly_what_was_published(model: PublishedModel) -> None:
    counted = total_parameters(model.architecture, include_mtp=model.published_includes_mtp)
    assert counted - model.published_parameters == model.count_difference
    assert bool(model.count_difference) == bool(model.count_difference_reason)
    assert model.sources["published_parameters"]
    assert model.sources["architecture"]


def test_deepseek_v3_without_mtp_is_the_bf16_checkpoint_less_the_router_bias() -> None:
    """microsoft/MAI-DS-R1 stores 671,026,419,200 BF16 elements; 58 layers x 256 experts of router bias are a buffer in Megatron."""
    assert total_parameters(MODELS["deepseek_v3"].architecture) == 671_026_419_200 - 58 * 256


@pytest.mark.parametrize(
    ("name", "billions"),
    [("deepseek_v3", 36.6), ("qwen3_235B_A22B", 21.6), ("gpt_oss_120B", 5.1), ("gpt_oss_20B", 3.6), ("deepseek_v2_lite", 2.4)],
)
def test_active_parameters_match_the_model_cards(name: str, billions: float) -> None:
    """DeepSeek-V3 README_WEIGHTS 36.7B with its router bias and MTP rounding; gpt-oss card 5.1B and 3.6B; DeepSeek-V2-Lite README 2.4B."""
    assert active_parameters(MODELS[name].architecture) / 1e9 == pytest.approx(billions, abs=0.06)


def test_a_dense_model_is_active_but_for_its_input_embedding() -> None:
    arch = MODELS["llama3.1_8B"].architecture
    assert active_parameters(arch) == total_parameters(arch) - 128_256 * 4096


@pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
@pytest.mark.parametrize(("tp", "ep", "etp"), SPLITS)
def test_ranks_together_hold_the_layer_once_and_replicas_besides(model: PublishedModel, tp: int, ep: int, etp: int) -> None:
    arch = model.architecture
    for moe in set(arch.moe_layers):
        whole, rank = layer_parameters(arch, moe, 1, 1, 1), layer_parameters(arch, moe, tp, ep, etp)
        assert rank.dense_sharded * tp == whole.dense_sharded
        assert rank.dense_replicated == whole.dense_replicated
        biases = arch.linear_bias and moe
        assert rank.expert * ep * etp == whole.expert or (biases and etp > 1)


def test_total_is_the_sum_of_its_parts() -> None:
    arch = replace(MODELS["deepseek_v3"].architecture, vocab_size=128 * 1000)
    layers = sum(layer_parameters(arch, moe, 1, 1, 1).total for moe in arch.moe_layers)
    ends = embedding_parameters(arch, 1).total + head_parameters(arch, 1).total + final_norm_parameters(arch).total
    assert total_parameters(arch, include_mtp=True) == layers + ends + mtp_parameters(arch, 1, 1, 1).total


def test_the_vocabulary_is_padded_to_128_a_rank() -> None:
    mock = replace(MODELS["llama3.1_8B"].architecture, vocab_size=131_073)
    assert [mock.padded_vocab_size(tp) for tp in (1, 2, 4, 8)] == [131_200, 131_328, 131_584, 132_096]
    assert embedding_parameters(mock, 8).dense_sharded == 132_096 // 8 * 4096


def tiny(**changes: Any) -> Architecture:
    return decoder(1, 8, 16, 4, 2, 128, 32, **changes)


def test_a_layer_by_hand() -> None:
    plain = layer_parameters(tiny(), False, 1, 1, 1)
    qkv, projection, mlp, norms = 8 * (8 + 2 * 4), 8 * 8, 3 * 8 * 16, 2 * 8
    assert (plain.dense_sharded, plain.dense_replicated, plain.expert) == (qkv + projection + mlp, norms, 0)


def test_biases_sinks_and_norms_by_hand() -> None:
    base = layer_parameters(tiny(), False, 1, 1, 1).total
    assert layer_parameters(tiny(qkv_bias=True), False, 1, 1, 1).total - base == 16
    assert layer_parameters(tiny(linear_bias=True), False, 1, 1, 1).total - base == 16 + 8 + 2 * 16 + 8
    assert layer_parameters(tiny(attention_sinks=True), False, 1, 1, 1).total - base == 4
    assert layer_parameters(tiny(qk_norm=True), False, 1, 1, 1).total - base == 2 * 2
    assert layer_parameters(tiny(normalization="LayerNorm"), False, 1, 1, 1).total - base == 2 * 8
    assert layer_parameters(tiny(gated_mlp=False), False, 1, 1, 1).total - base == -8 * 16
    learned = embedding_parameters(tiny(position_embedding="learned", max_position_embeddings=64), 1)
    assert learned.dense_replicated == 64 * 8


def test_experts_by_hand() -> None:
    experts = MixtureOfExperts(num_experts=4, top_k=2, expert_ffn_hidden_size=6, shared_expert_ffn_hidden_size=10)
    arch = tiny(experts=experts, moe_layers=(True,))
    layer = layer_parameters(arch, True, 1, 2, 1)
    attention = 8 * 16 + 8 * 8
    assert layer.dense_sharded == attention + 3 * 8 * 10
    assert layer.dense_replicated == 2 * 8 + 4 * 8
    assert layer.expert == 2 * 3 * 8 * 6


def test_latent_attention_keeps_its_down_projections_whole_on_every_rank() -> None:
    latent = LatentAttention(q_lora_rank=6, kv_lora_rank=4, qk_nope_head_dim=2, qk_rope_head_dim=1, v_head_dim=2)
    arch = tiny(latent_attention=latent, qk_norm=True)
    whole, half = layer_parameters(arch, False, 1, 1, 1), layer_parameters(arch, False, 2, 1, 1)
    down = 8 * 6 + 8 * (4 + 1) + 6 + 4
    assert whole.dense_replicated == half.dense_replicated == down + 2 * 8
    assert half.dense_sharded * 2 == whole.dense_sharded == 6 * 4 * 3 + 4 * 4 * 4 + 4 * 2 * 8 + 3 * 8 * 16


def test_fewer_query_groups_than_ranks_still_shard_the_fused_weight_evenly() -> None:
    """Megatron gathers the QKV output instead of replicating the weight (core/transformer/attention.py:292-317)."""
    assert layer_parameters(tiny(), False, 4, 1, 1).dense_sharded * 4 == layer_parameters(tiny(), False, 1, 1, 1).dense_sharded


def test_tied_embeddings_are_counted_once() -> None:
    assert total_parameters(tiny()) - total_parameters(tiny(tied_embeddings=True)) == 128 * 8
