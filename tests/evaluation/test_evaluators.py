"""Evaluators: rules, then memory, then time; a number that was not computed is null."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from workload_cases import written_workload

from primus_mcp.errors import InputError
from primus_mcp.evaluation.cheapest import cheapest_fitting_change, fitting_changes, memory_changes
from primus_mcp.evaluation.convert import FITS_ONLY_BALANCED
from primus_mcp.evaluation.digest import digest, plain
from primus_mcp.evaluation.evaluators import Evaluator, FullEvaluator, Mode, Rules, make_evaluator
from primus_mcp.evaluation.rank import is_candidate
from primus_mcp.evaluation.result import OUTSIDE_POLICY, EvaluationResult
from primus_mcp.evaluation.synthetic import HEURISTIC_MFU, bubble, heuristic_tokens_per_s, relative_speed
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.cluster_file import BenchmarkHost
from primus_mcp.inputs.training import Recompute, TrainingConfig
from primus_mcp.inputs.workload import Workload
from primus_mcp.projection.memory import project_memory
from primus_mcp.projection.parameters import active_parameters
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.notes import GBS_DIFFERS, PRECISION_DIFFERS
from primus_mcp.units import bytes_to_gb


def workload(folder: Path, model: str = "llama3.1_8B", *, ep: int = 1, mbs: int = 2, **more: Any) -> Workload:
    degrees = {"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1, "expert_model_parallel_size": ep}
    return written_workload(folder, model, **degrees, micro_batch_size=mbs, **more)


def evaluator(folder: Path, mode: Mode = "full", *, model: str = "llama3.1_8B", ep: int = 1, mbs: int = 2, **cluster: Any) -> Evaluator:
    rules = Rules(workload=workload(folder, model, ep=ep, mbs=mbs), cluster=make_cluster("mi300x", **cluster), axes={}, pins={})
    return make_evaluator(rules, mode=mode, gemm_backend="roofline")


NUMBERS = [
    name
    for name in EvaluationResult.model_fields
    if name.endswith(("_gb", "_ms", "_per_gpu", "_ratio", "_breakdown")) or name in ("mfu", "dp", "within_margin", "fits_physically")
]


@pytest.mark.parametrize("mode", ["dry", "memory-real", "full"])
def test_an_illegal_trial_has_a_reason_with_numbers_the_rules_and_no_number_at_all(tmp_path: Path, mode: Mode) -> None:
    result = evaluator(tmp_path, mode).evaluate(TrialConfig(tp=3))
    assert not result.legal and result.refused_by
    assert result.reason is not None and "3" in result.reason
    assert {name: getattr(result, name) for name in NUMBERS} == dict.fromkeys(NUMBERS)


@pytest.mark.parametrize("mode", ["memory-real", "full"])
def test_what_does_not_fit_is_legal_says_by_how_much_and_has_no_throughput(tmp_path: Path, mode: Mode) -> None:
    big = evaluator(tmp_path, mode, hbm_capacity_gb=40.0)
    result = big.evaluate(TrialConfig())
    assert result.legal and result.within_margin is False
    assert result.tokens_per_s_per_gpu is None and result.iteration_ms is None and result.time_breakdown is None
    assert result.memory_per_gpu_gb is not None and result.reason is not None
    assert f"{result.memory_per_gpu_gb:.1f} GB" in result.reason and f"{result.memory_per_gpu_gb - 36:.1f} GB more" in result.reason


def test_a_legal_result_adds_up(tmp_path: Path) -> None:
    full = evaluator(tmp_path, num_nodes=2)
    result = full.evaluate(TrialConfig(tp=2, pp=2, mbs=1))
    assert result.legal and result.reason is None and result.within_margin and result.source == "simulate"
    assert (
        result.iteration_ms and result.tokens_per_s_per_gpu and result.time_breakdown and result.memory_breakdown and result.comm_breakdown
    )
    assert result.dp == 4 and result.micro_batches == 64
    assert result.tokens_per_s_per_gpu == pytest.approx(256 * 4096 / (result.iteration_ms / 1e3) / 16)
    assert sum(result.time_breakdown.values()) == pytest.approx(result.iteration_ms)
    assert sum(result.memory_breakdown.values()) == pytest.approx(result.memory_per_gpu_gb)
    assert result.comm_breakdown["total"] == pytest.approx(sum(v for k, v in result.comm_breakdown.items() if k != "total"))
    assert result.per_rank_memory_gb is not None and max(result.per_rank_memory_gb) == result.memory_per_gpu_gb
    assert result.resolved is not None and (result.resolved["tp"], result.resolved["recompute_granularity"]) == (2, "none")
    assert result.confidence and "off by" in result.confidence


def test_memory_only_and_the_full_evaluation_agree_on_memory(tmp_path: Path) -> None:
    full = evaluator(tmp_path)
    assert isinstance(full, FullEvaluator)
    cheap, whole = full.evaluate_memory_only(TrialConfig()), full.evaluate(TrialConfig())
    assert cheap.memory_breakdown == whole.memory_breakdown and cheap.tokens_per_s_per_gpu is None and cheap.source == "memory_only"


def test_memory_real_projects_memory_and_calls_its_throughput_heuristic(tmp_path: Path) -> None:
    result = evaluator(tmp_path, "memory-real").evaluate(TrialConfig())
    full = evaluator(tmp_path)
    memory = project_memory(full.workload.architecture, full.workload.baseline, full.cluster)
    assert result.memory_per_gpu_gb == bytes_to_gb(memory.device_bytes)
    assert (result.fidelity, result.source) == ("heuristic", "memory_only") and result.tokens_per_s_per_gpu is not None
    assert result.mfu is None and result.tflops_per_s_per_gpu is None and result.time_breakdown is None


@pytest.mark.parametrize("mode", ["dry", "memory-real"])
def test_the_heuristic_knows_that_bubbles_and_recompute_cost(tmp_path: Path, mode: Mode) -> None:
    found = evaluator(tmp_path, mode, num_nodes=1)
    speed = [
        found.evaluate(TrialConfig(mbs=1, **knobs)).tokens_per_s_per_gpu or math.nan
        for knobs in ({}, {"pp": 2}, {"pp": 4}, {"recompute_granularity": "full"})
    ]
    assert speed[0] > speed[1] > speed[2] and speed[0] == pytest.approx(speed[3] * 4 / 3)


def test_the_rule_of_thumb_charges_each_degree_and_pays_for_each_lever() -> None:
    def speed(**changes: Any) -> float:
        return relative_speed(TrainingConfig(**changes), 64)

    assert all(speed(**{degree: 4}) < speed(**{degree: 2}) < speed() for degree in ("tp", "cp", "ep", "pp"))
    assert speed(mbs=2) > speed() and speed(fp8="hybrid") > speed() and speed(dispatcher="deepep") > speed()
    assert speed(pp=4, schedule="zero-bubble") > speed(pp=4) and speed(pp=4, vpp=2) > speed(pp=4)


def test_the_bubble_and_the_throughput_of_the_rule_of_thumb_by_hand(tmp_path: Path) -> None:
    assert bubble(TrainingConfig(pp=4), 8) == pytest.approx(3 / (8 + 3))
    assert bubble(TrainingConfig(pp=4, vpp=2), 8) == pytest.approx(3 / (16 + 3))
    assert bubble(TrainingConfig(pp=4, schedule="zero-bubble"), 8) == pytest.approx(1.5 / (8 + 1.5))
    found = evaluator(tmp_path, "memory-real", num_nodes=1)
    arch, cluster = found.workload.architecture, found.cluster
    plain = heuristic_tokens_per_s(arch, TrainingConfig(), cluster, 8)
    assert plain == pytest.approx(HEURISTIC_MFU * cluster.profile.sustained_flops["bf16"] / (6 * active_parameters(arch)))


def test_made_up_memory_grows_with_the_micro_batch_and_shrinks_with_what_divides_it(tmp_path: Path) -> None:
    dry = evaluator(tmp_path, "dry", num_nodes=1)
    one, two = dry.evaluate(TrialConfig(mbs=1)), dry.evaluate(TrialConfig(mbs=2))
    split, forgotten = dry.evaluate(TrialConfig(mbs=1, tp=2)), dry.evaluate(TrialConfig(mbs=1, recompute_granularity="full"))
    assert one.activation_gb and one.param_optimizer_gb
    assert two.activation_gb == pytest.approx(2 * one.activation_gb) and two.param_optimizer_gb == one.param_optimizer_gb
    assert split.activation_gb == pytest.approx(one.activation_gb / 2)
    assert split.param_optimizer_gb == pytest.approx(one.param_optimizer_gb / 2)
    assert forgotten.activation_gb is not None and forgotten.activation_gb < one.activation_gb


@pytest.mark.parametrize("mode", ["dry", "memory-real", "full"])
def test_a_trial_fits_where_it_is_legal_and_inside_the_margin(tmp_path: Path, mode: Mode) -> None:
    assert evaluator(tmp_path, mode).fits(TrialConfig(mbs=1))
    assert not evaluator(tmp_path, mode).fits(TrialConfig(tp=3))
    assert not evaluator(tmp_path, mode, hbm_capacity_gb=5.0).fits(TrialConfig(mbs=1))


def test_the_same_trial_gives_the_same_answer_in_another_evaluator(tmp_path: Path) -> None:
    for mode in ("dry", "memory-real", "full"):
        one, two = evaluator(tmp_path, mode), evaluator(tmp_path, mode)
        assert one.evaluate(TrialConfig(tp=2)) == two.evaluate(TrialConfig(tp=2))
        assert one.key(TrialConfig(tp=2)) == two.key(TrialConfig(tp=2)) != one.key(TrialConfig(tp=4))


def test_modes_never_share_a_key_because_their_numbers_never_mix(tmp_path: Path) -> None:
    assert len({evaluator(tmp_path, mode).key(TrialConfig()) for mode in ("dry", "memory-real", "full")}) == 3


def test_another_batch_size_is_flagged_as_not_comparable(tmp_path: Path) -> None:
    full = evaluator(tmp_path)
    codes = {warning.code for warning in full.evaluate(TrialConfig(gbs=512)).warnings}
    assert GBS_DIFFERS in codes and GBS_DIFFERS not in {warning.code for warning in full.evaluate(TrialConfig()).warnings}


def test_another_precision_is_flagged_with_the_pin_that_keeps_the_workloads_own(tmp_path: Path) -> None:
    full = evaluator(tmp_path)
    told = {warning.code: warning.text for warning in full.evaluate(TrialConfig(fp8="hybrid")).warnings}
    assert told[PRECISION_DIFFERS] == "computes in FP8, the workload in BF16: `--pin fp8=none` holds BF16"
    assert PRECISION_DIFFERS not in {warning.code for warning in full.evaluate(TrialConfig(tp=2)).warnings}


def test_a_finding_of_the_baseline_is_gone_from_a_trial_that_mends_it_and_a_new_one_is_told(tmp_path: Path) -> None:
    def codes(more: dict[str, Any], model: str, **knobs: Any) -> set[str]:
        subject = workload(tmp_path, model, ep=8 if "mix" in model else 1, **more)
        rules = Rules(workload=subject, cluster=make_cluster("mi300x", num_nodes=4), axes={}, pins={})
        return {warning.code for warning in make_evaluator(rules, mode="memory-real").evaluate(TrialConfig(**knobs)).warnings}

    legacy = {"moe_use_legacy_grouped_gemm": True}
    assert "legacy-bf16" not in codes(legacy, "mixtral_8x7B_v0.1")
    assert "legacy-bf16" in codes(legacy, "mixtral_8x7B_v0.1", fp8="hybrid")
    nothing = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 0}
    assert "recompute-none" in codes(nothing, "llama3.1_8B")
    assert "recompute-none" not in codes(nothing, "llama3.1_8B", recompute_granularity="none")


def test_policy_bounds_are_lifted_for_the_workload_itself_only(tmp_path: Path) -> None:
    full = evaluator(tmp_path, mbs=3, num_nodes=1)
    rules = full.rules
    wide = TrialConfig(mbs=32)
    assert not rules.check(wide).legal and "policy" in (rules.check(wide).reason or "")
    lifted = Rules(workload=rules.workload, cluster=rules.cluster, axes={}, pins={}, allow_policy=True)
    assert lifted.check(wide).legal


@pytest.mark.parametrize("mode", ["dry", "memory-real", "full"])
def test_a_single_evaluation_prices_what_the_policy_alone_refuses_under_a_key_of_its_own(tmp_path: Path, mode: Mode) -> None:
    found = evaluator(tmp_path, mode, num_nodes=1)
    wide, own, broken = TrialConfig(mbs=32), TrialConfig(), TrialConfig(tp=3)
    assert not found.evaluate(wide).legal
    single = found.evaluate(wide, single=True)
    assert single.legal and OUTSIDE_POLICY in {warning.code for warning in single.warnings} and not is_candidate(single)
    assert found.key(wide, single=True) != found.key(wide)
    assert found.key(own, single=True) == found.key(own) and found.evaluate(own, single=True) == found.evaluate(own)
    assert found.key(broken, single=True) == found.key(broken) and not found.evaluate(broken, single=True).legal
    assert not found.starts_a_run(own)


def test_a_refused_trial_shows_what_it_resolves_to(tmp_path: Path) -> None:
    refused = evaluator(tmp_path).evaluate(TrialConfig(tp=3))
    assert refused.resolved is not None and refused.resolved["tp"] == 3


def test_measured_runs_need_a_gpu_and_say_so(tmp_path: Path) -> None:
    rules = evaluator(tmp_path).rules
    with pytest.raises(InputError, match="benchmark_gpus: is 0"):
        make_evaluator(rules, profiling_mode="benchmark", has_gpu=True, benchmark=BenchmarkHost(has_gpu=True))
    refused = make_evaluator(rules, profiling_mode="benchmark", has_gpu=False, gemm_backend="roofline").evaluate(TrialConfig())
    assert not refused.legal and "has_gpu=false" in (refused.reason or "") and "no-benchmark-gpu" in refused.refused_by


def test_the_cheapest_change_fits_and_changes_one_knob_where_one_is_enough(tmp_path: Path) -> None:
    full = evaluator(tmp_path, mbs=8)
    assert full.evaluate(TrialConfig()).within_margin is False
    fitting = cheapest_fitting_change(full, TrialConfig())
    assert fitting is not None and fitting.text == "mbs=4"
    assert fitting.result.within_margin and full.evaluate(TrialConfig(**fitting.change)) == fitting.result  # type: ignore[arg-type]


def test_each_knob_is_changed_no_further_than_it_must_be(tmp_path: Path) -> None:
    full = evaluator(tmp_path, mbs=16)
    found = fitting_changes(full, TrialConfig())
    assert len(found) >= 2 and all(fitting.result.within_margin for fitting in found)
    speeds = [fitting.result.tokens_per_s_per_gpu or 0.0 for fitting in found]
    assert speeds == sorted(speeds, reverse=True)
    for fitting in found:
        name, value = list(fitting.change.items())[-1]
        less = {"mbs": 2 * int(value or 0), "recompute_num_layers": int(value or 0) - 1}.get(name, int(value or 0) // 2)
        assert not full.fits(TrialConfig(**{**fitting.change, name: less}))  # type: ignore[arg-type]


def test_where_no_single_change_fits_the_fastest_pair_of_next_steps_does(tmp_path: Path) -> None:
    """Degrees held: the micro-batch and recomputation are left, and neither is enough alone."""
    degrees = dict.fromkeys(("tp", "pp", "cp"), False)
    rules = Rules(workload=workload(tmp_path, mbs=8), cluster=make_cluster("mi300x", hbm_capacity_gb=90.0), axes=degrees, pins={})
    found = make_evaluator(rules, gemm_backend="roofline")
    assert fitting_changes(found, TrialConfig()) == []
    pair = cheapest_fitting_change(found, TrialConfig())
    assert pair is not None and pair.text == "mbs=1 recompute_granularity=full" and pair.result.within_margin


def test_what_lowers_memory_is_tried_only_where_it_is_not_on_already() -> None:
    whole = TrainingConfig(mbs=4, use_distributed_optimizer=False, recompute=Recompute(granularity="none"))
    assert memory_changes(whole, moe=True) == [
        {"mbs": 2},
        {"mbs": 1},
        {"recompute_granularity": "full"},
        {"use_distributed_optimizer": True},
        {"cross_entropy_loss_fusion": True},
        {"tp": 2},
        {"pp": 2},
        {"cp": 2},
        {"ep": 2},
    ]
    lean = TrainingConfig(cross_entropy_loss_fusion=True, recompute=Recompute(granularity="full", method="block", num_layers=2))
    assert memory_changes(lean, moe=False) == [{"tp": 2}, {"pp": 2}, {"cp": 2}]


def test_a_trial_that_is_illegal_has_no_change_that_makes_it_fit(tmp_path: Path) -> None:
    assert fitting_changes(evaluator(tmp_path), TrialConfig(tp=3)) == []


def test_a_mixture_says_its_balance_and_its_memory_under_uneven_load(tmp_path: Path) -> None:
    result = evaluator(tmp_path, "memory-real", model="mixtral_8x7B_v0.1", ep=8, num_nodes=2).evaluate(TrialConfig(mbs=1))
    assert result.memory_at_expert_load_gb is not None and result.memory_per_gpu_gb is not None
    assert result.memory_per_gpu_gb < result.memory_at_expert_load_gb["1.5"] < result.memory_at_expert_load_gb["2"]
    told = next(warning for warning in result.warnings if warning.code == "memory_at_expert_load")
    assert "priced at 1 times the mean" in told.text
    assert evaluator(tmp_path, "memory-real").evaluate(TrialConfig(mbs=1)).memory_at_expert_load_gb is None


def test_no_rank_is_hotter_where_every_rank_has_all_experts(tmp_path: Path) -> None:
    result = evaluator(tmp_path, model="mixtral_8x7B_v0.1", ep=1, num_nodes=2).evaluate(TrialConfig(mbs=1))
    assert result.memory_at_expert_load_gb is None
    told = {warning.code for warning in result.warnings}
    assert not told & {"expert_load_assumed", "balance_assumed", "memory_at_expert_load", FITS_ONLY_BALANCED}


def test_a_trial_counts_the_settings_that_are_not_the_workload_s_own(tmp_path: Path) -> None:
    full = evaluator(tmp_path)
    changed = [
        full.evaluate(trial).settings_changed for trial in (TrialConfig(), TrialConfig(mbs=2), TrialConfig(mbs=1), TrialConfig(mbs=1, tp=2))
    ]
    assert changed[:3] == [0, 0, 1] and (changed[3] or 0) > 1


def test_what_fits_only_while_experts_are_balanced_has_a_warning_of_its_own(tmp_path: Path) -> None:
    mixture: dict[str, Any] = {"model": "mixtral_8x7B_v0.1", "ep": 8, "num_nodes": 2}
    roomy = evaluator(tmp_path, "memory-real", **mixture).evaluate(TrialConfig(mbs=1))
    assert roomy.fits_physically == "fits" and FITS_ONLY_BALANCED not in {warning.code for warning in roomy.warnings}
    assert roomy.memory_upper_gb is not None
    tight = evaluator(tmp_path, "memory-real", **mixture, hbm_capacity_gb=roomy.memory_upper_gb + 0.01).evaluate(TrialConfig(mbs=1))
    assert tight.fits_physically == "fits"
    told = next(warning.text for warning in tight.warnings if warning.code == FITS_ONLY_BALANCED)
    assert "at 1.5 times the mean (fits)" not in told and "at 1.5 times the mean (" in told


def test_there_is_no_cheap_change_when_nothing_near_fits(tmp_path: Path) -> None:
    assert cheapest_fitting_change(evaluator(tmp_path, hbm_capacity_gb=5.0), TrialConfig()) is None
    assert cheapest_fitting_change(evaluator(tmp_path), TrialConfig(tp=10**4)) is None


def test_equal_records_have_equal_digests_whatever_the_order_of_their_keys() -> None:
    assert digest({"a": 1, "b": (1, 2)}) == digest({"b": [1, 2], "a": 1}) != digest({"a": 1, "b": (2, 1)})
    assert plain({"path": Path("a") / "b", "key": SecretStr("hidden"), "set": frozenset({2, 1})}) == {
        "path": "a/b",
        "key": None,
        "set": [1, 2],
    }
    with pytest.raises(TypeError):
        plain(object())
