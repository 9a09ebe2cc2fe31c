"""Thousands of micro-batches at the price of few, also where stages drift apart before they wait for each other."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_mcp.projection.pipeline import build_order, simulate_order, stretch
from primus_mcp.projection.pipeline.rules import SCHEDULES, model_copies, order_problem
from primus_mcp.projection.pipeline.steady import NamedFamily, extended_run
from primus_mcp.projection.pipeline.stretch import Stretch, run_blocks, run_stretch
from primus_mcp.projection.pipeline.times import StageTimes, stage_times

PERIODIC = [schedule for schedule in SCHEDULES if schedule not in ("gpipe", "zero-bubble-heuristic", "1f1b-a2a")]


def extended(schedule: str, pp: int, vpp: int, micro_batches: int, times: StageTimes) -> tuple[list[float], int]:
    """(end of every rank, micro-batches in the graph)."""
    family = NamedFamily(schedule=schedule, pp=pp, vpp=vpp, group_size=None, planner=None, blocking=False)
    graph, end, more_s = extended_run(family, micro_batches, times.values(pp, schedule))
    return [end[node] + more_s for node in graph.tails], graph.order.micro_batches


@pytest.mark.parametrize("schedule", PERIODIC)
@pytest.mark.parametrize("hop", [0.0, 0.13])
def test_stages_that_differ_by_a_thousandth_need_no_larger_graph(schedule: str, hop: float) -> None:
    pp = 4
    vpp = 1 if order_problem(schedule, pp, 1, 480) is None else 2
    last = pp * vpp - 1
    slow = tuple({0: 1.001, last: 1.0015}.get(stage, 1.0) for stage in range(last + 1))
    times = stage_times(last + 1, slow, slow, slow, hop)
    ends, size = extended(schedule, pp, vpp, 480, times)
    assert size <= 5 * pp * model_copies(schedule)
    assert ends == pytest.approx(simulate_order(build_order(schedule, pp, vpp, 480), times).rank_end_s, rel=1e-11)


@settings(deadline=None)
@given(
    schedule=st.sampled_from(PERIODIC),
    pp=st.sampled_from([2, 4, 6]),
    differ=st.sampled_from([1e-4, 1e-3, 1e-2, 0.3]),
    hop=st.sampled_from([0.0, 0.02, 0.4]),
    data=st.data(),
)
def test_any_drift_ends_where_simulating_every_micro_batch_ends(
    schedule: str, pp: int, differ: float, hop: float, data: st.DataObject
) -> None:
    vpp = 1 if order_problem(schedule, pp, 1, 240) is None else 2
    steps = st.lists(st.integers(0, 3), min_size=pp * vpp, max_size=pp * vpp)
    forward, backward, weight = (tuple(1.0 + differ * step for step in data.draw(steps)) for _ in range(3))
    times = stage_times(pp * vpp, forward, backward, weight, hop)
    ends, _ = extended(schedule, pp, vpp, 240, times)
    assert ends == pytest.approx(simulate_order(build_order(schedule, pp, vpp, 240), times).rank_end_s, rel=1e-10)


def test_a_drift_of_a_million_blocks_is_a_few_dozen_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two ranks of 1 and 1.0001 s. The second waits for the first, whose lead of 50 s is used up after 500,000 blocks.
    block = Stretch(rows=((0, 0, 0, 1), (1, 2, 0, 2)), nodes=(1, 2), outcome=(2, 3))
    values, runs = [0.0, 1.0001, 1.0], []

    def counted(part: Stretch, state: list[float], table: list[float]) -> list[float]:
        runs.append(1)
        return run_stretch(part, state, table)

    monkeypatch.setattr(stretch, "run_stretch", counted)
    assert run_blocks(block, [0.0, 50.0], values, 1_000_000, 4) == pytest.approx([1_000_100.0, 1_000_101.0], rel=1e-11)
    assert len(runs) < 40


def test_blocks_in_a_row_are_one_block_after_another() -> None:
    block = Stretch(rows=((0, 1, 1, 2), (1, 2, 1, 3), (2, 3, 0, 2)), nodes=(1, 2, 3), outcome=(4, 3))
    values = [0.0, 0.25, 1.0, 1.003]
    states = [[0.0, 7.0]]
    for _ in range(300):
        end = run_stretch(block, states[-1], values)
        states.append([end[slot] for slot in block.outcome])
    for count in (1, 2, 17, 300):
        assert run_blocks(block, [0.0, 7.0], values, count, 4) == pytest.approx(states[count], rel=1e-12)
    assert all(min(new) > min(old) for old, new in pairwise(states))
