"""DualPipe: its order by hand, its bubble and its memory as the DeepSeek-V3 report states them, and what overlap may save."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_mcp.projection.pipeline import Order, StageTimes, build_order, live_units, simulate, simulate_order, stage_of, stage_times
from primus_mcp.projection.pipeline.order import pair_places


def spell(order: Order, rank: int) -> str:
    """A row as text, chunk 1 in lower case; an overlapped pair is joined by +."""
    pairs = pair_places(order)[rank]
    text = ""
    for place, task in enumerate(order.ranks[rank]):
        name = task.kind.lower() if task.chunk else task.kind
        text += f"{name}{task.micro_batch}" + ("+" if place in pairs else " ")
    return text.strip()


def even(pp: int, forward: float, backward: float, weight: float, *, paired: float = 1.0) -> StageTimes:
    """Equal stages; `paired` = share of a forward and of a backward that is left of it in a pair."""
    n = 2 * pp
    left = (paired * forward,) * n, (paired * (backward + weight),) * n
    return stage_times(n, (forward,) * n, (backward,) * n, (weight,) * n, 0.0, left)


def test_the_order_of_two_ranks_by_hand() -> None:
    # P = 2: H = 1, q = 0, n = 2 micro-batches a direction: (Fa Fb), then n - 2H + q + 1 = 1 round of two pairs whose first runs apart
    # (the ranks are the middle ones), then (Db Da) of which the second is split, then its W.
    order = build_order("dualpipe", 2, 2, 4)
    assert spell(order, 0) == "F0 f0 F1 d0 f1+D0 d1 B1 W1"
    assert spell(order, 1) == "f0 F0 f1 D0 F1+d0 D1 b1 w1"


def test_the_order_of_an_outer_rank_by_hand() -> None:
    # P = 4, rank 0: H = 2, q = 0, n = 4: Fa^2, (Fa Fb), (Bb W Fb), one round, (Db X(Fb, Da)), (Db Da) with Da split, (W Ba), W.
    order = build_order("dualpipe", 4, 2, 8)
    assert spell(order, 0) == "F0 F1 F2 f0 b0 w0 f1 F3+d1 f2+D0 d2 f3+D1 d3 B2 W2 B3 W3"


def test_both_directions_hold_the_same_stages_mirrored() -> None:
    assert [(stage_of(rank, 0, 4, vee=True), stage_of(rank, 1, 4, vee=True) - 4) for rank in range(4)] == [(0, 3), (1, 2), (2, 1), (3, 0)]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(0, 12), st.floats(0.5, 2.0), st.floats(0.2, 1.0))
def test_the_bubble_of_the_report(half: int, more: int, forward: float, weight_share: float) -> None:
    # DeepSeek-V3 report, table 2: (PP/2 - 1)(F&B + B - 3W), B the whole backward; exact where F = B_input >= W. A rank works
    # m/2 (F + B) of each copy. Memory PP + 1 micro-batches, parameters twice.
    pp, micro_batches, weight = 2 * half, 4 * half + 2 * more, forward * weight_share
    order = build_order("dualpipe", pp, 2, micro_batches)
    found = simulate_order(order, even(pp, forward, forward, weight))
    work = micro_batches * (2 * forward + weight)
    together, backward = 2 * forward + weight, forward + weight
    assert found.rank_busy_s == pytest.approx((work,) * pp)
    assert found.step_s - work == pytest.approx((half - 1) * (together + backward - 3 * weight), abs=1e-9 * work)


@pytest.mark.parametrize("pp", [2, 4, 8, 16])
@pytest.mark.parametrize("micro_batches", [32, 34, 4096])
def test_the_memory_of_the_report(pp: int, micro_batches: int) -> None:
    assert [live_units("dualpipe", pp, 2, micro_batches, rank) for rank in range(pp)] == [pp + 1] * pp
    # The folded form keeps one copy: a chunk is half as large.
    assert [live_units("dualpipe-v", pp, 2, micro_batches, rank) for rank in range(pp)] == [pp + 0.5] * pp


def test_only_pairs_save() -> None:
    # P = 2, m = 4 above: one overlapped pair a rank. F = 1, D = 2, of which a pair takes 3 * 0.8.
    order = build_order("dualpipe", 2, 2, 4)
    apart, together = simulate_order(order, even(2, 1, 1, 1)), simulate_order(order, even(2, 1, 1, 1, paired=0.8))
    assert apart.step_s == pytest.approx(12)
    assert apart.rank_busy_s == pytest.approx((12, 12))
    assert together.rank_busy_s == pytest.approx((11.4, 11.4))
    assert together.step_s == pytest.approx(11.4)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["dualpipe", "dualpipe-v"]), st.integers(1, 4), st.integers(0, 60), st.sampled_from([0.0, 0.05]), st.data())
def test_thousands_of_micro_batches_cost_no_more_and_are_exact(
    schedule: str, half: int, more: int, hop: float, data: st.DataObject
) -> None:
    pp = 2 * half
    micro_batches = 2 * pp + 2 * more

    def draw() -> tuple[float, ...]:
        return tuple(data.draw(st.lists(st.floats(0.3, 2.0), min_size=2 * pp, max_size=2 * pp)))

    forward, backward, weight = draw(), draw(), draw()
    whole = simulate_order(build_order(schedule, pp, 2, micro_batches), stage_times(2 * pp, forward, backward, weight, hop))
    short = simulate(
        schedule, pp=pp, vpp=2, micro_batches=micro_batches, forward_s=forward, backward_s=backward, weight_s=weight, hop_s=hop
    )
    assert short.step_s == pytest.approx(whole.step_s, rel=1e-9)
    assert short.bubble_ratio == pytest.approx(whole.bubble_ratio, abs=1e-9)


def test_no_transfer_crosses_from_one_copy_to_the_other() -> None:
    # Each micro-batch passes PP - 1 boundaries in each direction: with hop 1 and tiny tasks the head takes 2 (PP - 1) hops.
    pp = 4
    tiny = (1e-9,) * (2 * pp)
    found = simulate("dualpipe", pp=pp, vpp=2, micro_batches=2 * pp, forward_s=tiny, backward_s=tiny, weight_s=tiny, hop_s=1.0)
    first = simulate_order(build_order("dualpipe", pp, 2, 2 * pp), stage_times(2 * pp, tiny, tiny, tiny, (1.0,) * 3 + (50.0,) + (1.0,) * 3))
    assert found.step_s == pytest.approx(first.step_s)
