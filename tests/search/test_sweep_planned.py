"""The sweep's memory bound of a planned schedule never holds more than the plan does, whatever it was planned from."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from primus_mcp.projection.pipeline import live_units
from primus_mcp.projection.pipeline.heuristic import PlannerCosts, default_costs
from primus_mcp.search.sweep_shapes import fullest_states


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 6), st.integers(1, 16), st.data())
def test_no_rank_is_taken_to_hold_more_than_its_plan(pp: int, micro_batches: int, data: st.DataObject) -> None:
    def a_rank(least: float, most: float) -> tuple[float, ...]:
        return tuple(data.draw(st.lists(st.floats(least, most), min_size=pp, max_size=pp)))

    planner: PlannerCosts | None = None
    if data.draw(st.booleans()):
        planner = replace(default_costs(pp), forward=a_rank(100, 4000), backward=a_rank(100, 4000), caps=a_rank(1, 9))
    schedule = ("zero-bubble-heuristic", pp, 1, micro_batches, None, planner)
    for rank in range(pp):
        states = fullest_states(schedule, rank)
        held = (states.live.sum(axis=1) + states.pending.sum(axis=1)).max()
        assert held <= live_units("zero-bubble-heuristic", pp, 1, micro_batches, rank, planner=planner)
