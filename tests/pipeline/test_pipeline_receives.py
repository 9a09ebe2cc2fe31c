"""A rank of Primus's own pipeline asks for its inputs where they stand in its table, and two neighbours exchange one thing at a time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_mcp.projection.pipeline import build_order, simulate, simulate_order, trace
from primus_mcp.projection.pipeline.order import Task
from primus_mcp.projection.pipeline.receives import received_before_weights, received_by_steps
from primus_mcp.projection.pipeline.rules import order_problem
from primus_mcp.projection.pipeline.steady import NamedFamily, extended_run
from primus_mcp.projection.pipeline.times import StageTimes, stage_times

ASKING = ("zero-bubble", "zbv-formatted", "v-half", "v-min")


def chunks(schedule: str) -> int:
    return 1 if schedule == "zero-bubble" else 2


@st.composite
def uneven(draw: st.DrawFn) -> tuple[str, int, StageTimes]:
    """(schedule, PP, times of its stages)."""
    schedule, pp = draw(st.sampled_from(ASKING)), draw(st.sampled_from([2, 3, 4, 6]))
    stages, differ = pp * chunks(schedule), draw(st.sampled_from([0.0, 1e-3, 1e-2, 0.3]))
    steps = st.lists(st.integers(0, 3), min_size=stages, max_size=stages)
    forward, backward, weight = (tuple(base + differ * step for step in draw(steps)) for base in (1.0, 1.2, 0.6))
    return schedule, pp, stage_times(stages, forward, backward, weight, draw(st.sampled_from([0.0, 0.02, 0.1, 0.4])))


def step_s(schedule: str, pp: int, micro_batches: int, times: StageTimes, *, asking: bool) -> float:
    return simulate(
        schedule,
        pp=pp,
        vpp=chunks(schedule),
        micro_batches=micro_batches,
        forward_s=times.forward_s,
        backward_s=times.backward_s,
        weight_s=times.weight_s,
        hop_s=times.hop_s,
        asking=asking,
    ).step_s


def test_two_ranks_by_hand() -> None:
    """F = B = W = 1, hop 0.5. Rank 1 asks for its second input behind B0, at 3.5, although it was sent at 2; W0 hides the last transfer."""
    order = build_order("zero-bubble", 2, 1, 2)
    assert order.receives is not None
    assert order.receives.asked == ((0, 1, 2, 3, 3, 5), (0, 1, 2, 3, 4, 5))
    assert order.receives.queues == (((1, 0), (1, 2)), ((0, 2), (0, 4)))
    ones = (1.0, 1.0)
    times = stage_times(2, ones, ones, ones, 0.5)
    assert simulate_order(order, times).rank_end_s == (8.0, 7.5)
    assert simulate_order(order, times, asking=True).rank_end_s == (8.5, 8.0)
    first, second = ({(task.kind, task.micro_batch): task.start_s for task in tasks} for tasks in trace(order, times, asking=True))
    assert first == {("F", 0): 0.0, ("F", 1): 1.0, ("B", 0): 4.0, ("W", 0): 5.0, ("B", 1): 6.5, ("W", 1): 7.5}
    assert second == {("F", 0): 1.5, ("B", 0): 2.5, ("F", 1): 4.0, ("B", 1): 5.0, ("W", 0): 6.0, ("W", 1): 7.0}


def test_an_input_is_asked_for_before_a_weight_gradient_in_front_of_its_task() -> None:
    row = (Task("F", 0, 0), Task("B", 0, 0), Task("W", 0, 0), Task("F", 1, 0), Task("B", 1, 0), Task("W", 1, 0))
    assert received_before_weights((row,)).asked == ((0, 1, 2, 2, 4, 5),)
    assert received_before_weights((row,), hoisted=False).asked == ((0, 1, 2, 3, 4, 5),)


def test_on_a_common_clock_an_input_is_asked_for_one_step_behind_its_sender() -> None:
    # Two ranks, a V: stages 0 and 3 on rank 0. F0 of rank 1 is sent at step 0 and asked for at once; F1 of rank 0 is sent at step 2.
    rows = ((Task("F", 0, 0), Task("F", 1, 0), Task("F", 0, 1)), (Task("F", 0, 0), Task("F", 0, 1), Task("F", 1, 0)))
    found = received_by_steps(rows, ((0, 1, 3), (1, 2, 4)))
    assert found.asked == ((0, 1, 2), (0, 1, 1))
    assert found.queues == (((1, 0), (1, 2)), ((0, 2),))


def test_of_three_ranks_a_gradient_travels_behind_the_output_that_was_asked_for_with_it() -> None:
    """F = B = W = 1, hop 0.5: rank 2 ends B0 at 5 and asks for F1, ended at 4: that travels until 5.5, the gradient of B0 until 6."""
    order = build_order("zero-bubble", 3, 1, 3)
    assert order.receives is not None
    assert order.receives.queues[1][:4] == ((2, 0), (2, 2), (1, 2), (2, 4))
    ones = (1.0, 1.0, 1.0)
    last, middle = (trace(order, stage_times(3, ones, ones, ones, 0.5), asking=True)[rank] for rank in (2, 1))
    started = [{(task.kind, task.micro_batch): task.start_s for task in tasks} for tasks in (last, middle)]
    assert (started[0]["B", 0], started[0]["F", 1]) == (4.0, 5.5)
    assert started[1]["B", 0] == 6.0


@pytest.mark.parametrize("schedule", ASKING)
@pytest.mark.parametrize("pp", [2, 3, 4, 5, 8])
def test_every_input_is_asked_for_before_its_task_and_behind_no_task_that_needs_it(schedule: str, pp: int) -> None:
    order = build_order(schedule, pp, chunks(schedule), 3 * pp)
    assert order.receives is not None
    asked = order.receives.asked
    assert all(len(own) == len(row) for own, row in zip(asked, order.ranks, strict=True))
    assert all(0 <= early <= place for own in asked for place, early in enumerate(own))
    assert any(early < place for own in asked for place, early in enumerate(own))


@pytest.mark.parametrize("schedule", ASKING)
@pytest.mark.parametrize("pp", [2, 3, 5, 8, 16])
def test_no_queue_of_transfers_waits_for_ever(schedule: str, pp: int) -> None:
    stages = pp * chunks(schedule)
    times = stage_times(stages, (1.0,) * stages, (1.2,) * stages, (0.6,) * stages, 0.1)
    for micro_batches in (1, pp - 1, pp, 2 * pp - 1, 2 * pp, 3 * pp):
        if order_problem(schedule, pp, chunks(schedule), micro_batches) is None:
            order = build_order(schedule, pp, chunks(schedule), micro_batches)
            assert order.receives is not None
            hops = 2 * micro_batches * chunks(schedule) * (pp - 1)
            assert sum(map(len, order.receives.queues)) == hops
            assert simulate_order(order, times, asking=True).step_s > micro_batches * 2.8


def test_schedules_that_primus_does_not_run_do_not_ask() -> None:
    times = stage_times(8, (1.0,) * 8, (1.2,) * 8, (0.6,) * 8, 0.1)
    for schedule, vpp in (("1f1b", 1), ("interleaved", 2), ("dualpipe-v", 2)):
        order = build_order(schedule, 8 // vpp, vpp, 16)
        assert order.receives is None
        assert simulate_order(order, times, asking=True) == simulate_order(order, times)


@settings(deadline=None)
@given(case=uneven())
def test_asking_never_ends_a_step_earlier_and_costs_nothing_without_a_hop(case: tuple[str, int, StageTimes]) -> None:
    schedule, pp, times = case
    late, early = (step_s(schedule, pp, 24, times, asking=asking) for asking in (True, False))
    assert late >= early * (1 - 1e-12)
    if not any(times.hop_s):
        assert late == pytest.approx(early, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(case=uneven(), micro_batches=st.sampled_from([60, 97, 240]))
def test_many_micro_batches_end_where_simulating_each_of_them_ends(case: tuple[str, int, StageTimes], micro_batches: int) -> None:
    schedule, pp, times = case
    whole = simulate_order(build_order(schedule, pp, chunks(schedule), micro_batches), times, asking=True)
    assert step_s(schedule, pp, micro_batches, times, asking=True) == pytest.approx(whole.step_s, rel=1e-10)


@pytest.mark.parametrize("schedule", ASKING)
def test_asking_needs_no_larger_graph(schedule: str) -> None:
    stages = 8 * chunks(schedule)
    times = stage_times(stages, tuple(1.0 + 1e-3 * (stage == 0) for stage in range(stages)), (1.2,) * stages, (0.6,) * stages, 0.02)
    family = NamedFamily(schedule=schedule, pp=8, vpp=chunks(schedule), group_size=None, planner=None, blocking=False, asking=True)
    graph, _, _ = extended_run(family, 4096, times.values(8, schedule))
    assert graph.order.micro_batches <= 40


def test_a_zero_bubble_step_feels_every_hop_that_its_neighbours_work_used_to_hide() -> None:
    times = stage_times(4, (1.0,) * 4, (1.0,) * 4, (1.0,) * 4, 0.1)
    few, many = (step_s("zero-bubble", 4, count, times, asking=True) for count in (32, 64))
    assert many - few > 32 * 3.0  # a hop a cycle is felt, where 4 (P - 1) h once was all without asking
    assert step_s("zero-bubble", 4, 64, times, asking=False) - step_s("zero-bubble", 4, 32, times, asking=False) == pytest.approx(96.0)
