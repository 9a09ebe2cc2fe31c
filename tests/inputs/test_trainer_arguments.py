"""What would really run: each rewriting that the trainer does, with its rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.argument_values import complete_arguments, layer_pattern
from primus_mcp.inputs.built_model import read_architecture
from primus_mcp.inputs.trainer_arguments import read_training
from primus_mcp.inputs.training import TrainingConfig

DENSE: dict[str, Any] = {
    "num_layers": 8,
    "hidden_size": 1024,
    "ffn_hidden_size": 4096,
    "num_attention_heads": 16,
    "swiglu": True,
    "add_bias_linear": False,
    "normalization": "RMSNorm",
    "position_embedding_type": "rope",
    "seq_length": 2048,
    "mock_data": True,
}
MOE: dict[str, Any] = {**DENSE, "num_experts": 16, "moe_router_topk": 4, "moe_ffn_hidden_size": 512, "moe_grouped_gemm": True}
MOE["moe_token_dispatcher_type"] = "alltoall"


def built(arguments: dict[str, Any]) -> Architecture:
    return read_architecture(complete_arguments(arguments), "m")[0]


def training(base: dict[str, Any], **changes: Any) -> TrainingConfig:
    arguments = complete_arguments({**base, **changes})
    return read_training(arguments, read_architecture(arguments, "m")[0])


def test_sequence_parallel_needs_tensor_parallel() -> None:
    assert training(DENSE, sequence_parallel=True).sequence_parallel is False
    assert training(DENSE, sequence_parallel=True, tensor_model_parallel_size=2).sequence_parallel is True


def test_expert_tensor_parallel_defaults_to_tensor_parallel() -> None:
    assert training(MOE, tensor_model_parallel_size=4).etp == 4
    assert training(MOE, tensor_model_parallel_size=4, expert_tensor_parallel_size=1).etp == 1


def test_virtual_stages_come_from_three_keys_and_never_from_the_one_the_trainer_overwrites() -> None:
    assert training(DENSE, pipeline_model_parallel_size=2, virtual_pipeline_model_parallel_size=2).vpp == 1
    assert training(DENSE, pipeline_model_parallel_size=2, num_virtual_stages_per_pipeline_rank=2).vpp == 2
    assert training(DENSE, pipeline_model_parallel_size=2, num_layers_per_virtual_pipeline_stage=1).vpp == 4
    assert training(DENSE, pipeline_model_parallel_size=2, pipeline_model_parallel_layout="Ett|tt|tt|ttL").vpp == 2
    with pytest.raises(InputError, match="more than one of"):
        training(DENSE, num_virtual_stages_per_pipeline_rank=2, num_layers_per_virtual_pipeline_stage=1)
    with pytest.raises(InputError, match="not a multiple of PP 3"):
        training(DENSE, pipeline_model_parallel_size=3, pipeline_model_parallel_layout="Ett|tt|tt|ttL")


def test_point_to_point_overlaps_only_with_virtual_stages() -> None:
    assert training(DENSE, pipeline_model_parallel_size=2).overlap_p2p is False
    assert training(DENSE, pipeline_model_parallel_size=2, num_virtual_stages_per_pipeline_rank=2).overlap_p2p is True


def test_both_spellings_of_context_parallel_are_read() -> None:
    assert training(DENSE, context_parallel_size=2).cp == 2
    assert training(DENSE, context_model_parallel_size=2).cp == 2
    assert training(DENSE, context_parallel_size=4, context_model_parallel_size=2).cp == 4


@pytest.mark.parametrize(
    ("changes", "schedule"),
    [
        ({}, "1f1b"),
        ({"num_virtual_stages_per_pipeline_rank": 2}, "interleaved"),
        ({"pp_algorithm": "zero-bubble"}, "1f1b"),
        ({"patch_primus_pipeline": True, "pp_algorithm": "zero-bubble"}, "zero-bubble"),
        ({"patch_primus_pipeline": True, "pp_algorithm": "1f1b-interleaved", "num_virtual_stages_per_pipeline_rank": 2}, "interleaved"),
        ({"patch_primus_pipeline": True, "pp_algorithm": "v-min", "num_virtual_stages_per_pipeline_rank": 2}, "v-min"),
        ({"patch_zero_bubble": True}, "zero-bubble"),
        ({"patch_zero_bubble": True, "enable_zero_bubble": False}, "1f1b"),
        ({"patch_zero_bubble": True, "zero_bubble_v_schedule": True, "num_virtual_stages_per_pipeline_rank": 2}, "v-half"),
        (
            {
                "patch_zero_bubble": True,
                "zero_bubble_v_schedule": True,
                "zero_bubble_v_schedule_mem_setup": "zb",
                "num_virtual_stages_per_pipeline_rank": 2,
            },
            "zbv-formatted",
        ),
    ],
)
def test_the_schedule_follows_the_patch_keys(changes: dict[str, Any], schedule: str) -> None:
    assert training(DENSE, pipeline_model_parallel_size=2, **changes).schedule == schedule


def test_a_schedule_without_a_runtime_is_refused() -> None:
    with pytest.raises(InputError, match="pp_algorithm"):
        training(DENSE, patch_primus_pipeline=True, pp_algorithm="seaailab-ilp")
    with pytest.raises(InputError, match="S16"):
        training(DENSE, patch_primus_pipeline=True, patch_zero_bubble=True)
    with pytest.raises(UnsupportedFeatureError, match="1f1b-v"):
        training(DENSE, patch_zero_bubble=True, enable_1f1b_v=True)


def test_optimizer_bytes_an_element() -> None:
    def sizes(config: TrainingConfig) -> tuple[int, ...]:
        return (config.main_grad_bytes, config.main_param_bytes, config.exp_avg_bytes, config.exp_avg_sq_bytes)

    assert sizes(training(DENSE)) == (4, 4, 4, 4)
    assert sizes(training(DENSE, grad_reduce_in_bf16=True)) == (2, 4, 4, 4)
    lean = {"main_grads_dtype": "bf16", "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "fp8"}
    assert sizes(training(DENSE, use_precision_aware_optimizer=True, **lean)) == (2, 2, 2, 1)


def test_full_recompute_of_no_block_is_no_recompute() -> None:
    mixtral = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 0}
    assert training(DENSE, **mixtral).recompute == training(DENSE).recompute
    kept = training(DENSE, **{**mixtral, "recompute_num_layers": 3}).recompute
    assert (kept.granularity, kept.method, kept.num_layers) == ("full", "block", 3)


def test_recompute_ids_are_a_list_or_a_text_and_exist() -> None:
    for ids in ("0, 3,7", [7, 3, 0, 3]):
        assert training(DENSE, recompute_granularity="full", recompute_layer_ids=ids).recompute.layer_ids == (0, 3, 7)
    assert training(DENSE, mtp_num_layers=1, recompute_granularity="full", recompute_layer_ids=[8]).recompute.layer_ids == (8,)
    for ids in ("0,8", "-1", "x", [], "1,,2"):
        with pytest.raises(InputError, match="recompute_layer_ids"):
            training(DENSE, recompute_granularity="full", recompute_layer_ids=ids)


def test_selective_recompute_means_core_attention_unless_modules_are_named() -> None:
    assert training(DENSE, recompute_granularity="selective").recompute.modules == ("core_attn",)
    assert training(DENSE, recompute_activations=True).recompute.modules == ("core_attn",)
    assert training(DENSE, recompute_granularity="selective", recompute_modules=["moe_act"]).recompute.modules == ("moe_act",)
    for changes in ({"recompute_num_layers": 0}, {"recompute_method": "block"}):
        with pytest.raises(InputError, match="R3"):
            training(DENSE, recompute_granularity="selective", **changes)
    with pytest.raises(InputError, match="R2"):
        training(DENSE, recompute_granularity="full")


def test_fp8_alone_means_delayed_scaling() -> None:
    config = training(DENSE, fp8="hybrid")
    assert (config.fp8, config.fp8_recipe) == ("hybrid", "delayed")
    assert training(DENSE).fp8 is None
    with pytest.raises(InputError, match="fp8"):
        training(DENSE, fp8="delayed")


@pytest.mark.parametrize(
    ("changes", "grouped", "dispatcher"),
    [
        ({}, "te", "alltoall"),
        ({"moe_grouped_gemm": False}, "sequential", "alltoall"),
        ({"moe_use_legacy_grouped_gemm": True}, "legacy", "alltoall"),
        ({"use_turbo_grouped_gemm": True, "use_turbo_deepep": True, "turbo_sync_free_moe_stage": 3}, "te", "alltoall"),
        ({"enable_primus_turbo": True, "use_turbo_grouped_gemm": True}, "turbo", "alltoall"),
        ({"enable_primus_turbo": True, "use_turbo_deepep": True}, "te", "deepep"),
        ({"enable_primus_turbo": True, "turbo_sync_free_moe_stage": 1}, "te", "alltoall"),
        ({"enable_primus_turbo": True, "turbo_sync_free_moe_stage": 2}, "turbo", "deepep"),
        ({"moe_token_dispatcher_type": "flex"}, "te", "deepep"),
        ({"moe_token_dispatcher_type": "allgather"}, "te", "allgather"),
    ],
)
def test_which_expert_kernels_run(changes: dict[str, Any], grouped: str, dispatcher: str) -> None:
    config = training(MOE, **changes)
    assert (config.grouped_gemm, config.dispatcher) == (grouped, dispatcher)


def test_sync_free_stages_bring_their_fusions() -> None:
    def fusions(**changes: Any) -> tuple[bool, bool, bool]:
        config = training(MOE, enable_primus_turbo=True, bias_swiglu_fusion=False, **changes)
        return config.fused_router, config.permute_fusion, config.fused_expert_activation

    assert fusions() == (False, False, False)
    assert fusions(turbo_sync_free_moe_stage=1) == (True, True, False)
    assert fusions(turbo_sync_free_moe_stage=2) == (True, True, False)
    assert fusions(turbo_sync_free_moe_stage=3) == (True, True, True)
    assert fusions(moe_use_legacy_grouped_gemm=True) == (False, False, True)


def test_turbo_and_legacy_grouped_gemm_exclude_each_other() -> None:
    with pytest.raises(InputError, match="E18"):
        training(MOE, enable_primus_turbo=True, turbo_sync_free_moe_stage=2, moe_use_legacy_grouped_gemm=True)


def test_deepep_leaves_no_shared_expert_overlap() -> None:
    shared = {"moe_shared_expert_intermediate_size": 512, "moe_shared_expert_overlap": True}
    assert training(MOE, **shared).shared_expert_overlap is True
    assert training(MOE, **shared, enable_primus_turbo=True, use_turbo_deepep=True).shared_expert_overlap is False
    assert training(MOE, moe_shared_expert_overlap=True).shared_expert_overlap is False


def test_forced_balance_is_even_only_in_its_even_type() -> None:
    assert training(MOE, moe_router_force_load_balancing=True).forced_balance is True
    assert training(MOE, moe_router_force_load_balancing=True, moe_router_force_load_balancing_type="uniform").forced_balance is False


def test_a_dense_model_has_no_expert_settings() -> None:
    config = training(DENSE, enable_primus_turbo=True, turbo_sync_free_moe_stage=3, moe_router_force_load_balancing=True)
    assert config == replace(config, sync_free_stage=0, forced_balance=False, dispatcher="alltoall", grouped_gemm="te")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("micro_batch_size", 0),
        ("micro_batch_size", -1),
        ("micro_batch_size", 1.5),
        ("micro_batch_size", "two"),
        ("micro_batch_size", True),
        ("micro_batch_size", 2**60),
        ("tensor_model_parallel_size", None),
        ("overlap_grad_reduce", "true"),
        ("turbo_sync_free_moe_stage", 4),
        ("optimizer", "lion"),
        ("cp_comm_type", 3),
        ("moe_token_dispatcher_type", "alltoall_seq"),
        ("num_layers", 10**9),
        ("num_query_groups", 3),
        ("moe_router_topk", 17),
        ("normalization", "BatchNorm"),
        ("hidden_dropout", 2),
    ],
)
def test_a_wrong_value_names_its_key(key: str, value: object) -> None:
    with pytest.raises(InputError, match=key):
        training({**MOE, "group_query_attention": True}, **{key: value})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"recompute_granularity": "selective", "recompute_modules": "core_attn"}, "recompute_modules: is 'core_attn'"),
        ({"recompute_granularity": "full", "recompute_layer_ids": [0], "recompute_method": "block"}, "excludes recompute_method"),
        ({"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 0}, "is 0 with recompute_method uniform"),
        ({"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep"}, "moe_flex_dispatcher_backend"),
        ({"hidden_size": 1000}, "kv_channels"),
        ({"activation_func_clamp_value": "7"}, "activation_func_clamp_value"),
        ({"window_size": [128]}, "window_size"),
        ({"pipeline_model_parallel_size": 3, "num_layers_per_virtual_pipeline_stage": 2}, "does not divide 8 layers over PP 3"),
    ],
)
def test_settings_that_exclude_each_other_or_mean_nothing_name_the_key(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        training(MOE, **changes)
    assert caught.value.remedy


def test_the_activation_is_the_first_that_is_switched_on() -> None:
    plain = {**DENSE, "swiglu": False}
    found = [built({**plain, **on}) for on in ({}, {"quick_geglu": True}, {"squared_relu": True}, {"swiglu": True, "quick_geglu": True})]
    assert [(arch.gated_mlp, arch.activation) for arch in found] == [
        (False, "gelu"),
        (True, "quick_gelu"),
        (False, "squared_relu"),
        (True, "silu"),
    ]
    assert built({**DENSE, "activation_func_clamp_value": 7}).activation_clamp == 7.0
    assert built({**plain, "activation_func_clamp_value": 7}).activation_clamp is None


def test_a_whole_number_may_be_written_as_a_float() -> None:
    assert training(DENSE, micro_batch_size=4.0).mbs == 4


def test_layer_patterns_are_numbers_lists_or_their_text() -> None:
    for text in ("([0]*1+[1]*3)", "[0,1,1,1]", [0, 1, 1, 1], " [0] + [1] * 3"):
        assert layer_pattern({"k": text}, "k", 4) == (0, 1, 1, 1)
    assert layer_pattern({"k": "2"}, "k", 4) == 2
    for hostile in ("__import__('os').system('true')", "[0]*10**9", "[1]*99999999", "(" * 999, "[2]*4", "[1]*3", "1/0", 0, None, ["1"]):
        with pytest.raises(InputError):
            layer_pattern({"k": hostile}, "k", 4)


def test_a_frequency_makes_every_nth_layer_moe_from_the_first() -> None:
    assert built({**MOE, "moe_layer_freq": 2}).moe_layers == (True, False) * 4
    assert built({**MOE, "moe_layer_freq": "([0]*3+[1]*5)"}).moe_layers == (False,) * 3 + (True,) * 5
    assert not built(DENSE).is_moe


def test_widths_that_are_not_set_follow_the_trainer() -> None:
    assert built({**DENSE, "ffn_hidden_size": None}).ffn_hidden_size == 2688  # int(4 * 1024 * 2 / 3 / 64) * 64
    assert built({**DENSE, "ffn_hidden_size": None, "swiglu": False}).ffn_hidden_size == 4096
    assert built(DENSE).head_dim == 64
    assert built({**DENSE, "kv_channels": 128}).head_dim == 128
    assert built({**DENSE, "num_query_groups": 4}).num_query_groups == 16
    assert built({**DENSE, "num_query_groups": 4, "group_query_attention": True}).num_query_groups == 4


def test_windows_come_from_megatron_or_from_turbo_sinks() -> None:
    plain = built({**DENSE, "window_size": [128, 0], "window_attn_skip_freq": [1, 0] * 4})
    assert (plain.sliding_window, plain.windowed_layers, plain.attention_sinks) == (128, (True, False) * 4, False)
    every = built({**DENSE, "window_size": [128, 0]})
    assert every.windowed_layers == (True,) * 8
    third = built({**DENSE, "window_size": [128, 0], "window_attn_skip_freq": 3})
    assert third.windowed_layers == (True, True, False, True, True, False, True, True)  # every third attends over everything
    assert built({**DENSE, "window_size": [-1, 0]}).sliding_window is None
    turbo = {"enable_primus_turbo": True, "use_turbo_attention": True, "use_sink_attention": True, "sink_sliding_window": 64}
    sinks = built({**DENSE, **turbo})
    assert (sinks.sliding_window, sinks.windowed_layers, sinks.attention_sinks) == (64, (True, False) * 4, True)
    assert built({**DENSE, **turbo, "enable_primus_turbo": False}).sliding_window is None


PLANNED = {"patch_primus_pipeline": True, "pp_algorithm": "zero-bubble-heuristic", "pipeline_model_parallel_size": 4}


def test_the_planner_of_zero_bubble_heuristic_reads_one_number_or_one_a_rank() -> None:
    plain = training(DENSE, **PLANNED)
    assert (plain.pp_max_mem, plain.pp_cost_f, plain.pp_cost_b, plain.pp_cost_w) == (None,) * 4
    told = training(DENSE, **PLANNED, pp_max_mem=6, pp_cost_f=[900, 1000, 1000, 1200], pp_cost_w=500.5)
    assert told.pp_max_mem == (6.0,) * 4
    assert told.pp_cost_f == (900.0, 1000.0, 1000.0, 1200.0)
    assert told.pp_cost_w == (500.5,) * 4
    longer = training(DENSE, **PLANNED, pp_max_mem=[4, 4, 3, 2, 9])
    assert longer.pp_max_mem == (4.0, 4.0, 3.0, 2.0)


def test_no_other_schedule_reads_them() -> None:
    other = training(DENSE, **{**PLANNED, "pp_algorithm": "zero-bubble"}, pp_max_mem=6)
    assert other == training(DENSE, **{**PLANNED, "pp_algorithm": "zero-bubble"})


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("pp_max_mem", 0, "at least 1"),
        ("pp_max_mem", [4, 4], "has 2 entries"),
        ("pp_max_mem", "all", "at least 1"),
        ("pp_max_mem", [4, 4, True, 4], "at least 1"),
        ("pp_cost_b", -1, "at least 0"),
        ("pp_cost_b", [1, 2, 3, float("inf")], "at least 0"),
    ],
)
def test_planner_keys_that_cannot_be_are_refused(key: str, value: object, words: str) -> None:
    with pytest.raises(InputError, match=rf"{key}.*{words}"):
        training(DENSE, **PLANNED, **{key: value})


@pytest.mark.parametrize(
    ("changes", "fused"),
    [
        ({}, True),
        ({"attention_backend": "unfused"}, False),
        ({"softmax_type": "learnable"}, False),
        ({"softmax_type": "off-by-one", "attention_backend": "fused"}, False),
        ({"softmax_type": "learnable", "enable_primus_turbo": True, "use_turbo_attention": True}, True),
    ],
)
def test_a_softmax_that_the_fused_kernels_of_rocm_do_not_know_runs_unfused(changes: dict[str, Any], fused: bool) -> None:
    assert training(DENSE, **changes).flash_attention is fused
