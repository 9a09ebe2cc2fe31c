"""Legality never raises, always says why with numbers, and tells hard rules from policy."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest
from space_cases import MODELS, make_workload, nodes

from primus_mcp.projection.pipeline import order_problem
from primus_mcp.projection.placement import place
from primus_mcp.space.knobs import KNOBS, TrialConfig
from primus_mcp.space.legality import check_legality

SIZES = [0, 1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 27, 32, 64]


def random_trial(generator: random.Random, share: float = 0.3) -> TrialConfig:
    chosen: dict[str, Any] = {}
    for name, knob in KNOBS.items():
        if generator.random() < share:
            whole = [size for size in SIZES if (knob.minimum or 0) <= size <= (knob.maximum or 0)]
            chosen[name] = generator.choice([64, 128, 256, 300]) if name == "gbs" else generator.choice(knob.choices or whole)
    return TrialConfig(**chosen)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("allow_policy", [False, True])
def test_any_trial_is_judged_and_a_legal_one_can_be_placed_and_scheduled(model: str, allow_policy: bool) -> None:
    generator, workload, placed = random.Random(model), make_workload(model), 0
    for _ in range(1500):
        cluster = nodes(generator.choice([1, 2, 3, 4, 8]))
        verdict = check_legality(workload, random_trial(generator, generator.choice([0.1, 0.3])), cluster, allow_policy=allow_policy)
        for violation in verdict.violations:
            assert re.search(r"\d", violation.message), violation
            assert "\n" not in violation.message
        assert verdict.legal == (verdict.reason is None) == (not verdict.violations)
        if verdict.legal:
            assert verdict.config is not None
            placement = place(workload.architecture, verdict.config, cluster.world_size)
            assert all(placement.of_rank(rank) for rank in range(placement.pp))
            c = verdict.config
            assert order_problem(c.schedule, c.pp, c.vpp, placement.micro_batches, c.microbatch_group_size) is None
            placed += 1
    assert placed > 50


def test_lifting_policy_only_ever_removes_reasons() -> None:
    generator, workload, cluster = random.Random(1), make_workload("moe"), nodes()
    for _ in range(500):
        trial = random_trial(generator)
        strict, lifted = check_legality(workload, trial, cluster), check_legality(workload, trial, cluster, allow_policy=True)
        assert set(lifted.violations) <= set(strict.violations)
        assert {violation.kind for violation in lifted.violations} <= {"hard"}


def test_a_policy_refusal_says_that_it_is_one() -> None:
    reason = check_legality(make_workload("dense"), TrialConfig(gbs=320, mbs=1), nodes()).reason
    assert reason is not None
    assert "policy: GBS 320" in reason
    assert "--allow-policy" in reason


def test_all_reasons_are_told_at_once() -> None:
    verdict = check_legality(make_workload("moe"), TrialConfig(tp=3, ep=5, vpp=2), nodes())
    assert {"T1", "E1", "L6", "W1", "W2"} <= {violation.rule for violation in verdict.violations}


@pytest.mark.parametrize(
    ("axis", "moved", "kept"),
    [
        ("tp", {"tp": 2}, {"tp": 1}),
        ("ep", {"expert_tensor_parallel_size": 2, "tp": 2}, {"ep": 8}),
        ("recompute", {"recompute_granularity": "full"}, {"recompute_granularity": "none"}),
        ("pp_schedule", {"pp": 4, "enable_zero_bubble": True}, {"pp": 4, "pp_schedule": "auto"}),
        ("overlap_grad_reduce", {"overlap_param_gather": False}, {"overlap_param_gather": True}),
    ],
)
def test_an_axis_that_is_off_holds_its_knobs_at_the_baseline(axis: str, moved: dict[str, Any], kept: dict[str, Any]) -> None:
    workload, axes = make_workload("moe"), {axis: False}
    refused = check_legality(workload, TrialConfig(**moved), nodes(), axes=axes, allow_policy=True)
    assert "pinned" in {violation.rule for violation in refused.violations}
    assert f"axes.{axis} false; `optimization: {{axes: {{{axis}: true}}}}` in the cluster file frees it" in str(refused.reason)
    assert check_legality(workload, TrialConfig(**kept), nodes(), axes=axes).legal


def test_a_pin_refuses_what_moves_it_and_wins_over_its_axis() -> None:
    workload, pins = make_workload("dense"), {"tp": 8}
    assert "tp is pinned to 8 (--pin), the trial sets 4" in str(check_legality(workload, TrialConfig(tp=4), nodes(), pins=pins).reason)
    assert check_legality(workload, TrialConfig(tp=8), nodes(), pins=pins, axes={"tp": False}).legal


def test_a_schedule_may_turn_overlap_off_on_a_pinned_axis_because_it_must() -> None:
    verdict = check_legality(
        make_workload("dense"), TrialConfig(pp=4, pp_schedule="zerobubble"), nodes(), axes={"overlap_grad_reduce": False}
    )
    assert verdict.legal
    assert verdict.config is not None
    assert not verdict.config.overlap_grad_reduce


def test_ep_beyond_dp_is_legal_because_experts_fold_over_every_rank() -> None:
    # 32 GPUs, TP 8: DP is 4, EP 8 with ETP 1 gives expert DP 4
    assert check_legality(make_workload("moe"), TrialConfig(tp=8, ep=8, expert_tensor_parallel_size=1), nodes()).legal


def test_deepep_leaves_a_node_only_where_a_node_has_8_gpus() -> None:
    """Primus-Turbo's buffer tells a rank's node by rank // 8, whatever the machine is."""
    workload = make_workload("moe", num_experts=16)
    for gpus, ep, legal in ((8, 16, True), (4, 8, False), (4, 4, True)):
        cluster = nodes(4, gpus_per_node=gpus)
        trial = TrialConfig(ep=ep, use_turbo_deepep=True, mbs=1)
        broken = {violation.rule for violation in check_legality(workload, trial, cluster).violations}
        assert ("E11" not in broken) == legal, (gpus, ep, broken)


def test_a_trial_that_contradicts_itself_is_refused_whatever_is_lifted() -> None:
    """Pricing one of two contradicting knobs would answer a question that nobody asked."""
    contradictions: list[tuple[str, dict[str, Any]]] = [
        ("dense", {"pp": 4, "vpp": 1, "mbs": 1, "pp_schedule": "zerobubble", "enable_zero_bubble": False}),
        ("dense", {"use_torch_fsdp2": True, "use_distributed_optimizer": True}),
        ("dense", {"recompute_granularity": "none", "recompute_num_layers": 2}),
        ("dense", {"overlap_grad_reduce": False, "overlap_param_gather": True}),
        ("moe", {"use_turbo_deepep": False, "sync_free_stage": 2}),
    ]
    for model, knobs in contradictions:
        verdict = check_legality(make_workload(model), TrialConfig(**knobs), nodes(4), allow_policy=True)
        assert not verdict.legal, knobs
        assert verdict.reason is not None and re.search(r"\d|true|false", verdict.reason)


def test_a_list_of_sizes_that_is_none_is_refused_not_an_error() -> None:
    """argparse reads `--rampup-batch-size 16 16 1000` as texts; a YAML file may hold anything."""
    apart = {"context_parallel_size": 4, "cp_comm_type": "a2a+p2p"}
    for value in (True, 3.5, "x", ["a", "b", "c"], [1, None, 2], {"a": 1}, [16, 16]):
        rampup = check_legality(make_workload("dense", rampup_batch_size=value), TrialConfig(), nodes())
        assert "B2" in {violation.rule for violation in rampup.violations}, value
        sizes = check_legality(make_workload("dense", hierarchical_context_parallel_sizes=value, **apart), TrialConfig(), nodes())
        assert "C2" in {violation.rule for violation in sizes.violations}, value
    assert check_legality(make_workload("dense", rampup_batch_size=["64", "64", "1000"]), TrialConfig(), nodes()).legal


def test_keys_that_the_trainer_cannot_read_are_a_reason_of_their_own() -> None:
    workload = make_workload("dense", pipeline_model_parallel_size=2, num_layers_per_virtual_pipeline_stage=8)
    assert check_legality(workload, TrialConfig(tp=2), nodes()).legal
    broken = replace(workload, arguments={**workload.arguments, "num_layers_per_virtual_pipeline_stage": 7})
    verdict = check_legality(broken, TrialConfig(tp=2), nodes())
    assert [violation.rule for violation in verdict.violations] == ["unreadable"] and verdict.config is None
    assert verdict.reason is not None and "7" in verdict.reason
