"""From stage times to the time of one step: any schedule, uneven stages, hops, blocking or overlapped transfers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from primus_mcp.errors import InputError
from primus_mcp.projection.pipeline.graph import Graph, build_graph, end_times
from primus_mcp.projection.pipeline.heuristic import PlannerCosts
from primus_mcp.projection.pipeline.order import Kind, Order, pair_places, stage_of
from primus_mcp.projection.pipeline.periodic import representative_order
from primus_mcp.projection.pipeline.rules import PAIRED_SCHEDULES, SOLVED_SCHEDULE, SPLIT_PAIR_SCHEDULES
from primus_mcp.projection.pipeline.schedules import build_order, require_sizes
from primus_mcp.projection.pipeline.steady import Family, NamedFamily, extended_run
from primus_mcp.projection.pipeline.times import Pair, StageTimes, stage_times

PairCounts = tuple[dict[tuple[int, int], int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One step. step_s = latest end of any rank; bubble_ratio = 1 - sum(busy) / (pp step); rank_busy_s = compute of a rank;
    rank_end_s = end of its last task (step - end is idle that can hide its gradient sync); span_s = the longest from the begin of a rank's
    first task to the end of its last.
    """

    step_s: float
    bubble_ratio: float
    rank_busy_s: tuple[float, ...]
    rank_end_s: tuple[float, ...]
    span_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedTask:
    """A task with its times, for traces. `stage` is its position in the model."""

    kind: Kind
    micro_batch: int
    chunk: int
    stage: int
    start_s: float
    end_s: float


def _count_pairs(order: Order) -> PairCounts:
    """Per rank how often the forward of one chunk is overlapped with the backward of another: {(F chunk, D chunk): times}."""
    return tuple(
        Counter((row[place].chunk, row[place + 1].chunk) for place in places)
        for row, places in zip(order.ranks, pair_places(order), strict=True)
    )


@lru_cache(maxsize=512)
def _pair_counts(schedule: str, pp: int, vpp: int, micro_batches: int, group_size: int | None) -> PairCounts:
    """The same for any number of micro-batches: each further period adds what the first one beyond a short order adds."""
    order = representative_order(schedule, pp, vpp, micro_batches, group_size, None)
    counts = _count_pairs(order)
    periods = (micro_batches - order.micro_batches) // order.period
    if not periods:
        return counts
    longer = _count_pairs(build_order(schedule, pp, vpp, order.micro_batches + order.period, group_size))
    return tuple(
        {pair: few.get(pair, 0) + periods * (count - few.get(pair, 0)) for pair, count in more.items()}
        for few, more in zip(counts, longer, strict=True)
    )


def _busy_s(order: Order, times: StageTimes, micro_batches: int, pairs: PairCounts) -> tuple[float, ...]:
    """Seconds that each rank computes: its work, less what overlapped pairs save."""
    busy, split = [], order.schedule in SPLIT_PAIR_SCHEDULES
    for rank in range(order.pp):
        stages = [stage_of(rank, chunk, order.pp, vee=order.vee) for chunk in range(order.vpp)]
        total = micro_batches // order.copies * sum(times.forward_s[s] + times.backward_s[s] + times.weight_s[s] for s in stages)
        for (forward, backward), count in pairs[rank].items() if pairs else ():
            total -= count * times.saved_s(stages[forward], stages[backward], split=split)
        busy.append(total)
    return tuple(busy)


def _timeline(graph: Graph, times: StageTimes, end: list[float], more_s: float, busy_s: tuple[float, ...]) -> Timeline:
    """Timeline of a run graph, with `more_s` added at the end of every rank for micro-batches beyond the graph's."""
    ends = tuple(end[node] + more_s for node in graph.tails)
    starts = tuple(_start(graph, times, end, rank) for rank in range(graph.order.pp))
    step = max(ends)
    return Timeline(
        step_s=step,
        bubble_ratio=1.0 - sum(busy_s) / (graph.order.pp * step) if step else 0.0,
        rank_busy_s=busy_s,
        rank_end_s=ends,
        span_s=max(last - first for first, last in zip(starts, ends, strict=True)),
    )


def _start(graph: Graph, times: StageTimes, end: list[float], rank: int) -> float:
    """A rank's first task is a forward on its own."""
    first = graph.order.ranks[rank][0].chunk
    return end[graph.task_nodes[rank][0]] - times.forward_s[stage_of(rank, first, graph.order.pp, vee=graph.order.vee)]


def simulate(
    schedule: str,
    *,
    pp: int,
    vpp: int,
    micro_batches: int,
    forward_s: tuple[float, ...],
    backward_s: tuple[float, ...],
    weight_s: tuple[float, ...],
    hop_s: float | tuple[float, ...] = 0.0,
    blocking: bool = False,
    asking: bool = False,
    group_size: int | None = None,
    planner: PlannerCosts | None = None,
    paired_s: Pair | None = None,
) -> Timeline:
    """One step of a schedule. Stage times are seconds a micro-batch in MODEL order (stage s of pp * vpp, embedding first).

    backward_s = input gradient with its recompute, weight_s = weight gradient; schedules that do not split run D = B + W.
    hop_s: seconds of one transfer between different ranks, one number or one for each of the pp * vpp - 1 boundaries. blocking:
    the sender waits for its transfers (Megatron without overlapped p2p). asking: no transfer begins before its receiver asks (Primus's own
    pipeline, `receives.py`; without effect on orders that it does not run). paired_s: what every stage's forward and its full backward
    (input gradient in zbv-formatted-a2a) take of an overlapped pair, for schedules that have them.
    planner: see `build_order`; for seaailab-ilp what its solver plans with, by default the times themselves in 1F1B's memory.
    Raises InputError where the schedule does not exist for the sizes, ValueError for wrong times.
    """
    if paired_s and schedule not in PAIRED_SCHEDULES:
        raise InputError(f"{schedule} overlaps no tasks", where="paired_s", remedy=f"use one of {', '.join(PAIRED_SCHEDULES)}")
    times = stage_times(pp * vpp, forward_s, backward_s, weight_s, hop_s, paired_s)
    return _simulated(schedule, pp, vpp, micro_batches, group_size, planner, blocking, asking, times)


@lru_cache(maxsize=8192)
def _simulated(
    schedule: str,
    pp: int,
    vpp: int,
    micro_batches: int,
    group_size: int | None,
    planner: PlannerCosts | None,
    blocking: bool,
    asking: bool,
    times: StageTimes,
) -> Timeline:
    paired = schedule in PAIRED_SCHEDULES
    require_sizes(schedule, pp, vpp, micro_batches, group_size)
    family: Family = NamedFamily(
        schedule=schedule, pp=pp, vpp=vpp, group_size=group_size, planner=planner, blocking=blocking, asking=asking
    )
    if schedule == SOLVED_SCHEDULE:
        from primus_mcp.projection.pipeline.ilp import solve  # numpy loads for a solved order only

        family = solve(micro_batches, planner or _costs(times)).family
    graph, end, more_s = extended_run(family, micro_batches, times.values(pp, schedule))
    pairs = _pair_counts(schedule, pp, vpp, micro_batches, group_size) if paired else ()
    return _timeline(graph, times, end, more_s, _busy_s(graph.order, times, micro_batches, pairs))


def _costs(times: StageTimes) -> PlannerCosts:
    """The times themselves, for the solver to plan with, in the memory of 1F1B: pp micro-batches a rank."""
    caps = (float(len(times.forward_s)),) * len(times.forward_s)
    hop = max(times.hop_s, default=0.0)
    return PlannerCosts(forward=times.forward_s, backward=times.backward_s, weight=times.weight_s, hop=hop, caps=caps)


def simulate_order(order: Order, times: StageTimes, *, blocking: bool = False, asking: bool = False) -> Timeline:
    """One step of any order, simulated task by task. Raises ValueError for an order that cannot run."""
    graph = build_graph(order, blocking=blocking, asking=asking)
    end = end_times(graph, times.values(order.pp, order.schedule))
    return _timeline(graph, times, end, 0.0, _busy_s(order, times, order.micro_batches, _count_pairs(order)))


def trace(order: Order, times: StageTimes, *, blocking: bool = False, asking: bool = False) -> tuple[tuple[TracedTask, ...], ...]:
    """Per rank every task with its start and end, in the order in which it runs; the two of an overlapped pair have the same."""
    graph, values = build_graph(order, blocking=blocking, asking=asking), times.values(order.pp, order.schedule)
    end = end_times(graph, values)
    return tuple(
        tuple(
            TracedTask(
                kind=task.kind,
                micro_batch=task.micro_batch,
                chunk=task.chunk,
                stage=stage_of(rank, task.chunk, order.pp, vee=order.vee),
                start_s=end[node] - values[graph.rows[node - 1][3]],
                end_s=end[node],
            )
            for task, node in zip(row, graph.task_nodes[rank], strict=True)
        )
        for rank, row in enumerate(order.ranks)
    )
