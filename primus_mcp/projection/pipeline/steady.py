"""Any number of micro-batches at the cost of the steady state, exactly.

Cut every rank's row so that nothing before the cuts waits for anything behind them. What lies behind depends on what lies before only
through the cut's state: the ends of the last node of each rank and of the outputs still to be used. All ends are maxima of sums, so
adding L to a state adds L to all that follows. Between a cut and the cut one period later lies the same block: if the state c periods
later equals the state plus one constant L, induction gives T(m + n c period) = T(m) + n L for every rank's end, cool-down included.
c is 1 mostly, pp for 1F1B with hops. Where the state has not repeated yet, blocks are run on from it (`stretch.run_blocks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import ceil
from typing import Protocol

from primus_mcp.projection.pipeline.graph import Graph, end_times, named_graph
from primus_mcp.projection.pipeline.heuristic import PlannerCosts
from primus_mcp.projection.pipeline.periodic import Splice, first_size, splices
from primus_mcp.projection.pipeline.schedules import period_of
from primus_mcp.projection.pipeline.stretch import TOLERANCE, Stretch, cut_stretch, run_blocks, run_stretch


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeating:
    """`states[k]`: nodes of the cut k periods before the last one, in the same sequence for every k. `block`: what lies between the last
    two cuts; `tail`: what follows the last one.
    """

    graph: Graph
    states: tuple[tuple[int, ...], ...]
    block: Stretch
    tail: Stretch


def _closed_cuts(graph: Graph, found: tuple[Splice, ...]) -> list[list[int]]:
    """Cuts k = K..0 periods before the splice point (deepest first), each moved on until no task before it waits for one behind it."""
    cut, checked = [0] * len(found), [0] * len(found)
    cuts = []
    for k in range(min(splice.repeats for splice in found), -1, -1):
        cut = [max(at, splice.at - k * splice.length) for at, splice in zip(cut, found, strict=True)]
        while checked != cut:
            for rank, entries in enumerate(graph.entries):
                done = slice(checked[rank], cut[rank])
                for source in (*(source for _, source in entries[done]), *graph.queued_after[rank][done]):
                    if source:
                        other, place = graph.owners[source]
                        cut[other] = max(cut[other], place + 1)
                checked[rank] = max(checked[rank], done.stop)
        cuts.append(cut)
    return cuts


def _usable(cuts: list[list[int]], found: tuple[Splice, ...]) -> list[list[int]]:
    """The last cuts inside the repeating part, latest first, that lie exactly one block apart."""
    inside = [cut for cut in reversed(cuts) if all(s.first <= at <= s.at for at, s in zip(cut, found, strict=True))]
    kept = inside[:1]
    for later, cut in pairwise(inside):
        if any(new - at != s.length for new, at, s in zip(later, cut, found, strict=True)):
            break
        kept.append(cut)
    return kept


def _states(graph: Graph, found: tuple[Splice, ...], cuts: list[list[int]]) -> list[dict[tuple[int, int, int], int]]:
    """Per cut: (rank, tasks before the cut, use) -> node. use: 0 last node of the rank; 1, 2 input of an F, of a B or D behind the cut; 3
    task that one behind some cut asked for its input after; 4 the last transfer between two neighbours.
    """
    last = cuts[0]
    states: list[dict[tuple[int, int, int], int]] = [
        {(rank, 0, 0): entries[at][0] for rank, (entries, at) in enumerate(zip(graph.entries, cut, strict=True))} for cut in cuts
    ]
    asked_before: set[tuple[int, int]] = set()
    for rank, entries in enumerate(graph.entries):
        for place, (_, source) in enumerate(entries):
            use = 1 if graph.order.ranks[rank][place].kind == "F" else 2
            uses = (source, use), (graph.asked_after[rank][place], 3), (graph.queued_after[rank][place], 4)
            lowest = max(0, ceil((last[rank] - place) / found[rank].length))  # the user lies behind cut k from here on
            for node, use in uses:
                if not node:
                    continue
                other, from_place = graph.owners[node]
                highest = ceil((last[other] - from_place) / found[other].length) - 1  # the source lies before cut k up to here
                for k in range(lowest, min(highest, len(cuts) - 1) + 1):
                    if use == 3:
                        asked_before.add((rank, cuts[k][rank] - from_place))
                    else:
                        states[k][other, cuts[k][other] - from_place, use] = node
    for cut, state in zip(cuts, states, strict=True):
        state |= {(rank, back, 3): graph.task_nodes[rank][cut[rank] - back] for rank, back in asked_before if back <= cut[rank]}
    return states


def repeating_graph(graph: Graph, found: tuple[Splice, ...]) -> Repeating | None:
    """The graph with the states of its cuts; None where no two comparable cuts exist."""
    cuts = _usable(_closed_cuts(graph, found), found)
    cuts = [cut for cut in cuts if all(at < len(nodes) for at, nodes in zip(cut, graph.task_nodes, strict=True))]
    if not cuts:
        return None
    states = _states(graph, found, cuts)
    comparable = []
    for cut, state in zip(cuts, states, strict=True):
        if state.keys() != states[0].keys() or any(cut[rank] - back < found[rank].first for rank, back, _ in state):
            break
        comparable.append(tuple(state[key] for key in sorted(state)))
    if len(comparable) < 2:
        return None
    lengths = [len(nodes) for nodes in graph.task_nodes]
    return Repeating(
        graph=graph,
        states=tuple(comparable),
        block=cut_stretch(graph, comparable[1], cuts[1], cuts[0], comparable[0]),
        tail=cut_stretch(graph, comparable[0], cuts[0], lengths, ()),
    )


@lru_cache(maxsize=128)
def repeating(
    schedule: str, pp: int, vpp: int, micro_batches: int, group_size: int | None, blocking: bool, asking: bool
) -> Repeating | None:
    """`repeating_graph` of a schedule by name."""
    found = splices(schedule, pp, vpp, micro_batches, group_size)
    if found is None:
        return None
    return repeating_graph(named_graph(schedule, pp, vpp, micro_batches, group_size, None, blocking, asking), found)


def _repetition(states: tuple[tuple[int, ...], ...], end: list[float]) -> tuple[int, float] | None:
    """(c, L): the last state equals the state c periods before it plus L. None where it has not repeated yet."""
    newest = states[0]
    tolerance = TOLERANCE * max(end[node] for node in newest)
    for c, state in enumerate(states[1:], 1):
        gain = end[newest[0]] - end[state[0]]
        if all(abs(end[new] - end[old] - gain) <= tolerance for new, old in zip(newest, state, strict=True)):
            return c, gain
    return None


class Family(Protocol):
    """Orders of one schedule for growing numbers of micro-batches."""

    @property
    def period(self) -> int:
        """Micro-batches by which an order grows; 0 where sizes have nothing in common."""

    def first_size(self, micro_batches: int) -> int:
        """A size to begin with, equal to `micro_batches` modulo the period."""

    def graph(self, micro_batches: int) -> Graph:
        """The graph of one size."""

    def repeating(self, micro_batches: int) -> Repeating | None:
        """The same with its cuts, None where they cannot be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFamily:
    """The orders of `build_order`."""

    schedule: str
    pp: int
    vpp: int
    group_size: int | None
    planner: PlannerCosts | None
    blocking: bool
    asking: bool = False

    @property
    def period(self) -> int:
        """See `period_of`."""
        return period_of(self.schedule, self.pp, self.group_size)

    def first_size(self, micro_batches: int) -> int:
        """See `periodic.first_size`."""
        return first_size(self.pp, micro_batches, self.period)

    def graph(self, micro_batches: int) -> Graph:
        """Built once a size."""
        return named_graph(self.schedule, self.pp, self.vpp, micro_batches, self.group_size, self.planner, self.blocking, self.asking)

    def repeating(self, micro_batches: int) -> Repeating | None:
        """Built once a size."""
        return repeating(self.schedule, self.pp, self.vpp, micro_batches, self.group_size, self.blocking, self.asking)


def _longer_run(part: Repeating, values: list[float], blocks: int) -> tuple[Graph, list[float], float]:
    """`extended_run` of a graph with `blocks` more blocks. Nodes before the last cut keep the ends that they have without them."""
    end = end_times(part.graph, values)
    more_s, found = 0.0, _repetition(part.states, end)
    if found is not None:
        c, gain_s = found
        more_s, blocks = blocks // c * gain_s, blocks % c
    if blocks:
        start = [end[node] for node in part.states[0]]
        state = run_blocks(part.block, start, values, blocks, 2 * part.graph.order.pp)
        after = run_stretch(part.tail, state, values)
        for node, end_s in zip(part.tail.nodes, after[len(state) :], strict=True):
            end[node] = end_s
    return part.graph, end, more_s


def extended_run(family: Family, micro_batches: int, values: list[float]) -> tuple[Graph, list[float], float]:
    """(graph, ends of its nodes, seconds to add at every rank's end) for m micro-batches; the graph is small where m is large.

    Sizes double until an order has two comparable cuts.
    """
    period = family.period
    size = family.first_size(micro_batches) if period else micro_batches
    while period and 4 * size < 3 * micro_batches:
        part = family.repeating(size)
        if part is not None:
            return _longer_run(part, values, (micro_batches - size) // period)
        size *= 2
        size += (micro_batches - size) % period
    graph = family.graph(micro_batches)
    return graph, end_times(graph, values), 0.0
