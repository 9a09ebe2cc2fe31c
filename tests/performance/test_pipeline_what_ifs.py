"""Orders that no trainer runs, priced through the whole projection: DualPipe's two copies, its overlap, the solved order, planner keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from time_cases import DENSE, DENSE_CONFIG, FOUR_NODES, MOE, MOE_CONFIG, dense, moe

from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.memory import project_memory
from primus_mcp.projection.performance.pipeline_time import plan_costs
from primus_mcp.projection.placement import place

PIPELINE = {"pp": 4, "gbs": 256, "overlap_grad_reduce": False, "overlap_param_gather": False}
TWO_COPIES = {**PIPELINE, "schedule": "dualpipe", "vpp": 2}


def config(**changes: object) -> TrainingConfig:
    return replace(DENSE_CONFIG, **{**PIPELINE, **changes})  # type: ignore[arg-type]


def test_two_copies_place_every_stage_on_two_mirrored_ranks() -> None:
    placed, plain = place(DENSE, config(schedule="dualpipe", vpp=2), 32), place(DENSE, config(), 32)
    assert placed.chunks == plain.chunks * 2
    assert placed.owner == (0, 1, 2, 3, 3, 2, 1, 0)
    assert (placed.copies, placed.streamed, placed.micro_batches) == (2, 16, 32)
    assert (placed.replicas, plain.replicas) == (16, 8)
    # Rank 0: first stage of one copy sends forth, last stage of the other sends back; a middle rank sends both ways for both.
    assert [placed.sends_of(rank) for rank in range(4)] == [2, 4, 4, 2]
    assert [plain.sends_of(rank) for rank in range(4)] == [1, 2, 2, 1]


def test_the_folded_form_keeps_one_copy() -> None:
    placed = place(DENSE, config(schedule="dualpipe-v", vpp=2), 32)
    assert (len(placed.chunks), placed.copies, placed.streamed) == (8, 1, 32)
    assert placed.owner == (0, 1, 2, 3, 3, 2, 1, 0)


@pytest.mark.parametrize("sharded", [True, False])
def test_weights_and_gradients_are_held_twice_and_optimizer_states_once_where_they_are_sharded(sharded: bool) -> None:
    # A middle rank of 4 holds 8 of 32 layers; under DualPipe 16. The copies are replicas: twice as many shards of twice as much.
    plain, doubled = (
        project_memory(DENSE, config(schedule=schedule, vpp=vpp, use_distributed_optimizer=sharded), FOUR_NODES).ranks[1].components
        for schedule, vpp in (("zero-bubble", 1), ("dualpipe", 2))
    )
    assert doubled["weights"] == 2 * plain["weights"]
    assert doubled["main_gradients"] == 2 * plain["main_gradients"]
    assert doubled["optimizer_states"] == pytest.approx((1 if sharded else 2) * plain["optimizer_states"])


def test_both_ends_of_the_model_lie_on_both_end_ranks() -> None:
    ranks = project_memory(DENSE, config(schedule="dualpipe", vpp=2), FOUR_NODES).ranks
    assert ranks[0].components["weights"] == ranks[3].components["weights"] > ranks[1].components["weights"]


def test_dualpipe_waits_less_than_1f1b_and_exchanges_gradients_of_two_copies() -> None:
    plain, doubled = dense(FOUR_NODES, **PIPELINE), dense(FOUR_NODES, **TWO_COPIES)
    assert doubled.bubble_ratio < plain.bubble_ratio
    assert doubled.communication_s["gradients"] > 1.5 * plain.communication_s["gradients"]
    assert sum(doubled.time_breakdown_s.values()) == pytest.approx(doubled.iteration_s)
    assert doubled.time_breakdown_s["bubble"] > 0


def test_only_the_flag_of_overlapped_exchange_hides_it_and_only_in_pairs() -> None:
    # Micro-batches large enough that the extra launches of overlap do not decide.
    few = {"pp": 4, "ep": 8, "mbs": 16, "gbs": 16 * 8 * 8, "overlap_grad_reduce": False, "overlap_param_gather": False, "vpp": 2}
    many = {**few, "gbs": 16 * 8 * 64}

    def won(sizes: dict[str, Any]) -> float:
        apart, together = (moe(FOUR_NODES, **sizes, schedule="dualpipe", overlap_moe_a2a=flag).iteration_s for flag in (False, True))
        return 1 - together / apart

    # 8 micro-batches of two directions: warm-up and cool-down, which pair nothing, are half of the run.
    assert 0 < won(few) < 0.7 * won(many)


def test_the_solved_order_is_no_slower_than_zero_bubble_and_says_its_gap() -> None:
    pytest.importorskip("highspy", reason="the extra ilp is not installed")
    plain, solved = dense(FOUR_NODES, **PIPELINE, schedule="zero-bubble"), dense(FOUR_NODES, **PIPELINE, schedule="seaailab-ilp")
    assert solved.iteration_s <= plain.iteration_s * (1 + 1e-9)
    assert "live" in dict(solved.warnings)["schedule-gap"]
    assert "schedule-gap" not in dict(plain.warnings)


def test_the_memory_of_the_solved_order_is_bounded_by_its_cap() -> None:
    memory = [
        project_memory(DENSE, config(schedule="seaailab-ilp", pp_max_mem=(cap,) * 4), FOUR_NODES).worst.activation_bytes
        for cap in (2.0, 4.0, 6.0)
    ]
    assert memory[0] < memory[1] < memory[2]
    zero_bubble = project_memory(DENSE, config(schedule="zero-bubble"), FOUR_NODES).worst.activation_bytes
    default = project_memory(DENSE, config(schedule="seaailab-ilp"), FOUR_NODES).worst.activation_bytes
    assert zero_bubble <= default == memory[1]


def test_a_cap_of_the_planner_saves_memory_and_costs_time() -> None:
    capped = config(schedule="zero-bubble-heuristic", pp_max_mem=(4.0,) * 4)
    free = config(schedule="zero-bubble-heuristic")
    held = [project_memory(DENSE, c, FOUR_NODES).worst.activation_bytes for c in (capped, free)]
    assert held[0] < 0.3 * held[1]  # 4 of 32 micro-batches stay alive
    times = [dense(FOUR_NODES, **PIPELINE, schedule=c.schedule, pp_max_mem=c.pp_max_mem).iteration_s for c in (capped, free)]
    assert times[0] >= times[1]


def test_the_planner_plans_with_the_keys_and_runs_with_the_real_times() -> None:
    slow_first = (3000.0, 1000.0, 1000.0, 1000.0)
    told = config(schedule="zero-bubble-heuristic", pp_cost_f=slow_first, pp_max_mem=(6.0,) * 4)
    planner = plan_costs(told, (), 0.0)
    assert planner is not None
    assert (planner.forward, planner.backward[0], planner.caps) == (slow_first, 1000.0, (6.0,) * 4)
    assert plan_costs(config(schedule="zero-bubble-heuristic"), (), 0.0) is None  # Primus's own defaults


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("schedule", ["zero-bubble", "v-half"])
def test_a_split_backward_has_no_weight_gradient_beside_the_sum_of_input_gradients(schedule: str, sequence_parallel: bool) -> None:
    vpp = 1 if schedule == "zero-bubble" else 2
    wide = {**PIPELINE, "tp": 2, "vpp": vpp, "sequence_parallel": sequence_parallel, "schedule": schedule}
    beside, alone = (dense(FOUR_NODES, **wide, overlap_tp_all_reduce=flag).iteration_s for flag in (True, False))
    assert beside == alone
    whole = {**wide, "schedule": "1f1b" if vpp == 1 else "interleaved"}
    assert dense(FOUR_NODES, **whole).iteration_s < dense(FOUR_NODES, **whole, overlap_tp_all_reduce=False).iteration_s


def test_an_moe_model_runs_in_both_directions() -> None:
    found = moe(FOUR_NODES, pp=4, ep=8, vpp=2, mbs=1, gbs=256, schedule="dualpipe", overlap_grad_reduce=False)
    memory = project_memory(MOE, replace(MOE_CONFIG, pp=4, vpp=2, mbs=1, schedule="dualpipe"), FOUR_NODES)
    assert found.micro_batches == 32
    assert memory.worst.param_optimizer_bytes > 0
