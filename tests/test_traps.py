"""What users of such tools ran into, each protected by a test: here, or where PROTECTED says.

The reports are public issues of Megatron-LM, Megatron-Bridge, torchtitan, DeepSpeed and of other projections.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from workload_cases import evaluator_of

from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.space.knobs import TrialConfig

TESTS = Path(__file__).parent

# report -> the tests elsewhere that protect from its kind of fault
PROTECTED: dict[str, dict[str, tuple[str, ...]]] = {
    "NVIDIA/Megatron-LM#525: a sum by hand is 5 GB short of what torch reserves": {
        "memory/test_memory_golden.py": ("test_gpt2_774m_allocates_more_than_its_user_summed",),
        "memory/test_memory_operations.py": (
            "test_math_attention_keeps_every_score_and_flash_attention_only_one_sum_a_row",
            "test_loss_fusion_halves_the_saved_logits",
        ),
    },
    "NVIDIA/Megatron-LM#482: one number for ranks that differ": {
        "memory/test_memory_properties.py": (
            "test_the_worst_rank_is_the_one_that_needs_most",
            "test_earlier_ranks_of_a_plain_pipeline_hold_more_activations",
        )
    },
    "NVIDIA/Megatron-LM#1784, PR#6782: routed activations divided by EP": {
        "memory/test_memory_operations.py": (
            "test_expert_parallelism_alone_does_not_change_any_activation",
            "test_dispatched_rows_are_tokens_times_top_k_times_etp_over_tp",
        )
    },
    "NVIDIA/Megatron-LM#4050, Megatron-Bridge#3744: experts divided by TP, their states by DP": {
        "memory/test_memory_states_by_hand.py": ("test_mixtral_tp1_ep8", "test_mixtral_tp2_ep4_etp1")
    },
    "Megatron-Bridge#3107: a third to half of the runs near the cap go out of memory": {
        "memory/test_memory_golden.py": ("test_a_run_that_went_through_at_99_per_cent_of_memory_is_at_risk_and_not_refused",),
        "evaluation/test_rank.py": ("test_at_risk_loses_to_a_safe_trial_within_three_percent_and_says_so",),
    },
    "Megatron-Bridge#5570: each recompute module has its own saving": {
        "memory/test_memory_operations.py": (
            "test_activation_recompute_frees_the_fc2_input_of_the_experts",
            "test_up_projection_recompute_saves_about_as_much_as_the_activation",
        )
    },
    "sail-sg/zero-bubble#36: a V schedule has head and embedding on one rank": {
        "memory/test_memory_properties.py": ("test_the_v_placement_puts_embedding_and_head_on_the_first_rank",),
        "pipeline/test_pipeline_simulator.py": ("test_the_head_of_a_v_schedule_weighs_on_rank_0",),
    },
    "sail-sg/zero-bubble#8: stages differ in memory": {
        "pipeline/test_pipeline_live.py": ("test_peaks_of_one_chunk_schedules", "test_interleaving_holds_more_than_1f1b")
    },
    "deepseek-ai/DualPipe#17, #23: memory depends on the schedule": {
        "memory/test_memory_properties.py": ("test_v_half_and_v_min_need_less_than_zbv_and_zbv_is_even",),
        "pipeline/test_pipeline_bidirectional.py": ("test_the_memory_of_the_report", "test_the_bubble_of_the_report"),
        "performance/test_pipeline_what_ifs.py": (
            "test_weights_and_gradients_are_held_twice_and_optimizer_states_once_where_they_are_sharded",
        ),
    },
    "aiconfigurator#1205, #95: how accurate is it?": {
        "cli/test_readme.py": ("test_the_readme_quotes_the_accuracy_page_in_sample_and_with_the_family_left_out",)
    },
    "AMD-AGI/Primus#273: the user needs the fix, not just the number": {
        "evaluation/test_evaluators.py": ("test_the_cheapest_change_fits_and_changes_one_knob_where_one_is_enough",),
    },
    "ROCm/Megatron-LM#161, #162: a flat guess instead of terms": {
        "memory/test_memory_properties.py": ("test_every_component_says_what_evidence_it_has",)
    },
    "deepspeedai/DeepSpeed#6796, transformers#27830: no optimal configuration, and nothing else": {
        "reports/test_reports.py": ("test_nothing_found_says_which_rule_removed_how_many_what_lacks_and_what_would_help",),
        "search/test_seeds.py": (
            "test_a_lever_that_is_illegal_everywhere_does_not_hide_the_grid",
            "test_where_nothing_fits_the_smallest_points_are_legal_and_tell_how_much_is_missing",
        ),
    },
    "deepspeedai/DeepSpeed#6796: ZeRO and TP both divided the same memory": {
        "memory/test_memory_states_by_hand.py": (
            "test_tp8_divides_weights_by_eight_apart_from_norms_and_vocabulary_padding",
            "test_the_shards_of_all_ranks_sum_to_the_whole_model",
        )
    },
    "PaddlePaddle#71783: a wrong range made four times the trials": {
        "search/test_sweep_space.py": ("test_counts_are_conserved_and_every_legal_configuration_is_distinct",),
        "search/test_sweep_optimum.py": ("test_the_optimum_is_that_of_complete_enumeration_by_the_evaluator",),
    },
    "pytorch/torchtitan#191, #410, #425: FSDP2 with PP": {
        "memory/test_memory_operations.py": ("test_a_pipelined_fsdp2_stage_stays_gathered_with_fp32_gradients",),
        "memory/test_memory_states_by_hand.py": ("test_fsdp2_holds_a_gathered_layer_and_the_root_group",),
    },
    "NVIDIA-NeMo/Automodel#1592, Megatron-LM#597, Megatron-Bridge#3910: will it fit?": {
        "cli/test_command_line.py": ("test_evaluate_json_is_one_document_with_null_for_what_was_not_computed",)
    },
    "MooreThreads/SimuMax#5: how do I describe my card?": {"hardware/test_own_gpu.py": ("test_the_shipped_example_is_checked_and_used",)},
}


def _functions(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("report", PROTECTED)
def test_the_tests_that_protect_from_a_report_are_still_there(report: str) -> None:
    for name, tests in PROTECTED[report].items():
        assert set(tests) <= _functions(TESTS / name), report


def priced(result: EvaluationResult) -> tuple[float, float]:
    """(GB, tokens/s/GPU) of a configuration that fits."""
    assert result.legal, result.reason
    assert result.memory_per_gpu_gb is not None and result.tokens_per_s_per_gpu is not None, result.reason
    return result.memory_per_gpu_gb, result.tokens_per_s_per_gpu


def test_the_worst_of_the_ranks_is_the_number_that_is_told(tmp_path: Path) -> None:
    """NVIDIA/Megatron-LM#482."""
    result = evaluator_of(tmp_path, "llama3.1_8B").evaluate(TrialConfig(pp=4))
    assert result.per_rank_memory_gb is not None and len(set(result.per_rank_memory_gb)) == len(result.per_rank_memory_gb) == 4
    assert result.memory_per_gpu_gb == max(result.per_rank_memory_gb)


def test_recompute_buys_memory_with_time(tmp_path: Path) -> None:
    """NVIDIA/Megatron-LM#6311: full recompute costs 18% of the throughput; a forward pass is a third of forward and backward."""
    pricing = evaluator_of(tmp_path, "llama3.1_8B")
    none, full = (
        priced(pricing.evaluate(TrialConfig())),
        priced(pricing.evaluate(TrialConfig(recompute_granularity="full", recompute_num_layers=32))),
    )
    assert full[0] < none[0]
    assert 0.70 < full[1] / none[1] < 0.88


@pytest.mark.parametrize(
    ("model", "module"), [("deepseek_v2_lite", "moe_act"), ("deepseek_v2_lite", "mla_up_proj"), ("qwen3_30B_A3B", "layernorm")]
)
def test_each_recompute_module_has_a_saving_and_a_price_of_its_own(tmp_path: Path, model: str, module: str) -> None:
    """Megatron-Bridge#5570: moe_act -1.85% memory, +1.99% time; mla_up_proj -1.96% memory, +5.19% time. Small, and never free."""
    parts: dict[str, Any] = {"expert_model_parallel_size": 8, "moe_token_dispatcher_type": "alltoall"}
    plain = priced(evaluator_of(tmp_path, model, gpu="mi355x", **parts).evaluate(TrialConfig()))
    names: dict[str, Any] = {"recompute_granularity": "selective", "recompute_modules": [module]}
    lighter = priced(evaluator_of(tmp_path, model, gpu="mi355x", **parts, **names).evaluate(TrialConfig()))
    assert 0.85 < lighter[0] / plain[0] < 1
    assert 0.85 < lighter[1] / plain[1] < 1


def test_real_routing_under_deepep_has_a_larger_allowance_and_buffers_beside_torch(tmp_path: Path) -> None:
    """NVIDIA-NeMo/RL#2319, torchtitan#3865: out of memory at the second step, as buffers of another size each step fragment memory."""
    more: dict[str, Any] = {
        "enable_primus_turbo": True,
        "moe_router_dtype": "fp32",
        "moe_shared_expert_overlap": False,
        "expert_model_parallel_size": 8,
    }
    shares = {}
    for forced in (True, False):
        pricing = evaluator_of(tmp_path, "qwen3_30B_A3B", gpu="mi355x", moe_router_force_load_balancing=forced, **more)
        result = pricing.evaluate(TrialConfig(use_turbo_deepep=True, sync_free_stage=0))
        assert result.legal and result.memory_breakdown is not None and result.activation_gb, result.reason
        assert result.memory_breakdown["deepep_buffers"] > 0
        shares[forced] = result.memory_breakdown["fragmentation"] / result.activation_gb
    assert 0 < shares[True] < shares[False]


def test_every_priced_answer_states_its_bound_its_error_and_what_priced_it(tmp_path: Path) -> None:
    """aiconfigurator#1205, #95."""
    result = evaluator_of(tmp_path, "llama3.1_8B").evaluate(TrialConfig())
    assert result.confidence
    assert result.memory_upper_gb is not None and result.memory_per_gpu_gb is not None
    assert result.memory_upper_gb > result.memory_per_gpu_gb
    assert (result.backend, bool(result.profile), bool(result.engine_version)) == ("roofline", True, True)


def test_a_dense_width_that_no_layer_uses_changes_nothing(tmp_path: Path) -> None:
    """aiconfigurator#1055, aisimulate#220: an MoE workspace of 46.0 instead of 13.9 GiB, sized with the dense width."""
    parts: dict[str, Any] = {"expert_model_parallel_size": 8}
    own = evaluator_of(tmp_path, "qwen3_30B_A3B", gpu="mi355x", **parts).evaluate(TrialConfig())
    wide = evaluator_of(tmp_path, "qwen3_30B_A3B", gpu="mi355x", ffn_hidden_size=65536, **parts).evaluate(TrialConfig())
    assert priced(own) == priced(wide)


def test_every_answer_echoes_the_inputs_that_it_was_made_from(tmp_path: Path) -> None:
    """aliyun/SimAI#166: eight times off because the micro-batch was another one than was thought."""
    asked: dict[str, Any] = {"tp": 2, "mbs": 4, "gbs": 512, "recompute_granularity": "full", "recompute_num_layers": 3}
    result = evaluator_of(tmp_path, "llama3.1_8B").evaluate(TrialConfig(**asked))
    assert result.resolved is not None
    assert asked.items() <= result.resolved.items()
    assert (result.resolved["schedule"], result.resolved["optimizer"], result.resolved["main_grad_bytes"]) == ("1f1b", "adam", 4)
    assert (result.dp, result.micro_batches) == (4, 32)


def test_what_does_not_fit_names_a_change_or_says_how_much_is_missing(tmp_path: Path) -> None:
    """AMD-AGI/Primus#273: 474 GB projected, and no word of what to do."""
    result = evaluator_of(tmp_path, "llama3.1_70B").evaluate(TrialConfig())
    assert result.legal and result.within_margin is False and result.tokens_per_s_per_gpu is None
    assert result.reason is not None and "more than the cap" in result.reason


def test_fsdp2_is_priced_with_tensor_parallelism(tmp_path: Path) -> None:
    """pytorch/torchtitan#191, #410, #425: the estimator refused TP; FSDP2 with TP holds what each divides."""
    pricing = evaluator_of(tmp_path, "llama3.1_8B", gpu="mi355x", nodes=2)
    sharded = [pricing.evaluate(TrialConfig(tp=tp, use_torch_fsdp2=True, use_distributed_optimizer=False)) for tp in (1, 2)]
    memory = [result.memory_per_gpu_gb for result in sharded]
    assert all(result.legal for result in sharded), [result.reason for result in sharded]
    assert memory[0] is not None and memory[1] is not None and memory[1] < memory[0]


@pytest.mark.parametrize("gpu", ["a100", "mi250x"])
def test_fp8_on_a_gpu_without_it_is_refused_with_the_peaks_and_never_priced(tmp_path: Path, gpu: str) -> None:
    result = evaluator_of(tmp_path, "llama3.1_8B", gpu=gpu).evaluate(TrialConfig(tp=8, fp8="hybrid"))
    assert not result.legal and result.refused_by == ["fp8-gpu"]
    assert result.reason is not None and "none in FP8" in result.reason
    assert ("312" if gpu == "a100" else "192") in result.reason
