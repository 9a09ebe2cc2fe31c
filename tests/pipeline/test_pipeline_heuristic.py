"""The zero-bubble planner: it respects its cap, and on even stages is no slower than 1F1B in the same memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_mcp.errors import InputError
from primus_mcp.projection.pipeline import Timeline, build_order, simulate_order, stage_times
from primus_mcp.projection.pipeline.heuristic import PlannerCosts, _Plan, default_costs, plan_heuristic
from primus_mcp.projection.pipeline.live import states_of_row


def planned(pp: int, micro_batches: int, costs: PlannerCosts, cap: int | None) -> tuple[Timeline, list[int]]:
    """The planned order run with the planner's own times, and the peak of every rank."""
    caps = None if cap is None else (float(cap),) * pp
    rows = plan_heuristic(micro_batches, replace(costs, caps=caps), objective="makespan")
    order = replace(build_order("zero-bubble", pp, 1, micro_batches), schedule="zero-bubble-heuristic", ranks=rows)
    result = simulate_order(order, stage_times(pp, costs.forward, costs.backward, costs.weight, costs.hop))
    peaks = [max(sum(s.forward_live) + sum(s.weight_pending) + (s.kind == "F") for s in states_of_row(row, 1)) for row in rows]
    return result, peaks


def level(pp: int, forward: float, backward: float, weight: float, hop: float = 0.0) -> PlannerCosts:
    return PlannerCosts(forward=(forward,) * pp, backward=(backward,) * pp, weight=(weight,) * pp, hop=hop)


def test_with_room_for_2p_minus_1_only_the_head_is_left() -> None:
    # F = B = W = 1, P = 4, m = 8: every rank does 24 and the last starts after three forwards.
    result, _ = planned(4, 8, level(4, 1, 1, 1), 7)
    assert result.step_s == pytest.approx(27)


def test_at_the_memory_of_1f1b_it_equals_zb_h1_on_even_stages() -> None:
    # ZB-H1's closed form: m(F+B+W) + (P-1) max(F, B, F+B-W) = 24 + 3 * 1.6.
    result, peaks = planned(4, 8, level(4, 1, 1.3, 0.7), 4)
    assert result.step_s == pytest.approx(28.8)
    assert peaks == [4] * 4


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 14), st.integers(1, 9), st.data())
def test_any_costs_give_a_complete_order_under_the_cap(pp: int, micro_batches: int, cap: int, data: st.DataObject) -> None:
    def draw() -> tuple[float, ...]:
        return tuple(data.draw(st.lists(st.floats(0.3, 2.0), min_size=pp, max_size=pp)))

    costs = PlannerCosts(forward=draw(), backward=draw(), weight=draw(), hop=data.draw(st.sampled_from([0.0, 0.1])))
    result, peaks = planned(pp, micro_batches, costs, cap)  # raises where a task lacks or a rank waits for ever
    assert max(peaks) <= cap
    assert result.step_s >= max(result.rank_busy_s) * (1 - 1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 5), st.integers(1, 14), st.tuples(*[st.floats(0.3, 2.0)] * 3), st.sampled_from([0.0, 0.1, 0.5]))
def test_on_even_stages_it_is_no_slower_than_1f1b_in_the_same_memory(
    pp: int, micro_batches: int, fbw: tuple[float, float, float], hop: float
) -> None:
    costs = level(pp, *fbw, hop)
    result, _ = planned(pp, micro_batches, costs, pp)
    plain = simulate_order(
        build_order("1f1b", pp, 1, micro_batches), stage_times(pp, costs.forward, costs.backward, costs.weight, costs.hop)
    )
    assert result.step_s <= plain.step_s * (1 + 1e-9)


def test_a_cap_that_holds_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="cap of 0 live micro-batches"):
        plan_heuristic(4, replace(default_costs(2), caps=(4.0, 0.0)))


def test_every_rank_keeps_its_own_cap() -> None:
    caps = (5.0, 4.5, 3.0, 2.0)
    rows = plan_heuristic(12, replace(default_costs(4), caps=caps))
    peaks = [max(sum(s.forward_live) + sum(s.weight_pending) + (s.kind == "F") for s in states_of_row(row, 1)) for row in rows]
    assert all(peak <= cap for peak, cap in zip(peaks, caps, strict=True))
    assert peaks[0] == 5


@settings(max_examples=80, deadline=None)
@given(
    ranks=st.lists(st.tuples(st.floats(0.5, 2), st.floats(0.5, 2), st.floats(0.5, 2)), min_size=2, max_size=5),
    micro_batches=st.integers(1, 12),
    hop=st.sampled_from([0.0, 0.1, 0.9]),
    cap=st.sampled_from([None, 2.0, 5.0]),
)
def test_variants_that_are_not_planned_would_have_repeated_one_that_was(
    ranks: list[tuple[float, float, float]], micro_batches: int, hop: float, cap: float | None
) -> None:
    forward, backward, weight = (tuple(column) for column in zip(*ranks, strict=True))
    caps = None if cap is None else (cap,) * len(ranks)
    costs = PlannerCosts(forward=forward, backward=backward, weight=weight, hop=hop, caps=caps)
    plans = [
        _Plan(micro_batches, costs, early=early, prefer_backward=backwards, fill=fill)
        for early, backwards, fill in product((True, False), repeat=3)
    ]
    runs = [plan for plan in plans if plan.run()]
    if not runs:
        with pytest.raises(InputError):
            plan_heuristic(micro_batches, costs)
        return
    best = min(plan.span() for plan in runs)
    chosen = plan_heuristic(micro_batches, costs)
    assert any(chosen == tuple(map(tuple, plan.rows)) and plan.span() == pytest.approx(best) for plan in runs)
