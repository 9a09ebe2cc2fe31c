"""The texts of a row."""

from __future__ import annotations

import pytest

from primus_mcp.validation.errors import NotScoredError
from primus_mcp.validation.words import (
    inherits,
    is_ladder,
    node_bytes_per_s,
    number_after,
    read_flags,
    read_precision,
    read_recompute,
    runs_interleaved,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", {"recompute_granularity": None}),
        ("full", {"recompute_method": "uniform", "recompute_num_layers": 1}),
        ("full (use_checkpoint true in config/validation)", {"recompute_method": "uniform", "recompute_num_layers": 1}),
        ("full uniform 2", {"recompute_method": "uniform", "recompute_num_layers": 2}),
        ("full block 21 layers", {"recompute_method": "block", "recompute_num_layers": 21}),
        ("full block, 5 layers", {"recompute_method": "block", "recompute_num_layers": 5}),
        ("block 5", {"recompute_method": "block", "recompute_num_layers": 5}),
        ("full, 15 layer ids 0,1,2,3", {"recompute_layer_ids": [0, 1, 2, 3], "recompute_method": None}),
        ("full, 15 layer ids 0,1,..", {"recompute_layer_ids": list(range(15))}),
        ("selective core_attn, moe_act", {"recompute_granularity": "selective", "recompute_modules": ["core_attn", "moe_act"]}),
        ("selective attention + sequence parallel", {"recompute_modules": ["core_attn"]}),
        ("selective + SP", {"recompute_modules": ["core_attn"]}),
        ("norm, act, shared_expert", {"recompute_modules": ["layernorm", "moe_act", "shared_experts"]}),
    ],
)
def test_recompute_texts(text: str, expected: dict[str, object]) -> None:
    found = read_recompute(text)
    assert {key: found[key] for key in expected} == expected


def test_an_unknown_recompute_text_leaves_the_row_out() -> None:
    with pytest.raises(NotScoredError, match="not in the vocabulary"):
        read_recompute("clever")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("+TE cross-entropy loss fusion; manual GC", {"cross_entropy_loss_fusion": True, "manual_gc": True}),
        ("+Turbo DeepEP (64 CU)", {"use_turbo_deepep": True, "turbo_deepep_num_cu": 64, "moe_shared_expert_overlap": False}),
        ("sync_free 1", {"turbo_sync_free_moe_stage": 1}),
        ("sync-free MoE stage 2", {"turbo_sync_free_moe_stage": 2, "moe_use_legacy_grouped_gemm": False}),
        ("turbo gemm, flydsl", {"use_turbo_gemm": True}),
        ("forced load balance", {"moe_router_force_load_balancing": True}),
        ("moe_router_force_load_balancing", {"moe_router_force_load_balancing": True}),
        ("SP off", {"sequence_parallel": False}),
        ("no comm overlap", {"overlap_grad_reduce": False, "overlap_param_gather": False}),
        ("pp_algorithm=zbv-formatted", {"pp_algorithm": "zbv-formatted", "patch_primus_pipeline": True}),
        ("pp_algorithm=v-min", {"pp_algorithm": "v-min"}),
        ("config_tp4pp8cp2; ASYM_PP_EMBED/LOSS; fp8 param gather", {"account_for_loss_in_pipeline_split": True, "fp8_param_gather": True}),
    ],
)
def test_flags_switch_trainer_arguments(flags: str, expected: dict[str, object]) -> None:
    found = read_flags(flags).arguments
    assert {key: found[key] for key in expected} == expected


def test_a_negated_word_switches_nothing_on() -> None:
    assert "use_turbo_deepep" not in read_flags("no DeepEP").arguments
    assert read_flags("no loss fusion").arguments == {"cross_entropy_loss_fusion": False}
    assert read_flags("real routing (no forced balance)").arguments["moe_router_force_load_balancing"] is False


@pytest.mark.parametrize("flags", ["token-drop", "MegaMoE; load balancing even", "FULL_SHARD; cpu offload True"])
def test_what_the_engine_does_not_price_leaves_the_row_out(flags: str) -> None:
    with pytest.raises(NotScoredError):
        read_flags(flags)


def test_counting_words() -> None:
    assert number_after("micro_batches", "32 micro-batches; SP on") == 32
    assert number_after("micro_batches", "FULL_SHARD; grad_accum 4") == 4
    assert number_after("local_batch", "1F1B; local batch 32") == 32
    assert number_after("virtual_stages", "+VPP5 (cumulative)") == 5
    assert number_after("micro_batches", None) is None
    assert node_bytes_per_s("8 GPUs/node, 800 Gb/s") == 100e9
    assert runs_interleaved("AsyncTP, Interleaved 1F1B") and not runs_interleaved("AsyncTP, 1F1B")


def test_rungs_of_a_ladder_are_recognised() -> None:
    assert is_ladder("baseline; manual GC") and not inherits("baseline; manual GC")
    assert is_ladder("+DeepEP (cumulative)") and inherits("+DeepEP (cumulative)")
    assert inherits("all of the above, MBS 14")
    assert not is_ladder("sync_free 1") and not is_ladder(None)


def test_a_bare_fp8_keeps_the_recipe_of_its_framework_and_bf16_clears_it() -> None:
    assert read_precision("FP8", {"fp8": "hybrid", "fp8_recipe": "tensorwise"}) == {}
    assert read_precision("FP8", {})["fp8"] == "hybrid"
    assert read_precision("FP8-CS (tensorwise)", {}) == {"fp8": "e4m3", "fp8_recipe": "tensorwise"}
    assert read_precision("MXFP8", {})["fp8_recipe"] == "mxfp8"
    assert read_precision("NVFP4", {})["fp4"] == "e2m1"
    assert read_precision("BF16", {"fp8": "hybrid"})["fp8"] is None
    with pytest.raises(NotScoredError):
        read_precision("INT4", {})
