"""Faults of Primus's own projection (M: memory, P: performance) and of its tuning agent (T), as invariants that hold here.

Primus at AMD-AGI/Primus@fd1eeabb. A fault that is an invariant of one room has its test there: COVERED names it.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from workload_cases import evaluator_of

from primus_mcp.evaluation.evaluators import Evaluator
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.space.knobs import TrialConfig

TESTS = Path(__file__).parent

COVERED: dict[str, dict[str, tuple[str, ...]]] = {
    "M3": {"memory/test_memory_golden.py": ("test_more_micro_batches_than_the_pipeline_is_deep_do_not_change_memory",)},
    "M6": {"memory/test_memory_states_by_hand.py": ("test_mixtral_tp1_ep8", "test_the_shards_of_all_ranks_sum_to_the_whole_model")},
    "M7": {
        "memory/test_memory_states_by_hand.py": (
            "test_dense_states_are_18_bytes_a_parameter_on_one_gpu",
            "test_each_state_has_its_own_dtype",
        )
    },
    "M8": {"memory/test_memory_operations.py": ("test_block_recompute_counts_in_each_chunk_and_ids_are_global",)},
    "M9": {
        "memory/test_memory_operations.py": ("test_expert_tensors_of_mixtral",),
        "memory/test_memory_states_by_hand.py": (
            "test_tied_embeddings_are_stored_twice_only_when_the_ends_are_on_different_ranks",
            "test_multi_token_prediction_puts_a_second_embedding_on_the_last_rank",
        ),
    },
    "M10": {"catalog/test_parameter_counts.py": ("test_every_catalogue_model_counts_exactly_what_was_published",)},
    "P1": {"performance/test_knob_effects.py": ("test_fp8_beats_bf16_on_a_dense_model",)},
    "P5": {"ops/test_collectives.py": ("test_every_field_of_the_network_reaches_every_collective_that_it_concerns",)},
    "P6": {
        "performance/test_projection_laws.py": ("test_the_breakdown_sums_to_the_iteration_and_holds_no_negative_part",),
        "performance/test_knob_effects.py": ("test_expert_parallelism_across_nodes_costs_more_than_inside",),
    },
    "P7": {"performance/test_knob_effects.py": ("test_uniform_recompute_repeats_every_layer_whatever_its_group_size",)},
    "P8": {
        "pipeline/test_pipeline_orders.py": (
            "test_1f1b_with_fewer_micro_batches_than_ranks_clips_its_warm_up",
            "test_every_legal_size_gives_a_complete_order_that_never_waits_for_itself",
        )
    },
    "P9": {"pipeline/test_pipeline_orders.py": ("test_a_group_that_does_not_divide_the_batch_leaves_a_shorter_last_group",)},
    "P11": {"ops/test_collectives.py": ("test_a_mesh_group_of_g_uses_g_minus_1_links_and_a_switch_group_all_of_them",)},
    "P12": {"ops/test_collectives.py": ("test_a_gibibyte_over_32_ranks_by_stride",)},
    "P14": {
        "inputs/test_trainer_arguments.py": ("test_virtual_stages_come_from_three_keys_and_never_from_the_one_the_trainer_overwrites",)
    },
    "P17": {"pipeline/test_pipeline_simulator.py": ("test_the_head_of_a_v_schedule_weighs_on_rank_0",)},
    "P18": {"catalog/test_primus_examples.py": ("test_the_tally_of_primus_examples",)},
    "T4": {
        "session/test_session.py": ("test_the_artefacts_are_complete_and_hold_no_secret",),
        "reports/test_chart_drawing.py": ("test_charts_without_anything_to_show_are_drawn_empty",),
    },
}


@pytest.mark.parametrize("fault", COVERED)
def test_the_tests_that_cover_a_fault_are_still_there(fault: str) -> None:
    for name, tests in COVERED[fault].items():
        body = ast.parse((TESTS / name).read_text(encoding="utf-8")).body
        assert set(tests) <= {node.name for node in body if isinstance(node, ast.FunctionDef)}, fault


def memory(pricing: Evaluator, **knobs: Any) -> EvaluationResult:
    result = pricing.evaluate(TrialConfig(**knobs))
    assert result.legal and result.memory_breakdown is not None, result.reason
    return result


def speed(pricing: Evaluator, **knobs: Any) -> float:
    result = pricing.evaluate(TrialConfig(**knobs))
    assert result.tokens_per_s_per_gpu is not None, result.reason
    return result.tokens_per_s_per_gpu


def test_m1_tensor_parallelism_divides_weights_and_gradients(tmp_path: Path) -> None:
    """Primus: 306 GiB for Llama 70B at TP 8 on 4 nodes, as if TP were 1."""
    pricing = evaluator_of(tmp_path, "llama3.1_70B", nodes=4)
    one, eight = (memory(pricing, tp=tp).memory_breakdown for tp in (1, 8))
    assert one is not None and eight is not None
    for name in ("weights", "main_gradients"):
        assert one[name] / eight[name] == pytest.approx(8, rel=0.01)


def test_m2_fsdp2_shards_more_than_the_optimizer(tmp_path: Path) -> None:
    """Primus: 271 GiB of states for Llama 70B on 64 GPUs; 16 or 18 bytes of 70.6e9 parameters over 64 ranks are 16 to 19 GiB."""
    result = memory(evaluator_of(tmp_path, "llama3.1_70B", nodes=8), use_torch_fsdp2=True, use_distributed_optimizer=False)
    assert result.param_optimizer_gb is not None and result.memory_breakdown is not None
    sharded = sum(result.memory_breakdown.get(name, 0.0) for name in ("weights", "main_gradients", "optimizer_states"))
    assert 12 < sharded < 24


def test_m3_a_batch_smaller_than_dp_is_refused_and_never_free_of_activations(tmp_path: Path) -> None:
    result = evaluator_of(tmp_path, "llama3.1_8B", nodes=2, global_batch_size=8).evaluate(TrialConfig())
    assert not result.legal and result.memory_per_gpu_gb is None
    assert result.reason is not None and "DP 16" in result.reason


def test_m4_the_vocabulary_is_the_one_that_runs(tmp_path: Path) -> None:
    """Primus takes 100,352 for every model. Mock data build 131,073, padded to 131,200 at TP 1 (multiples of 128)."""
    llama2, llama3 = (evaluator_of(tmp_path, model).workload.architecture.vocab_size for model in ("llama2_7B", "llama3.1_8B"))
    assert llama2 == llama3 == 131_073
    real = evaluator_of(tmp_path, "llama2_7B", mock_data=False).workload.architecture.vocab_size
    assert real == 32_000


def test_m5_more_nodes_change_memory(tmp_path: Path) -> None:
    """Primus: 38.15 GiB on 1 node and on 16."""
    one, sixteen = (memory(evaluator_of(tmp_path, "llama3.1_8B", nodes=nodes)).memory_per_gpu_gb for nodes in (1, 16))
    assert one is not None and sixteen is not None and sixteen < one - 5


def test_p2_mxfp8_is_priced_where_the_gpu_has_it_and_refused_where_not(tmp_path: Path) -> None:
    pricing = evaluator_of(tmp_path, "llama3.1_8B", gpu="mi355x")
    assert speed(pricing, fp8="mxfp8") > speed(pricing)
    assert evaluator_of(tmp_path, "llama3.1_8B").evaluate(TrialConfig(fp8="mxfp8")).refused_by == ["F11"]


def test_p3_context_parallelism_is_no_free_throughput(tmp_path: Path) -> None:
    """Primus: 15,291 -> 31,215 -> 52,684 tokens/s/GPU with CP 1, 2, 4 at PP 2, as every CP rank were a replica of its own."""
    pricing = evaluator_of(tmp_path, "llama3.1_8B")
    results = [pricing.evaluate(TrialConfig(pp=2, cp=cp)) for cp in (1, 2, 4)]
    assert [result.dp for result in results] == [4, 2, 1]
    speeds = [result.tokens_per_s_per_gpu for result in results]
    assert speeds[0] and speeds[1] and speeds[2]
    assert speeds[0] > speeds[1] > speeds[2]


def test_p3_p4_no_context_length_beats_the_peak(tmp_path: Path) -> None:
    """Primus: 505% MFU at 128k tokens, CP 8, PP 2; 134% at PP 1."""
    pricing = evaluator_of(tmp_path, "llama3.1_8B", gpu="mi355x", nodes=2, seq_length=131072, max_position_embeddings=131072)
    for pp in (1, 2):
        result = pricing.evaluate(TrialConfig(pp=pp, cp=8))
        assert result.legal, result.reason
        assert result.mfu is not None and 0 < result.mfu < 0.6


def test_p10_a_schedule_that_cannot_run_is_refused_and_never_estimated(tmp_path: Path) -> None:
    """Primus prices the ILP schedule as if every rank held the whole model."""
    result = evaluator_of(tmp_path, "llama3.1_8B").evaluate(TrialConfig(pp=4, pp_schedule="seaailab-ilp"))
    assert not result.legal and result.iteration_ms is None


@pytest.mark.parametrize("ep", [32, 64, 128])
def test_p13_exchange_over_many_nodes_has_a_finite_price_that_grows(tmp_path: Path, ep: int) -> None:
    """Primus divides by zero from 26 nodes on."""
    pricing = evaluator_of(tmp_path, "qwen3_30B_A3B", gpu="mi355x", nodes=32, global_batch_size=2048)
    assert 0 < speed(pricing, ep=ep) < speed(pricing, ep=8)


@pytest.mark.parametrize(
    ("model", "knobs", "told"),
    [
        ("llama3.1_8B", {"tp": 5}, "TP 5"),
        ("deepseek_v2_lite", {"ep": 3}, "EP 3"),
        ("llama3.1_8B", {"pp": 3}, "PP 3"),
        ("llama3.1_8B", {"tp": 4, "pp": 4}, "8 GPUs"),
    ],
)
def test_p15_what_does_not_divide_is_refused_with_the_numbers(tmp_path: Path, model: str, knobs: dict[str, Any], told: str) -> None:
    result = evaluator_of(tmp_path, model).evaluate(TrialConfig(**knobs))
    assert not result.legal and result.reason is not None and told in result.reason


def test_p16_a_batch_that_does_not_divide_is_refused_and_never_rounded(tmp_path: Path) -> None:
    result = evaluator_of(tmp_path, "llama3.1_8B", global_batch_size=100).evaluate(TrialConfig(mbs=3))
    assert not result.legal and result.reason is not None and "100" in result.reason


def test_p19_a_model_that_is_not_what_its_name_says_is_told(tmp_path: Path) -> None:
    """Primus's MI300X file builds DeepSeek-V3 without latent attention: 687.9 billion parameters instead of 671."""
    workload = evaluator_of(tmp_path, "deepseek_v3", gpu="mi300x", multi_latent_attention=False).workload
    assert workload.architecture.latent_attention is None
    assert any("multi_latent_attention" in finding.text or "latent" in finding.text for finding in workload.findings)


def test_t1_selective_recompute_is_no_factor_on_the_whole(tmp_path: Path) -> None:
    """Primus's agent multiplies memory by 0.55: 321.5 -> 176.8 GB, accepted. Core attention under flash keeps one number a row."""
    pricing = evaluator_of(tmp_path, "llama3.1_8B", gpu="mi355x")
    plain, lighter = (memory(pricing, recompute_granularity=granularity).memory_per_gpu_gb for granularity in ("none", "selective"))
    assert plain is not None and lighter is not None
    assert 0.9 < lighter / plain <= 1


def test_t2_activations_differ_from_trial_to_trial(tmp_path: Path) -> None:
    """Primus's agent reads 0.1875 GB for every trial, which is the embedding's."""
    pricing = evaluator_of(tmp_path, "llama3.1_8B", gpu="mi355x")
    one, two = (memory(pricing, mbs=mbs).activation_gb for mbs in (1, 2))
    assert one is not None and two is not None and 1.8 < two / one < 2.2


@pytest.mark.parametrize("knobs", [{"mbs": 2}, {"gbs": 512}, {"pp": 2, "vpp": 4}])
def test_t3_sizes_of_a_trial_reach_the_memory_projection(tmp_path: Path, knobs: dict[str, Any]) -> None:
    result = memory(evaluator_of(tmp_path, "llama3.1_8B", gpu="mi355x"), **knobs)
    assert result.resolved is not None and knobs.items() <= result.resolved.items()


def test_t5_replicas_of_weights_and_of_experts_are_counted_apart(tmp_path: Path) -> None:
    result = memory(evaluator_of(tmp_path, "qwen3_30B_A3B", gpu="mi355x", nodes=4), tp=2, pp=2, ep=4, expert_tensor_parallel_size=1)
    assert (result.dp, result.expert_dp) == (32 // (2 * 2), 32 // (2 * 4))
