"""Biases, unfused rotary embeddings and casts of FP8 attention: what they move, counted by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from architecture_cases import decoder

from primus_mcp.inputs.architecture import Architecture, LatentAttention, MixtureOfExperts
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.layers.build import decoder_layer
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import PartCost
from primus_mcp.projection.layers.settings import layer_settings
from primus_mcp.projection.ops.gemm import RooflineGemm

TOKENS, HEADS, GROUPS, WIDTH = 4096, 32, 8, 128
EXPERTS = MixtureOfExperts(num_experts=64, top_k=4, expert_ffn_hidden_size=2880)
PLAIN = decoder(layers=1, hidden=2880, ffn=2880, heads=HEADS, groups=GROUPS, vocab=1000, seq=TOKENS, moe_layers=(True,), experts=EXPERTS)
BIASED = replace(PLAIN, head_dim=WIDTH, linear_bias=True)
CLUSTER = make_cluster("b200", memory_safety_margin=0.0)
RATES = Rates(CLUSTER, RooflineGemm(CLUSTER))


def _layer(arch: Architecture, **config: Any) -> PartCost:
    return decoder_layer(RATES, arch, layer_settings(TrainingConfig(**config)), moe=True, windowed=False)


def _time(part: PartCost, name: str) -> tuple[float, float, float]:
    chosen = [piece for piece in part.pieces if piece.name == name]
    return sum(p.forward_s for p in chosen), sum(p.backward_s for p in chosen), sum(p.weight_s for p in chosen)


def test_experts_of_one_fused_kernel_add_their_biases_in_it_and_sum_one_gradient_apart() -> None:
    eager, fused = (_time(_layer(BIASED, fused_expert_mlp=choice), "expert_bias") for choice in (False, True))
    assert _time(_layer(PLAIN), "expert_bias") == (0, 0, 0)
    assert fused == pytest.approx((0, RATES.pass_s(TOKENS * EXPERTS.top_k * BIASED.hidden_size * 4), 0))
    assert eager[0] > 2 * fused[1] and eager[1] > 2 * fused[1]


def test_an_unfused_rotary_embedding_moves_six_times_the_bytes_of_a_fused_one_and_more_backward() -> None:
    fused, unfused = (_time(_layer(BIASED, fused_rope=choice), "rope") for choice in (True, False))
    rotated = TOKENS * (HEADS + GROUPS) * WIDTH
    added = [after - before for before, after in zip(fused, unfused, strict=True)]
    assert added == pytest.approx([RATES.pass_s(rotated * 20), RATES.pass_s(rotated * 24), 0])


@pytest.mark.parametrize(
    "latent", [None, LatentAttention(q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)]
)
def test_fp8_attention_casts_q_k_and_v_and_the_gradient_of_its_output(latent: LatentAttention | None) -> None:
    arch = replace(BIASED, latent_attention=latent)
    passes = [piece for piece in _layer(arch, fp8_attention=True).pieces if piece.name == "attention_core"][1:]
    width = HEADS * (WIDTH) + GROUPS * 2 * WIDTH if latent is None else HEADS * (192 + 192 + 128)
    assert len(passes) == 1
    assert passes[0].forward_s == pytest.approx(RATES.pass_s(TOKENS * width * 8))
    assert passes[0].backward_s == pytest.approx(RATES.pass_s(TOKENS * HEADS * 128 * 8))
    assert len([piece for piece in _layer(arch).pieces if piece.name == "attention_core"]) == 1


@pytest.mark.parametrize("name", ["attention_linear", "experts"])
def test_bf16_weight_gradients_of_transformer_engine_slow_down_by_the_sum_of_bias_gradients(name: str) -> None:
    rate = CLUSTER.profile.figures["gemm_bias_gradient_efficiency"]
    plain, biased = (_time(_layer(arch, grouped_gemm="te"), name) for arch in (replace(BIASED, linear_bias=False), BIASED))
    sides = {"attention_linear": ((HEADS + 2 * GROUPS) * WIDTH, HEADS * WIDTH), "experts": (2 * 2880, 2880)}[name]
    assert rate < 1
    assert plain[:2] == biased[:2]
    assert biased[2] / plain[2] == pytest.approx((sides[0] / rate + sides[1]) / sum(sides), rel=0.05)


@pytest.mark.parametrize(
    "config",
    [
        {"fp8": "hybrid", "fp8_recipe": "delayed", "grouped_gemm": "te"},
        {"turbo_gemm": True, "grouped_gemm": "turbo"},
        {"bias_gradient_in_gemm": False},
    ],
)
def test_casts_and_passes_that_sum_bias_gradients_leave_the_gemms_alone(config: dict[str, Any]) -> None:
    plain, biased = (_layer(arch, **config) for arch in (replace(BIASED, linear_bias=False), BIASED))
    for name in ("attention_linear", "experts"):
        assert _time(plain, name) == _time(biased, name)


def test_a_bias_of_queries_keys_and_values_alone_touches_attention_alone() -> None:
    plain, biased = (_layer(replace(BIASED, linear_bias=False, qkv_bias=choice)) for choice in (False, True))
    assert _time(biased, "attention_linear")[2] > _time(plain, "attention_linear")[2]
    assert _time(biased, "experts") == _time(plain, "experts")


def test_sinks_slow_the_attention_of_primus_turbo_down_and_no_other() -> None:
    cluster = make_cluster("mi355x", memory_safety_margin=0.0)
    rates = Rates(cluster, RooflineGemm(cluster))

    def core(*, sinks: bool, turbo: bool) -> tuple[float, float]:
        arch, settings = replace(PLAIN, attention_sinks=sinks), layer_settings(TrainingConfig(turbo_attention=turbo, mbs=16))
        pieces = decoder_layer(rates, arch, settings, moe=True, windowed=False).pieces
        piece = next(found for found in pieces if found.name == "attention_core")
        return piece.forward_s, piece.backward_s

    assert core(sinks=True, turbo=False) == core(sinks=False, turbo=False) == core(sinks=False, turbo=True)
    figures, plain, sinks = cluster.profile.figures, core(sinks=False, turbo=True), core(sinks=True, turbo=True)
    for direction, name in enumerate(("forward", "backward")):
        assert sinks[direction] / plain[direction] == pytest.approx(1 / figures[f"attention_sink_{name}"], rel=0.03)
