"""The solved order: the optimum against every order there is, limits that repeat, and growth that keeps order, cap and step."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_mcp.errors import InputError
from primus_mcp.projection.pipeline import (
    Task,
    Timeline,
    build_order,
    live_states,
    live_units,
    order_problem,
    simulate,
    simulate_order,
    stage_times,
)
from primus_mcp.projection.pipeline.graph import build_graph
from primus_mcp.projection.pipeline.heuristic import PlannerCosts, plan_heuristic
from primus_mcp.projection.pipeline.ilp import MAX_BINARIES, solve, within
from primus_mcp.projection.pipeline.ilp_model import KINDS, binaries_of, lower_bound_s
from primus_mcp.projection.pipeline.ilp_solver import GAP

pytest.importorskip("highspy", reason="the extra ilp is not installed")


def costs_of(*ranks: tuple[float, float, float], hop: float = 0.0, cap: float | None = None) -> PlannerCosts:
    """(F, B, W) of every rank."""
    forward, backward, weight = zip(*ranks, strict=True)
    return PlannerCosts(forward=forward, backward=backward, weight=weight, hop=hop, caps=None if cap is None else (cap,) * len(ranks))


def rows_of_a_rank(micro_batches: int, *, any_number: bool) -> list[tuple[Task, ...]]:
    """Every order of one rank's tasks with F before B before W; `any_number`: micro-batches need not come by number."""
    tasks = [Task(kind, i, 0) for i in range(micro_batches) for kind in KINDS]
    found = []
    for row in set(permutations(tasks)) if any_number else _by_number(micro_batches):
        place = {task: at for at, task in enumerate(row)}
        if all(place[Task("F", i, 0)] < place[Task("B", i, 0)] < place[Task("W", i, 0)] for i in range(micro_batches)):
            found.append(row)
    return found


def _by_number(micro_batches: int) -> Iterator[tuple[Task, ...]]:
    """Interleavings of F, B and W that each count up."""

    def grow(counts: tuple[int, int, int], row: tuple[Task, ...]) -> Iterator[tuple[Task, ...]]:
        if counts == (micro_batches,) * 3:
            yield row
        for at, kind in enumerate(KINDS):
            if counts[at] < micro_batches and (at == 0 or counts[at] < counts[at - 1]):
                f, b, w = (count + (i == at) for i, count in enumerate(counts))
                yield from grow((f, b, w), (*row, Task(kind, counts[at], 0)))

    yield from grow((0, 0, 0), ())


def shortest(micro_batches: int, costs: PlannerCosts, *, any_number: bool = False) -> float:
    """Step of the best of all orders that keep the caps, by trying every one."""
    pp = len(costs.forward)
    caps = costs.caps or (float(micro_batches),) * pp
    like = build_order("zero-bubble", pp, 1, micro_batches)
    times = stage_times(pp, costs.forward, costs.backward, costs.weight, costs.hop)
    rows = [[row for row in rows_of_a_rank(micro_batches, any_number=any_number) if within((row,), (cap,))] for cap in caps]
    best = float("inf")
    for ranks in product(*rows):
        try:
            best = min(best, simulate_order(replace(like, ranks=ranks), times).step_s)
        except ValueError:  # the ranks wait for each other
            continue
    return best


time = st.floats(0.2, 2.0)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(time, time, time), min_size=2, max_size=2), st.sampled_from([0.0, 0.1, 0.7]), st.sampled_from([1.0, 2.0, 3.0]))
def test_it_is_as_short_as_the_best_of_all_orders_of_two_ranks(ranks: list[tuple[float, float, float]], hop: float, cap: float) -> None:
    costs = costs_of(*ranks, hop=hop, cap=cap)
    found = solve(3, costs)
    assert found.proven
    assert found.step_s == pytest.approx(shortest(3, costs), rel=GAP)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(time, time, time), min_size=3, max_size=3), st.sampled_from([0.0, 0.3]), st.sampled_from([1.0, 2.0]))
def test_it_is_as_short_as_the_best_of_all_orders_of_three_ranks(ranks: list[tuple[float, float, float]], hop: float, cap: float) -> None:
    costs = costs_of(*ranks, hop=hop, cap=cap)
    assert solve(2, costs).step_s == pytest.approx(shortest(2, costs), rel=GAP)


@pytest.mark.parametrize("cap", [1.0, 2.0])
def test_no_order_is_shorter_that_takes_micro_batches_out_of_turn(cap: float) -> None:
    # The program orders each kind by number. Micro-batches are alike, so nothing is lost: here all 90 x 90 orders of two ranks.
    costs = costs_of((1.0, 1.4, 0.6), (0.9, 1.1, 1.3), hop=0.2, cap=cap)
    assert solve(2, costs).step_s == pytest.approx(shortest(2, costs, any_number=True), rel=GAP)


def test_a_case_that_the_solver_alone_gets_right() -> None:
    # Room for two micro-batches a rank: ZB-H1 needs three, the planner 53.
    costs = costs_of((3, 3, 2), (3, 1, 1), (3, 2, 3), cap=2)
    found = solve(5, costs)
    assert (found.source, found.solved_micro_batches, found.proven) == ("solver", 5, True)
    assert found.step_s == pytest.approx(51)
    assert within(found.order().ranks, (2.0,) * 3)
    like = build_order("zero-bubble", 3, 1, 5)
    planned = replace(like, ranks=plan_heuristic(5, costs, objective="makespan"))
    assert simulate_order(planned, stage_times(3, costs.forward, costs.backward, costs.weight, 0.0)).step_s == pytest.approx(53)


def test_worked_cases(shared: Path) -> None:
    cases = [json.loads(line) for line in (shared / "physics" / "pipeline_golden.jsonl").read_text(encoding="utf-8").splitlines()]
    for case in (case for case in cases if case["schedule"] == "milp"):
        times = [
            [x if isinstance(x, int | float) else x[0] for x in v] if isinstance(v, list) else [v] * case["P"] for v in map(case.get, "FBW")
        ]
        found = solve(case["m"], costs_of(*zip(*times, strict=True), hop=case["hop"], cap=case["cap"]))
        assert found.proven
        assert found.step_s == pytest.approx(case["step"], rel=GAP)


@settings(max_examples=12, deadline=None)
@given(st.integers(2, 5), st.integers(1, 70), st.floats(1.0, 9.0), st.sampled_from([0.0, 0.05]), st.booleans(), st.data())
def test_any_size_is_complete_keeps_the_cap_and_is_no_longer_than_the_heuristics(
    pp: int, micro_batches: int, cap: float, hop: float, level: bool, data: st.DataObject
) -> None:
    ranks = [(1.0, 1.3, 0.7)] * pp if level else data.draw(st.lists(st.tuples(time, time, time), min_size=pp, max_size=pp))
    costs = costs_of(*ranks, hop=hop, cap=cap)
    if binaries_of(pp, micro_batches) <= MAX_BINARIES:
        micro_batches += 24  # the program itself is tested above
    found = solve(micro_batches, costs)
    order = found.order()
    build_graph(order)  # raises where a task lacks, comes before its input, or never runs
    assert within(order.ranks, costs.caps or ())
    times = stage_times(pp, costs.forward, costs.backward, costs.weight, hop)
    assert simulate_order(order, times).step_s == pytest.approx(found.step_s, rel=1e-9)
    rivals = [build_order("zero-bubble", pp, 1, micro_batches).ranks, build_order("zb-h2", pp, 1, micro_batches).ranks]
    if micro_batches <= 8 * pp:
        rivals.append(plan_heuristic(micro_batches, costs, objective="makespan"))
    for rows in rivals:
        if within(rows, costs.caps or ()):
            assert found.step_s <= simulate_order(replace(order, ranks=rows), times).step_s * (1 + 1e-8)
    assert lower_bound_s(micro_batches, costs) <= found.bound_s * (1 + 1e-12) <= found.step_s * (1 + 1e-11)
    assert found.gap == pytest.approx(found.step_s / found.bound_s - 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 30), st.sampled_from([0.0, 0.2]), st.data())
def test_no_schedule_is_shorter_than_the_closed_bound(pp: int, micro_batches: int, hop: float, data: st.DataObject) -> None:
    ranks = data.draw(st.lists(st.tuples(time, time, time), min_size=pp, max_size=pp))
    costs = costs_of(*ranks, hop=hop)
    for name in ("zero-bubble", "zb-h2"):
        step = simulate_order(
            build_order(name, pp, 1, micro_batches), stage_times(pp, costs.forward, costs.backward, costs.weight, hop)
        ).step_s
        assert step >= lower_bound_s(micro_batches, costs) * (1 - 1e-12)


def test_thousands_of_micro_batches_are_extended_exactly() -> None:
    costs = costs_of((1.0, 1.3, 0.7), (1.1, 1.2, 0.8), (0.9, 1.4, 0.6), (1.2, 1.5, 0.9), hop=0.02, cap=5)
    step = [solve(m, costs).step_s for m in (1000, 1001, 4000)]
    # The slowest rank sets the pace: 3.6 a micro-batch.
    assert step[1] - step[0] == pytest.approx(3.6, rel=1e-9)
    assert step[2] - step[0] == pytest.approx(3000 * 3.6, rel=1e-9)


def test_the_same_question_has_the_same_answer() -> None:
    costs = costs_of((1.0, 1.3, 0.7), (1.1, 1.2, 0.8), (0.9, 1.4, 0.6), (1.3, 1.5, 0.9), hop=0.02, cap=4)
    first = solve(12, costs)
    solve.cache_clear()
    assert solve(12, costs) == first


def run(costs: PlannerCosts, hop: float, planner: PlannerCosts | None) -> Timeline:
    return simulate(
        "seaailab-ilp",
        pp=len(costs.forward),
        vpp=1,
        micro_batches=5,
        forward_s=costs.forward,
        backward_s=costs.backward,
        weight_s=costs.weight,
        hop_s=hop,
        planner=planner,
    )


def test_simulating_by_name_runs_the_solved_order_with_the_real_times() -> None:
    costs = costs_of((3, 3, 2), (3, 1, 1), (3, 2, 3), hop=0.5, cap=2)
    found = solve(5, costs)
    assert run(costs, 0.5, costs).step_s == pytest.approx(found.step_s)
    times = stage_times(3, costs.forward, costs.backward, costs.weight, 0.0)
    assert run(costs, 0.0, costs).step_s == pytest.approx(simulate_order(found.order(), times).step_s)
    default = run(costs, 0.5, None)  # 1F1B's memory: three micro-batches
    assert default.step_s == pytest.approx(solve(5, replace(costs, caps=(3.0,) * 3)).step_s)
    assert default.step_s < found.step_s


def test_the_memory_of_the_solved_order_is_its_cap_at_most() -> None:
    costs = costs_of((1.1, 1.4, 0.8), (0.9, 1.2, 0.6), (1.0, 1.3, 0.7), hop=0.05, cap=3)
    assert [live_units("seaailab-ilp", 3, 1, 6, rank, planner=costs) for rank in range(3)] == [3] * 3
    assert [live_units("seaailab-ilp", 3, 1, 2, rank, planner=costs) for rank in range(3)] == [2] * 3
    assert [live_units("seaailab-ilp", 3, 1, 6, rank) for rank in range(3)] == [3] * 3
    bound = live_states("seaailab-ilp", pp=3, vpp=1, micro_batches=6, planner=costs)[0]
    assert {state.kind for state in bound} == {"F", "B", "W"}


def test_sizes_and_caps_without_an_order_are_refused() -> None:
    assert "VPP is 2" in (order_problem("seaailab-ilp", 4, 2, 8) or "")
    with pytest.raises(InputError, match="depends on the times"):
        build_order("seaailab-ilp", 4, 1, 8)
    with pytest.raises(InputError, match="pp_max_mem"):
        solve(8, costs_of((1, 1, 1), (1, 1, 1), cap=0.5))


def test_the_solver_is_not_imported_until_it_is_needed_and_writes_nothing() -> None:
    code = (
        "import sys\n"
        "from primus_mcp.projection.pipeline import simulate\n"
        "import primus_mcp.projection.pipeline.ilp as ilp\n"
        "assert 'highspy' not in sys.modules\n"
        "from primus_mcp.projection.pipeline.heuristic import PlannerCosts\n"
        "c = PlannerCosts(forward=(3, 3, 3), backward=(3, 1, 2), weight=(2, 1, 3), hop=0, caps=(2,) * 3)\n"
        "assert ilp.solve(5, c).source == 'solver'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_the_solver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(InputError, match=r"primus-mcp\[ilp\]"):
        solve(5, costs_of((1, 1, 1), (1, 1, 1.01)))
