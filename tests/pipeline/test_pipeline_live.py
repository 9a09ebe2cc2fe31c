"""What ranks hold live: known peaks, and the short order standing for any number of micro-batches."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_mcp.errors import InputError
from primus_mcp.projection.pipeline import LiveState, build_order, live_states, live_units, order_problem
from primus_mcp.projection.pipeline.heuristic import default_costs
from primus_mcp.projection.pipeline.live import states_of_row
from primus_mcp.projection.pipeline.rules import SCHEDULES


def peaks(schedule: str, pp: int, vpp: int, micro_batches: int, group: int | None = None) -> list[float]:
    return [live_units(schedule, pp, vpp, micro_batches, rank, group) for rank in range(pp)]


@pytest.mark.parametrize(("pp", "micro_batches"), list(product((1, 2, 4, 8), (1, 3, 8, 64, 5000))))
def test_peaks_of_one_chunk_schedules(pp: int, micro_batches: int) -> None:
    assert peaks("1f1b", pp, 1, micro_batches) == [min(micro_batches, pp - rank) for rank in range(pp)]
    assert peaks("zero-bubble", pp, 1, micro_batches) == [min(micro_batches, pp)] * pp
    assert peaks("zb-h2", pp, 1, micro_batches) == [min(micro_batches, 2 * pp - 1)] * pp
    if micro_batches <= 64:
        assert peaks("gpipe", pp, 1, micro_batches) == [micro_batches] * pp


@pytest.mark.parametrize(
    ("pp", "vpp", "micro_batches", "group"), [(2, 2, 2, 2), (4, 2, 8, 4), (4, 4, 16, 4), (4, 2, 12, 8), (2, 2, 5, 3), (8, 4, 4096, 8)]
)
def test_interleaving_holds_more_than_1f1b(pp: int, vpp: int, micro_batches: int, group: int) -> None:
    # min(mV, 2(P-1-r) + (V-1)g + 1) chunks of 1/V.
    expected = [min(micro_batches * vpp, 2 * (pp - 1 - rank) + (vpp - 1) * group + 1) / vpp for rank in range(pp)]
    assert peaks("interleaved", pp, vpp, micro_batches, group) == expected


@pytest.mark.parametrize("pp", range(2, 11))
def test_v_schedules_keep_their_promise(pp: int) -> None:
    assert peaks("zbv-formatted", pp, 2, 4 * pp) == [pp] * pp
    assert max(peaks("v-half", pp, 2, 4 * pp)) == pp // 2 + 1
    assert max(peaks("v-min", pp, 2, 4 * pp)) == (pp + 1) // 3 + 1


@pytest.mark.parametrize(("pp", "vpp", "micro_batches"), [(2, 2, 2), (4, 2, 8), (4, 4, 400)])
def test_overlapped_all_to_all_holds_one_chunk_more(pp: int, vpp: int, micro_batches: int) -> None:
    expected = [min(micro_batches * vpp, 2 * (pp - 1 - rank) + (vpp - 1) * pp + 2) / vpp for rank in range(pp)]
    assert peaks("interleaved-a2a", pp, vpp, micro_batches) == expected
    assert peaks("1f1b-a2a", 1, 1, micro_batches) == [2]
    assert peaks("1f1b-a2a", 1, 1, 1) == [1]


def test_states_by_hand() -> None:
    # ZB-H1, P = 2, m = 3, rank 1: F0 B0 F1 B1 W0 F2 B2 W1 W2; the same state comes once.
    states = live_states("zero-bubble", pp=2, vpp=1, micro_batches=3)[1]
    assert [(s.kind, *s.forward_live, *s.weight_pending) for s in states] == [
        ("F", 0, 0),
        ("B", 1, 0),
        ("F", 0, 1),
        ("B", 1, 1),
        ("W", 0, 2),
        ("W", 0, 1),
    ]


def test_chunks_are_counted_apart() -> None:
    # Interleaved, P = V = m = 2, rank 1: F0.0 F1.0 F0.1 D0.1 F1.1 D1.1 D0.0 D1.0.
    states = live_states("interleaved", pp=2, vpp=2, micro_batches=2)[1]
    assert LiveState(kind="D", chunk=1, forward_live=(2, 1), weight_pending=(0, 0)) in states
    assert max(sum(s.forward_live) for s in states) == 3


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(SCHEDULES), st.integers(1, 6), st.integers(1, 3), st.integers(1, 120), st.one_of(st.none(), st.integers(1, 12)))
def test_a_short_order_meets_every_state_of_a_long_one(schedule: str, pp: int, vpp: int, micro_batches: int, group: int | None) -> None:
    if order_problem(schedule, pp, vpp, micro_batches, group) is not None:
        with pytest.raises(InputError):
            live_states(schedule, pp=pp, vpp=vpp, micro_batches=micro_batches, group_size=group)
        return
    if schedule == "zero-bubble-heuristic":
        micro_batches = min(micro_batches, 20)
    states = live_states(schedule, pp=pp, vpp=vpp, micro_batches=micro_batches, group_size=group)
    order = build_order(schedule, pp, vpp, micro_batches, group)
    for rank, row in enumerate(order.ranks):
        assert set(states[rank]) == set(states_of_row(row, vpp))
        assert len(set(states[rank])) == len(states[rank])


def test_the_heuristic_stays_under_its_cap_and_without_one_keeps_all() -> None:
    for cap in (4, 5, 7):
        planner = replace(default_costs(4), caps=(float(cap),) * 4)
        assert max(live_units("zero-bubble-heuristic", 4, 1, 16, rank, planner=planner) for rank in range(4)) <= cap
    # Uncapped, the planner puts weight gradients last: upstream shows 32 live of 32 as well.
    assert [live_units("zero-bubble-heuristic", 4, 1, 32, rank) for rank in range(4)] == [32] * 4
