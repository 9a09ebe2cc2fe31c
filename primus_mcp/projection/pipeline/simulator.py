"""From stage times to the time of one step: any schedule, uneven stages, hops, blocking or overlapped transfers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import isfinite

from primus_mcp.projection.pipeline.graph import Graph, build_graph, end_times, value_table
from primus_mcp.projection.pipeline.order import Kind, Order, stage_of
from primus_mcp.projection.pipeline.steady import extended_run


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One step. step_s = latest end of any rank; bubble_ratio = 1 - sum(busy) / (pp step); rank_busy_s = compute of a rank;
    rank_start_s / rank_end_s = begin of its first and end of its last task (step - end is idle that can hide its gradient sync);
    span_s = the longest end - start.
    """

    step_s: float
    bubble_ratio: float
    rank_busy_s: tuple[float, ...]
    rank_start_s: tuple[float, ...]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Seconds a micro-batch for every stage in model order (length pp * vpp), and one hop for every boundary between stages."""

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    weight_s: tuple[float, ...]
    hop_s: tuple[float, ...]

    def values(self) -> list[float]:
        """The value table of the graphs."""
        return value_table(self.forward_s, self.backward_s, self.weight_s, self.hop_s)


def stage_times(
    stages: int,
    forward_s: tuple[float, ...],
    backward_s: tuple[float, ...],
    weight_s: tuple[float, ...],
    hop_s: float | tuple[float, ...],
) -> StageTimes:
    """Checked stage times. Raises ValueError for a wrong length, or a time that is negative or not finite."""
    hops = hop_s if isinstance(hop_s, tuple) else (hop_s,) * (stages - 1)
    for name, times, length in (
        ("forward_s", forward_s, stages),
        ("backward_s", backward_s, stages),
        ("weight_s", weight_s, stages),
        ("hop_s", hops, stages - 1),
    ):
        if len(times) != length:
            raise ValueError(f"{name} has {len(times)} entries, {stages} stages need {length}")
        if not all(isfinite(time) and time >= 0 for time in times):
            raise ValueError(f"{name} holds a time that is negative or not finite: {times}")
    return StageTimes(forward_s=forward_s, backward_s=backward_s, weight_s=weight_s, hop_s=hops)


def timeline(graph: Graph, times: StageTimes, end: list[float], *, more_s: float = 0.0, micro_batches: int | None = None) -> Timeline:
    """Timeline of a run graph, with `more_s` added at the end of every rank for micro-batches beyond the graph's."""
    order, count = graph.order, micro_batches or graph.order.micro_batches
    work = [sum(parts) for parts in zip(times.forward_s, times.backward_s, times.weight_s, strict=True)]
    busy = tuple(
        count * sum(work[stage_of(rank, chunk, order.pp, vee=order.vee)] for chunk in range(order.vpp)) for rank in range(order.pp)
    )
    ends = tuple(end[node] + more_s for node in graph.tails)
    starts = tuple(_start(graph, times, end, rank) for rank in range(order.pp))
    step = max(ends)
    return Timeline(
        step_s=step,
        bubble_ratio=1.0 - sum(busy) / (order.pp * step) if step else 0.0,
        rank_busy_s=busy,
        rank_start_s=starts,
        rank_end_s=ends,
        span_s=max(last - first for first, last in zip(starts, ends, strict=True)),
    )


def _start(graph: Graph, times: StageTimes, end: list[float], rank: int) -> float:
    """A rank's first task is the forward of its first chunk."""
    return end[graph.task_nodes[rank][0]] - times.forward_s[stage_of(rank, 0, graph.order.pp, vee=graph.order.vee)]


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
    group_size: int | None = None,
    live_cap: int | None = None,
) -> Timeline:
    """One step of a schedule. Stage times are seconds a micro-batch in MODEL order (stage s of pp * vpp, embedding first).

    backward_s = input gradient with its recompute, weight_s = weight gradient; schedules that do not split run D = B + W.
    hop_s: seconds of one transfer between different ranks, one number or one for each of the pp * vpp - 1 boundaries. blocking:
    the sender waits for its transfers (Megatron without overlapped p2p). Raises InputError where the schedule does not exist
    for the sizes, ValueError for times of a wrong length.
    """
    times = stage_times(pp * vpp, forward_s, backward_s, weight_s, hop_s)
    return _simulated(schedule, pp, vpp, micro_batches, group_size, live_cap, blocking, times)


@lru_cache(maxsize=8192)
def _simulated(
    schedule: str, pp: int, vpp: int, micro_batches: int, group_size: int | None, live_cap: int | None, blocking: bool, times: StageTimes
) -> Timeline:
    values = times.values()
    graph, end, more_s = extended_run(schedule, pp, vpp, micro_batches, group_size, live_cap, blocking, values)
    return timeline(graph, times, end, more_s=more_s, micro_batches=micro_batches)


def simulate_order(order: Order, times: StageTimes, *, blocking: bool = False) -> Timeline:
    """One step of any order, simulated task by task. Raises ValueError for an order that cannot run."""
    graph = build_graph(order, blocking=blocking)
    return timeline(graph, times, end_times(graph, times.values()))


def trace(order: Order, times: StageTimes, *, blocking: bool = False) -> tuple[tuple[TracedTask, ...], ...]:
    """Per rank every task with its start and end, in the order in which it runs."""
    graph, values = build_graph(order, blocking=blocking), times.values()
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
