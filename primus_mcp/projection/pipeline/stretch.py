"""A stretch of a graph on its own: from the state of one cut to what follows, and many equal stretches in a row.

Every end is a maximum of two sums (`graph.end_times`). While the same of the two wins everywhere, the map from a state to the state c
blocks later adds constants to some of its entries, so entries that grew alike in two windows of c blocks grow on alike: each by a gain of
its own. That ends where the loser of a maximum catches up, which the leads of two windows tell ahead. So stages that differ by a
thousandth, whose ranks drift apart over thousands of micro-batches before they wait for each other, cost a few blocks too.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

from primus_mcp.projection.pipeline.graph import Graph, GraphRow

State = list[float]
TOLERANCE = 1e-11  # relative to the latest end; doubles carry 1e-16 a sum
_WORTH = 3  # fewer windows than it takes to see the next repetition are run


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Rows of a graph between two cuts over slots of their own: the start state's, then one a row.

    `nodes[i]` = the graph's node of row i; `outcome` = slots of the state at the end.
    """

    rows: tuple[GraphRow, ...]
    nodes: tuple[int, ...]
    outcome: tuple[int, ...]


def cut_stretch(graph: Graph, state: tuple[int, ...], first: list[int], last: list[int], outcome: tuple[int, ...]) -> Stretch:
    """Tasks `first[rank]` to `last[rank]` of every rank, which wait for nothing but each other and the nodes of `state`."""
    slot = {node: at for at, node in enumerate(state)}
    rows: list[GraphRow] = []
    nodes: list[int] = []
    for node, (previous, source, latency, duration) in enumerate(graph.rows, 1):
        rank, place = graph.owners[node]
        if not first[rank] <= place < last[rank]:
            continue
        before = slot[previous]
        slot[node] = len(state) + len(rows)
        rows.append((before, slot[source] if source else before, latency, duration))
        nodes.append(node)
    return Stretch(rows=tuple(rows), nodes=tuple(nodes), outcome=tuple(slot[node] for node in outcome))


def run_stretch(stretch: Stretch, state: State, values: list[float]) -> State:
    """End of every slot."""
    end = list(state)
    push = end.append
    for previous, source, latency, duration in stretch.rows:
        free, ready = end[previous], end[source] + values[latency]
        push((ready if ready > free else free) + values[duration])
    return end


def _leads(stretch: Stretch, end: State, values: list[float]) -> State:
    """By how much each row's input comes after its rank is free, in a run with these ends."""
    return [end[source] + values[latency] - end[previous] for previous, source, latency, _ in stretch.rows]


def _window(states: list[State], longest: int, tolerance: float) -> int:
    """Blocks c after which every entry has grown by what it grew in the c blocks before; 0 where there is none up to `longest`."""
    newest = states[-1]
    first = newest[0]
    for c in range(1, min(longest, (len(states) - 1) // 2) + 1):
        middle, oldest = states[-1 - c], states[-1 - 2 * c]
        if abs(first - 2 * middle[0] + oldest[0]) <= tolerance and all(
            abs(new - 2 * mid + old) <= tolerance for new, mid, old in zip(newest, middle, oldest, strict=True)
        ):
            return c
    return 0


def _lasting(earlier: State, later: State, most: int, tolerance: float) -> int:
    """Windows, up to `most`, in which no maximum changes its winner, from the leads of one block in the last two windows."""
    for before, now in zip(earlier, later, strict=True):
        rate = now - before
        if abs(rate) <= tolerance:
            continue
        if now * rate <= 0:
            most = min(most, floor(-now / rate))
        elif before * now < 0:
            return 0
    return most


def run_blocks(block: Stretch, state: State, values: list[float], count: int, longest: int) -> State:
    """The state after `count` equal blocks. `longest`: most blocks a window is looked for in.

    Behind a maximum that changes soon the next window is not looked for before it can be there.
    """
    states, look = [state], 0
    ends: list[State] = []  # of the last 2 * longest blocks
    while count:
        end = run_stretch(block, state, values)
        state = [end[slot] for slot in block.outcome]
        count -= 1
        states.append(state)
        ends = [*ends[-2 * longest + 1 :], end]
        tolerance = TOLERANCE * max(state)
        c = _window(states, longest, tolerance) if len(states) > look else 0
        if not c:
            continue
        windows = count // c
        for old, new in zip(ends[-2 * c : -c], ends[-c:], strict=True):
            if windows < _WORTH:
                break
            windows = _lasting(_leads(block, old, values), _leads(block, new, values), windows, tolerance)
        if windows >= _WORTH:
            state = [new + windows * (new - old) for new, old in zip(state, states[-1 - c], strict=True)]
            count -= windows * c
            states, ends, look = [state], [], 0
        else:
            look = len(states) + (windows + 2) * c
    return state
