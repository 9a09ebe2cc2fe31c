"""Orders: written out by hand, complete, free of deadlock; sizes without an order are refused with their numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_mcp.errors import InputError
from primus_mcp.projection.pipeline import Order, Task, build_order, home_of, order_problem, stage_of
from primus_mcp.projection.pipeline.graph import build_graph
from primus_mcp.projection.pipeline.order import pair_places
from primus_mcp.projection.pipeline.rules import SCHEDULES, SPLIT_SCHEDULES, STREAMED_SCHEDULES


def spell(order: Order, rank: int) -> str:
    """A row as text: kind, micro-batch, and the chunk behind a dot where there is more than one."""
    return " ".join(f"{t.kind}{t.micro_batch}" + (f".{t.chunk}" if order.vpp > 1 else "") for t in order.ranks[rank])


sizes = st.tuples(
    st.sampled_from(SCHEDULES), st.integers(1, 6), st.integers(1, 4), st.integers(1, 24), st.one_of(st.none(), st.integers(1, 12))
)


def test_1f1b_warms_up_by_the_ranks_behind_it_then_alternates() -> None:
    order = build_order("1f1b", 3, 1, 4)
    assert spell(order, 0) == "F0 F1 F2 D0 F3 D1 D2 D3"
    assert spell(order, 1) == "F0 F1 D0 F2 D1 F3 D2 D3"
    assert spell(order, 2) == "F0 D0 F1 D1 F2 D2 F3 D3"


def test_1f1b_with_fewer_micro_batches_than_ranks_clips_its_warm_up() -> None:
    order = build_order("1f1b", 4, 1, 2)
    assert spell(order, 0) == spell(order, 1) == "F0 F1 D0 D1"
    assert spell(order, 3) == "F0 D0 F1 D1"


def test_interleaving_passes_groups_chunk_by_chunk_and_mirrors_them_backward() -> None:
    # P = V = g = 2, m = 2: warm-up 2(P-1-r) + (V-1)g = 4 of 4 forwards on rank 0, 2 on rank 1.
    order = build_order("interleaved", 2, 2, 2)
    assert spell(order, 0) == "F0.0 F1.0 F0.1 F1.1 D0.1 D1.1 D0.0 D1.0"
    assert spell(order, 1) == "F0.0 F1.0 F0.1 D0.1 F1.1 D1.1 D0.0 D1.0"


def test_a_group_that_does_not_divide_the_batch_leaves_a_shorter_last_group() -> None:
    # Megatron's N3M5 example: groups 0-2 and 3-4.
    order = build_order("interleaved", 2, 2, 5, 3)
    forwards = [f"{t.micro_batch}.{t.chunk}" for t in order.ranks[0] if t.kind == "F"]
    assert forwards == ["0.0", "1.0", "2.0", "0.1", "1.1", "2.1", "3.0", "4.0", "3.1", "4.1"]


def test_zero_bubble_puts_weight_gradients_off_by_the_rank() -> None:
    order = build_order("zero-bubble", 3, 1, 4)
    assert spell(order, 0) == "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3"
    assert spell(order, 2) == "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3"


def test_zbv_follows_its_phases() -> None:
    # P = 2, m = 3, rank 0: F0^3, (F1 B1 W1)^2, then F1 is left once: B0 W0 F1 B1 W1, then (B0 W0)^2.
    order = build_order("zbv-formatted", 2, 2, 3)
    assert spell(order, 0) == "F0.0 F1.0 F2.0 F0.1 B0.1 W0.1 F1.1 B1.1 W1.1 B0.0 W0.0 F2.1 B2.1 W2.1 B1.0 W1.0 B2.0 W2.0"


@pytest.mark.parametrize("pp", range(1, 9))
def test_the_v_placement_turns_round_at_the_last_rank(pp: int) -> None:
    homes = [home_of(stage, pp, vee=True) for stage in range(2 * pp)]
    assert [rank for rank, _ in homes] == [*range(pp), *reversed(range(pp))]
    for vee in (False, True):
        for stage in range(3 * pp):
            rank, chunk = home_of(stage, pp, vee=vee)
            assert stage_of(rank, chunk, pp, vee=vee) == stage


@settings(max_examples=250, deadline=None)
@given(sizes)
def test_every_legal_size_gives_a_complete_order_that_never_waits_for_itself(case: tuple[str, int, int, int, int | None]) -> None:
    schedule, pp, vpp, micro_batches, group = case
    if order_problem(schedule, pp, vpp, micro_batches, group) is not None:
        with pytest.raises(InputError):
            build_order(schedule, pp, vpp, micro_batches, group)
        return
    order = build_order(schedule, pp, vpp, micro_batches, group)
    graph = build_graph(order)  # raises where a task lacks, is doubled, comes too early or never becomes ready
    tasks = Counter(task.kind for row in order.ranks for task in row)
    runs = pp * vpp * order.streamed
    assert sum(map(len, graph.task_nodes)) == sum(tasks.values())
    assert tasks["F"] == tasks["B"] + tasks["D"] == tasks["W"] + tasks["D"] == runs
    if schedule not in STREAMED_SCHEDULES:
        assert tasks["W"] == (runs if schedule in SPLIT_SCHEDULES else 0)
    assert order.splits_weight_gradient == (tasks["W"] > 0)
    for row in order.ranks:
        for kind in "FBWD":
            for chunk in range(vpp):
                numbers = [t.micro_batch for t in row if t.kind == kind and t.chunk == chunk]
                assert numbers == sorted(numbers)


@settings(max_examples=150, deadline=None)
@given(sizes, st.data())
def test_dropped_doubled_renumbered_and_reversed_tasks_are_refused(
    case: tuple[str, int, int, int, int | None], data: st.DataObject
) -> None:
    schedule, pp, vpp, micro_batches, group = case
    if order_problem(schedule, pp, vpp, micro_batches, group) is not None:
        return
    order = build_order(schedule, pp, vpp, micro_batches, group)
    rank = data.draw(st.integers(0, pp - 1))
    row = list(order.ranks[rank])
    at = data.draw(st.integers(0, len(row) - 1))
    mutation = data.draw(st.sampled_from(["drop", "double", "renumber", "backward first"]))
    if mutation == "drop":
        del row[at]
    elif mutation == "double":
        row.insert(data.draw(st.integers(0, len(row))), row[at])
    elif mutation == "renumber":
        row[at] = row[at]._replace(micro_batch=row[at].micro_batch + micro_batches)
    else:
        last = row[at]
        forward = row.index(Task("F", last.micro_batch, last.chunk))
        backward = next(i for i, t in enumerate(row) if t.kind in "BD" and t[1:] == last[1:])
        row[forward], row[backward] = row[backward], row[forward]
    broken = replace(order, ranks=(*order.ranks[:rank], tuple(row), *order.ranks[rank + 1 :]))
    with pytest.raises(ValueError, match=f"rank {rank}"):
        build_graph(broken)


def test_a_deadlock_names_the_task_at_which_every_rank_waits() -> None:
    # Rank 1 wants F1 before F0 reaches it in the order that rank 0's D0 needs: D0 of rank 0 waits for rank 1, F1 comes after it.
    first = (Task("F", 0, 0), Task("D", 0, 0), Task("F", 1, 0), Task("D", 1, 0))
    second = (Task("F", 0, 0), Task("F", 1, 0), Task("D", 0, 0), Task("D", 1, 0))
    order = replace(build_order("1f1b", 2, 1, 2), ranks=(first, second))
    with pytest.raises(ValueError, match=r"deadlock: rank 0 waits at .*'D'.*micro_batch=0.*; rank 1 waits at .*'F'.*micro_batch=1"):
        build_graph(order)


@pytest.mark.parametrize(
    ("schedule", "pp", "vpp", "micro_batches", "group", "words"),
    [
        ("1f1b", 4, 2, 8, None, "VPP is 2"),
        ("interleaved", 1, 2, 8, None, "PP is 1"),
        ("interleaved", 4, 2, 3, None, "at least 4 micro-batches"),
        ("interleaved", 4, 2, 6, None, "leave 2 over groups of 4"),
        ("interleaved", 4, 2, 8, 3, "group size 3 is below PP 4"),
        ("interleaved", 4, 2, 8, 9, "at least 9 micro-batches"),
        ("zbv-formatted", 4, 2, 6, None, "2*PP-1 = 7 micro-batches, there are 6"),
        ("zbv-formatted", 4, 1, 8, None, "VPP is 1"),
        ("1f1b-a2a", 2, 1, 8, None, "needs VPP >= 2 at PP > 1, PP is 2"),
        ("interleaved-a2a", 4, 2, 3, None, "at least 4 micro-batches"),
        ("v-half", 1, 2, 8, None, "PP is 1"),
        ("v-min", 4, 4, 8, None, "VPP is 4"),
        ("chimera", 4, 2, 8, None, "'chimera' is not one of"),
        ("dualpipe", 3, 2, 8, None, "even numbers of ranks and micro-batches, PP is 3"),
        ("dualpipe", 4, 2, 9, None, "there are 9"),
        ("dualpipe", 4, 2, 6, None, "at least 2*PP = 8 micro-batches, there are 6"),
        ("dualpipe", 4, 1, 8, None, "VPP is 1"),
        ("dualpipe-v", 4, 2, 7, None, "at least 2*PP = 8 micro-batches, there are 7"),
        ("1f1b", 4, 1, 0, None, "0 micro-batches"),
    ],
)
def test_a_size_without_an_order_is_refused_with_its_numbers(
    schedule: str, pp: int, vpp: int, micro_batches: int, group: int | None, words: str
) -> None:
    assert words in (order_problem(schedule, pp, vpp, micro_batches, group) or "")
    with pytest.raises(InputError, match=r"PP|schedule"):
        build_order(schedule, pp, vpp, micro_batches, group)


def test_zbv_pairs_a_forward_with_the_next_input_gradient_unless_it_is_its_own() -> None:
    # P = 3, m = 12. Rank r warms up with 2(3-r)-1+r F0 and r F1, then runs 3-r times F1 B1 W1. What F0 and F1 are left pair: 12-5 F0 on
    # rank 0, where chunk 1 is the last stage and B1 is of the F1 before it; 8 and 9 on rank 1, 9 and 9 on rank 2.
    order = build_order("zbv-formatted-a2a", 3, 2, 12)
    assert order.ranks == build_order("zbv-formatted", 3, 2, 12).ranks
    pairs = [[(row[at], row[at + 1]) for at in places] for row, places in zip(order.ranks, pair_places(order), strict=True)]
    assert [Counter(forward.chunk for forward, _ in found) for found in pairs] == [{0: 7}, {0: 8, 1: 9}, {0: 9, 1: 9}]
    assert all(
        forward.kind == "F" and backward.kind == "B" and forward[1:] != backward[1:] for found in pairs for forward, backward in found
    )
