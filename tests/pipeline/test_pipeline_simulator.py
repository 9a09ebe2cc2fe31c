"""Step times: closed forms and hand calculations first, then laws that must hold for any times."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_mcp.errors import InputError
from primus_mcp.projection.pipeline import Timeline, build_order, order_problem, simulate, simulate_order, stage_of, stage_times, trace
from primus_mcp.projection.pipeline.rules import (
    INTERLEAVED_SCHEDULES,
    PAIRED_SCHEDULES,
    SCHEDULES,
    SPLIT_PAIR_SCHEDULES,
    VEE_SCHEDULES,
    model_copies,
)
from primus_mcp.projection.pipeline.steady import NamedFamily, extended_run
from primus_mcp.projection.pipeline.times import Pair

FBW = tuple[float, float, float]


def even(
    schedule: str, pp: int, vpp: int, micro_batches: int, fbw: FBW, hop_s: float = 0.0, *, group: int | None = None, blocking: bool = False
) -> Timeline:
    """Equal ranks: F, B, W seconds of a rank, spread evenly over its chunks."""
    forward, backward, weight = ((time / vpp,) * (pp * vpp) for time in fbw)
    return simulate(
        schedule,
        pp=pp,
        vpp=vpp,
        micro_batches=micro_batches,
        forward_s=forward,
        backward_s=backward,
        weight_s=weight,
        hop_s=hop_s,
        group_size=group,
        blocking=blocking,
    )


def uneven_1f1b(
    forward: tuple[float, ...], whole_backward: tuple[float, ...], micro_batches: int, schedule: str = "1f1b", hop_s: float = 0.0
) -> Timeline:
    none = (0.0,) * len(forward)
    return simulate(
        schedule,
        pp=len(forward),
        vpp=1,
        micro_batches=micro_batches,
        forward_s=forward,
        backward_s=whole_backward,
        weight_s=none,
        hop_s=hop_s,
    )


UNIT: FBW = (1.0, 1.0, 1.0)
SPLIT: FBW = (1.0, 1.3, 0.7)


def test_two_ranks_two_micro_batches_by_hand() -> None:
    # 1F1B, F = 1, D = 2. Rank 1: F0 1-2, D0 2-4, F1 4-5, D1 5-7. Rank 0: F0 0-1, F1 1-2, D0 4-6, D1 7-9.
    result = even("1f1b", 2, 1, 2, UNIT)
    assert result.step_s == 9
    assert result.rank_busy_s == (6, 6)
    assert result.rank_end_s == (9, 7)
    assert result.span_s == 9
    assert result.bubble_ratio == pytest.approx(1 - 12 / 18)


def test_the_trace_shows_the_same_run_task_by_task() -> None:
    rows = trace(build_order("1f1b", 2, 1, 2), stage_times(2, (1.0, 1.0), (1.0, 1.0), (1.0, 1.0), 0.0))
    assert [(t.kind, t.micro_batch, t.start_s, t.end_s) for t in rows[0]] == [
        ("F", 0, 0, 1),
        ("F", 1, 1, 2),
        ("D", 0, 4, 6),
        ("D", 1, 7, 9),
    ]
    assert [(t.kind, t.micro_batch, t.start_s, t.end_s) for t in rows[1]] == [
        ("F", 0, 1, 2),
        ("D", 0, 2, 4),
        ("F", 1, 4, 5),
        ("D", 1, 5, 7),
    ]


@pytest.mark.parametrize(
    ("pp", "micro_batches", "fbw"), list(product((1, 2, 4, 7, 8), (1, 2, 3, 8, 64, 4096), (UNIT, SPLIT, (1.0, 0.8, 0.8))))
)
def test_1f1b_of_even_stages_takes_m_plus_p_minus_1_rounds(pp: int, micro_batches: int, fbw: FBW) -> None:
    # (m + P - 1)(F + D), also for m < P.
    assert even("1f1b", pp, 1, micro_batches, fbw).step_s == pytest.approx((micro_batches + pp - 1) * sum(fbw), rel=1e-12)


@pytest.mark.parametrize(("pp", "micro_batches"), list(product((2, 3, 4, 8), (1, 2, 5, 8, 64, 1000))))
def test_hops_cost_1f1b_about_two_a_micro_batch(pp: int, micro_batches: int) -> None:
    # 2h(P-1 + m-1 - ceil((m-1)/P)): a forward and a backward hop stand in the loop of every pair of neighbours.
    hop = 0.05
    added = 2 * hop * (pp - 1 + micro_batches - 1 - -(-(micro_batches - 1) // pp))
    assert even("1f1b", pp, 1, micro_batches, UNIT, hop).step_s == pytest.approx((micro_batches + pp - 1) * 3 + added, rel=1e-12)


@pytest.mark.parametrize(("pp", "micro_batches"), list(product((3, 4, 8), (2, 8, 300))))
def test_blocking_transfers_cost_1f1b_two_hops_a_micro_batch(pp: int, micro_batches: int) -> None:
    # + 2mh + (2P-5)h for P >= 3, m >= 2, h <= F, D.
    hop = 0.1
    assert even("1f1b", pp, 1, micro_batches, UNIT, hop, blocking=True).step_s == pytest.approx(
        (micro_batches + pp - 1) * 3 + 2 * micro_batches * hop + (2 * pp - 5) * hop, rel=1e-12
    )


@pytest.mark.parametrize(
    ("pp", "vpp", "micro_batches", "group"),
    [(2, 2, 2, None), (2, 2, 5, 3), (4, 2, 8, None), (4, 2, 12, 8), (4, 4, 16, None), (8, 4, 4096, None), (4, 3, 22, 6), (3, 2, 600, 5)],
)
def test_interleaving_shrinks_the_bubble_by_the_chunks(pp: int, vpp: int, micro_batches: int, group: int | None) -> None:
    # m(F+D) + (P-1)(F+D)/V for every legal group.
    expected = micro_batches * sum(SPLIT) + (pp - 1) * sum(SPLIT) / vpp
    assert even("interleaved", pp, vpp, micro_batches, SPLIT, group=group).step_s == pytest.approx(expected, rel=1e-12)


def test_interleaving_hides_short_hops_but_not_long_ones() -> None:
    # h <= min(F, D)/V: 2(PV-1)h once. 28.5 + 14 * 0.1. A hop of a whole forward is twice F/V, and is paid over and over.
    assert even("interleaved", 4, 2, 8, UNIT, 0.1).step_s == pytest.approx(28.5 + 1.4)
    assert even("interleaved", 4, 2, 8, UNIT, 1.0).step_s > 28.5 + 14


@pytest.mark.parametrize(
    ("pp", "micro_batches", "fbw"), list(product((2, 4, 8), (8, 9, 64, 4096), (UNIT, SPLIT, (1.0, 0.8, 0.8), (0.5, 1.5, 1.0))))
)
def test_zero_bubble_fills_the_wait_with_weight_gradients(pp: int, micro_batches: int, fbw: FBW) -> None:
    # ZB-H1: m(F+B+W) + (P-1) max(F, B, F+B-W), m >= P.
    forward, backward, weight = fbw
    head = max(forward, backward, forward + backward - weight)
    assert even("zero-bubble", pp, 1, micro_batches, fbw).step_s == pytest.approx(micro_batches * sum(fbw) + (pp - 1) * head, rel=1e-12)


@pytest.mark.parametrize(("pp", "micro_batches", "fbw"), list(product((2, 4, 8), (15, 16, 500), (UNIT, SPLIT, (1.0, 1.5, 0.5)))))
def test_twice_the_warm_up_leaves_only_the_head(pp: int, micro_batches: int, fbw: FBW) -> None:
    # ZB-H2: m(F+B+W) + (P-1) max(F, B-F, F+B-2W), m >= 2P-1.
    forward, backward, weight = fbw
    head = max(forward, backward - forward, forward + backward - 2 * weight)
    assert even("zb-h2", pp, 1, micro_batches, fbw).step_s == pytest.approx(micro_batches * sum(fbw) + (pp - 1) * head, rel=1e-12)


@pytest.mark.parametrize("pp", range(3, 10))
def test_v_schedules_of_equal_tasks_have_their_closed_forms(pp: int) -> None:
    # F = B = W = 1 a rank: ZBV m*3 + (P-1)/2; V-Half m*3 + 1.5P - 3.5 (even P) or - 2 (odd P);
    # V-Min m*3 + 2P - (3.5, 2.5, 3) for P mod 3 = 0, 1, 2; m >= 3P.
    for micro_batches in (3 * pp, 3 * pp + 1, 40 * pp):
        work = 3.0 * micro_batches
        assert even("zbv-formatted", pp, 2, micro_batches, UNIT).step_s == pytest.approx(work + (pp - 1) / 2)
        assert even("v-half", pp, 2, micro_batches, UNIT).step_s == pytest.approx(work + 1.5 * pp - (2 if pp % 2 else 3.5))
        assert even("v-min", pp, 2, micro_batches, UNIT).step_s == pytest.approx(work + 2 * pp - (3.5, 2.5, 3)[pp % 3])


def test_v_min_pays_for_an_input_gradient_longer_than_the_mean() -> None:
    # Steady rate 3 max(F, B, mean) for P >= 4: with 1 : 1.3 : 0.7 a micro-batch takes 3.9 instead of 3.
    longer, shorter = (even("v-min", 8, 2, m, SPLIT).step_s for m in (512, 256))
    assert (longer - shorter) / 256 == pytest.approx(3.9)


def test_gpipe_of_uneven_stages_waits_for_the_slowest_forward_and_backward() -> None:
    # sum F + sum D + (m-1)(max F + max D) + 2(P-1)h = 5 + 10 + 7 * (2 + 4) + 6 * 0.5 = 60.
    assert uneven_1f1b((1, 2, 1, 1), (2, 2, 4, 2), 8, "gpipe", 0.5).step_s == 60


def test_a_slow_last_stage_costs_its_excess_in_every_micro_batch_a_slow_first_one_less() -> None:
    # Last (head): the others once, 3 * 3, and m * 4.5 = 36 behind them.
    assert uneven_1f1b((1, 1, 1, 1.5), (2, 2, 2, 3), 8).step_s == 45
    # First: three of its forwards (1.5 each) run inside the first wait, so 45 - 4.5.
    assert uneven_1f1b((1.5, 1, 1, 1), (3, 2, 2, 2), 8).step_s == 40.5


def test_the_head_of_a_v_schedule_weighs_on_rank_0() -> None:
    # Two ranks, four stages; the last stage lies on rank 0, so its excess is added to the first rank's work.
    forward = (1.0, 1.0, 1.0, 2.0)
    result = simulate("zbv-formatted", pp=2, vpp=2, micro_batches=8, forward_s=forward, backward_s=(1.0,) * 4, weight_s=(1.0,) * 4)
    assert result.rank_busy_s == (8 * 7, 8 * 6)


@pytest.mark.parametrize("micro_batches", [1, 2, 4, 700])
def test_one_rank_hides_all_to_all_between_neighbouring_micro_batches(micro_batches: int) -> None:
    # F + (m-1) X + D; F = 1 of which a pair hides 0.4, D = 2 of which it hides 0.6: X = 2.
    times = {"forward_s": (1.0,), "backward_s": (1.5,), "weight_s": (0.5,)}
    result = simulate("1f1b-a2a", pp=1, vpp=1, micro_batches=micro_batches, paired_s=((0.6,), (1.4,)), **times)  # type: ignore[arg-type]
    assert result.step_s == pytest.approx(1 + (micro_batches - 1) * 2 + 2)
    assert result.bubble_ratio == pytest.approx(0, abs=1e-12)


def test_overlap_without_all_to_all_changes_no_step_of_interleaving() -> None:
    for micro_batches in (4, 8, 400):
        assert even("interleaved-a2a", 4, 2, micro_batches, UNIT).step_s == pytest.approx(
            even("interleaved", 4, 2, micro_batches, UNIT).step_s
        )


def test_a_pair_is_one_task_in_the_trace() -> None:
    rows = trace(build_order("1f1b-a2a", 1, 1, 2), stage_times(1, (1.0,), (2.0,), (0.0,), 0.0, ((0.5,), (1.5,))))
    assert [(t.kind, t.start_s, t.end_s) for t in rows[0]] == [("F", 0, 1), ("F", 1, 3), ("D", 1, 3), ("D", 3, 5)]


def test_a_v_schedule_turns_at_the_last_rank_without_a_hop() -> None:
    # m = 1 on two ranks is one trip forth and back over 4 stages: 3 boundaries, of which the middle one stays on rank 1.
    steps = [even("v-min", 2, 2, 1, UNIT, hop).step_s for hop in (0.0, 1.0)]
    assert steps[1] - steps[0] == pytest.approx(2 * 2)


def test_each_boundary_may_have_its_own_hop() -> None:
    ones = (1.0,) * 3
    result = simulate("1f1b", pp=3, vpp=1, micro_batches=1, forward_s=ones, backward_s=ones, weight_s=ones, hop_s=(0.25, 0.5))
    assert result.step_s == 9 + 2 * 0.75


def test_times_that_cannot_be_are_refused() -> None:
    ones = (1.0, 1.0)
    with pytest.raises(ValueError, match="forward_s has 1 entries, 2 stages need 2"):
        simulate("1f1b", pp=2, vpp=1, micro_batches=2, forward_s=(1.0,), backward_s=ones, weight_s=ones)
    with pytest.raises(ValueError, match="weight_s holds a time that is negative or not finite"):
        simulate("1f1b", pp=2, vpp=1, micro_batches=2, forward_s=ones, backward_s=ones, weight_s=(1.0, -1.0))
    with pytest.raises(ValueError, match="hop_s has 2 entries, 2 stages need 1"):
        simulate("1f1b", pp=2, vpp=1, micro_batches=2, forward_s=ones, backward_s=ones, weight_s=ones, hop_s=(0.1, 0.1))
    with pytest.raises(ValueError, match="paired_s of backwards has 2 entries, 1 stages need 1"):
        simulate(
            "1f1b-a2a", pp=1, vpp=1, micro_batches=2, forward_s=(1.0,), backward_s=(1.0,), weight_s=(1.0,), paired_s=((1.0,), (0.5, 0.5))
        )
    with pytest.raises(InputError, match="1f1b overlaps no tasks"):
        simulate("1f1b", pp=1, vpp=1, micro_batches=2, forward_s=(1.0,), backward_s=(1.0,), weight_s=(1.0,), paired_s=((0.5,), (1.0,)))
    with pytest.raises(InputError, match="leave 2 over groups of 4"):
        even("interleaved", 4, 2, 1002, UNIT)


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, int, int, int, list[list[float]], float, bool]:
    """(schedule, pp, vpp, m, [F, B, W] per stage, hop, blocking)."""
    schedule = draw(st.sampled_from(SCHEDULES))
    copies = model_copies(schedule)
    pp = 1 if schedule == "1f1b-a2a" else draw(st.sampled_from((2, 4))) if copies == 2 else draw(st.integers(2, 5))
    vpp = 2 if schedule in VEE_SCHEDULES else draw(st.integers(2, 3)) if schedule in INTERLEAVED_SCHEDULES else 1
    micro_batches = pp * draw(st.integers(1, 4)) if schedule in INTERLEAVED_SCHEDULES else 2 * draw(st.integers(pp, 8))
    durations = st.floats(0.1, 2.0)
    times = [draw(st.lists(durations, min_size=pp * vpp, max_size=pp * vpp)) for _ in range(3)]
    return schedule, pp, vpp, micro_batches, times, draw(st.sampled_from([0.0, 0.05, 0.6])), draw(st.booleans())


def paired_of(schedule: str, times: list[list[float]]) -> Pair | None:
    """A forward takes 0.7 of its time in a pair, the backward beside it 0.8."""
    forward, backward, weight = times
    if schedule not in PAIRED_SCHEDULES:
        return None
    beside = backward if schedule in SPLIT_PAIR_SCHEDULES else [b + w for b, w in zip(backward, weight, strict=True)]
    return tuple(0.7 * f for f in forward), tuple(0.8 * b for b in beside)


def run(schedule: str, pp: int, vpp: int, micro_batches: int, times: list[list[float]], hop: float, blocking: bool) -> Timeline:
    forward, backward, weight = map(tuple, times)
    assert order_problem(schedule, pp, vpp, micro_batches) is None
    return simulate(
        schedule,
        pp=pp,
        vpp=vpp,
        micro_batches=micro_batches,
        forward_s=forward,
        backward_s=backward,
        weight_s=weight,
        hop_s=hop,
        blocking=blocking,
        paired_s=paired_of(schedule, times),
    )


@settings(max_examples=120, deadline=None)
@given(cases())
def test_no_step_is_shorter_than_a_ranks_work_behind_its_head(case: tuple[str, int, int, int, list[list[float]], float, bool]) -> None:
    schedule, pp, vpp, micro_batches, times, hop, _ = case
    result = run(*case)
    vee, copies = schedule in VEE_SCHEDULES, model_copies(schedule)
    for rank in range(pp):
        stages = [stage_of(rank, chunk, pp, vee=vee) for chunk in range(vpp)]
        length = len(times[0]) // copies  # of one copy of the model
        head = min(sum(times[0][s - s % length : s]) + s % length % pp * hop for s in stages)
        work = micro_batches // copies * sum(row[stage] for row in times for stage in stages)
        if schedule in PAIRED_SCHEDULES:
            assert 0.7 * work <= result.rank_busy_s[rank] <= work * (1 + 1e-12)
        else:
            assert result.rank_busy_s[rank] == pytest.approx(work)
        assert result.rank_end_s[rank] >= (head + result.rank_busy_s[rank]) * (1 - 1e-12)
    one_trip = max(sum(times[0][at : at + length]) + sum(times[1][at : at + length]) for at in range(0, len(times[0]), length))
    assert result.step_s >= one_trip * (1 - 1e-12)
    assert -1e-12 <= result.bubble_ratio < 1
    assert result.step_s == max(result.rank_end_s)


@settings(max_examples=120, deadline=None)
@given(cases(), st.data())
def test_a_longer_task_or_hop_never_shortens_the_step_and_scaling_scales_it(
    case: tuple[str, int, int, int, list[list[float]], float, bool], data: st.DataObject
) -> None:
    schedule, pp, vpp, micro_batches, times, hop, blocking = case
    before = run(*case).step_s
    longer = [list(row) for row in times]
    longer[data.draw(st.integers(0, 2))][data.draw(st.integers(0, pp * vpp - 1))] += 0.3
    assert run(schedule, pp, vpp, micro_batches, longer, hop, blocking).step_s >= before * (1 - 1e-12)
    assert run(schedule, pp, vpp, micro_batches, times, hop + 0.2, blocking).step_s >= before * (1 - 1e-12)
    assert run(schedule, pp, vpp, micro_batches, times, hop, True).step_s >= before * (1 - 1e-12)
    scaled = [[3 * time for time in row] for row in times]
    assert run(schedule, pp, vpp, micro_batches, scaled, 3 * hop, blocking).step_s == pytest.approx(3 * before)


@settings(max_examples=120, deadline=None)
@given(st.integers(1, 8), st.integers(1, 60), st.tuples(*[st.floats(0.01, 3.0)] * 3), st.sampled_from([0.0, 0.1, 0.7, 2.0]))
def test_zero_bubble_is_never_slower_than_1f1b_on_even_stages(pp: int, micro_batches: int, fbw: FBW, hop: float) -> None:
    # On very uneven stages it can be: W put off by the rank ends behind the last B, 3 s late on a rank that was not the slowest.
    assert even("zero-bubble", pp, 1, micro_batches, fbw, hop).step_s <= even("1f1b", pp, 1, micro_batches, fbw, hop).step_s * (1 + 1e-9)


def test_zero_bubble_can_lose_on_uneven_stages_because_it_puts_weight_gradients_off() -> None:
    # P = 2, m = 2; F 3, 0; B 0, 1; W 0, 1. F1 leaves rank 0 at 6. 1F1B, rank 1: F1, D1 6-8, then rank 0 at once.
    # ZB-H1, rank 1: B0 at 3-4, then F1 only at 6, B1 6-7, W0 7-8, W1 8-9.
    times = [[3.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    assert run("1f1b", 2, 1, 2, times, 0.0, False).step_s == 8
    assert run("zero-bubble", 2, 1, 2, times, 0.0, False).step_s == 9


@settings(max_examples=120, deadline=None)
@given(st.integers(1, 6), st.integers(1, 40), st.data())
def test_1f1b_is_never_slower_than_gpipe_without_hops(pp: int, micro_batches: int, data: st.DataObject) -> None:
    times = [data.draw(st.lists(st.floats(0.1, 2.0), min_size=pp, max_size=pp)) for _ in range(3)]
    plain = run("1f1b", pp, 1, micro_batches, times, 0.0, False).step_s
    assert plain <= run("gpipe", pp, 1, micro_batches, times, 0.0, False).step_s * (1 + 1e-12)


@settings(max_examples=150, deadline=None)
@given(cases(), st.integers(0, 120), st.booleans())
def test_extending_the_steady_state_equals_simulating_every_micro_batch(
    case: tuple[str, int, int, int, list[list[float]], float, bool], more: int, level: bool
) -> None:
    schedule, pp, vpp, micro_batches, times, hop, blocking = case
    micro_batches += more * (pp if schedule in INTERLEAVED_SCHEDULES else model_copies(schedule))
    if schedule == "zero-bubble-heuristic":
        micro_batches = min(micro_batches, 30)
    if level:
        times = [[row[0]] * len(row) for row in times]
    quick = run(schedule, pp, vpp, micro_batches, times, hop, blocking)
    forward, backward, weight = map(tuple, times)
    every = simulate_order(
        build_order(schedule, pp, vpp, micro_batches),
        stage_times(pp * vpp, forward, backward, weight, hop, paired_of(schedule, times)),
        blocking=blocking,
    )
    assert quick.rank_end_s == pytest.approx(every.rank_end_s, rel=1e-10)
    assert quick.rank_busy_s == pytest.approx(every.rank_busy_s, rel=1e-10)
    assert quick.span_s == pytest.approx(every.span_s, rel=1e-10)


@pytest.mark.parametrize("pp", [2, 3, 5, 8, 12])
@pytest.mark.parametrize("schedule", [s for s in SCHEDULES if s not in ("gpipe", "zero-bubble-heuristic", "1f1b-a2a")])
def test_the_steady_state_is_reached_and_extended_at_every_depth(schedule: str, pp: int) -> None:
    pp += pp % model_copies(schedule)
    vpp = 1 if order_problem(schedule, pp, 1, 60 * pp) is None else 2
    stages, micro_batches = pp * vpp, 60 * pp
    times = stage_times(stages, (1.0,) * stages, (1.2,) * stages, (0.8,) * (stages - 1) + (1.1,), 0.0)
    family = NamedFamily(schedule=schedule, pp=pp, vpp=vpp, group_size=None, planner=None, blocking=False)
    values = times.values(pp, schedule)
    graph, end, more_s = extended_run(family, micro_batches, values)
    assert graph.order.micro_batches < micro_batches / 2
    every = simulate_order(build_order(schedule, pp, vpp, micro_batches), times)
    assert max(end[node] for node in graph.tails) + more_s == pytest.approx(every.step_s, rel=1e-11)
