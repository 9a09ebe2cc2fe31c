"""When the transfers of Primus's own pipeline begin.

Its runtime walks one table of tasks, sends and receives a rank. A receive is started where it stands in the table, so no transfer begins
before the receiver has got there, and the transfers between two neighbours, of both directions, run one after another on one stream (on
one each way where there are two ranks in all). A send is waited for at the next exchange only, which holds hardly anybody up.
Source: AMD-AGI/Primus core/pipeline_parallel/scheduler/algorithms (zerobubble.py, zbv_formatted.py, zbv_greedy.py, base.py) and
backends/megatron/core/pipeline_parallel/primuspipe/handlers/communication_handler.py, `async_p2p`; pytorch
torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, `pointToPoint` (a stream a pair of ranks). Known error: zero-bubble-heuristic asks by its
planner's clock, earlier than these: taken as early enough.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from primus_mcp.projection.pipeline.order import Receives, Row, home_of, stage_of

Steps = tuple[tuple[int, ...], ...]


class _Transfer(NamedTuple):
    """From a task of `source` to one of `target`."""

    source: int
    sent: int
    target: int
    received: int


def _sources(rank: int, pp: int, vpp: int) -> dict[tuple[str, int], tuple[int, int]]:
    """(kind, chunk) of tasks that wait for another rank -> (that rank, its chunk)."""
    found = {}
    for kind, step in (("F", -1), ("B", 1)):
        for chunk in range(vpp):
            stage = stage_of(rank, chunk, pp, vee=vpp == 2) + step
            if 0 <= stage < vpp * pp:
                other, its_chunk = home_of(stage, pp, vee=vpp == 2)
                if other != rank:
                    found[kind, chunk] = other, its_chunk
    return found


def _transfers(rows: tuple[Row, ...], vpp: int) -> list[_Transfer]:
    at: list[dict[tuple[str, int, int], int]] = [{task: place for place, task in enumerate(row)} for row in rows]
    found = []
    for rank, row in enumerate(rows):
        sources = _sources(rank, len(rows), vpp)
        for place, (kind, i, chunk) in enumerate(row):
            source = sources.get((kind, chunk))
            if source is not None:
                found.append(_Transfer(source[0], at[source[0]][kind, i, source[1]], rank, place))
    return found


def _queued(transfers: list[_Transfer], exchange: list[int], pp: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Transfers of each pair by the exchange that they belong to, those to the higher rank first (on even and odd ranks); of two ranks in
    all, of each direction.
    """
    queues: list[list[tuple[int, bool, tuple[int, int]]]] = [[] for _ in range(pp - 1 if pp != 2 else 2)]
    for (source, _, target, received), number in zip(transfers, exchange, strict=True):
        downwards = target < source
        queues[int(downwards) if pp == 2 else min(source, target)].append((number, downwards, (target, received)))
    return tuple(tuple(receiver for _, _, receiver in sorted(queue)) for queue in queues)


def received_before_weights(rows: tuple[Row, ...], *, hoisted: bool = True) -> Receives:
    """One chunk a rank, asked for before the task or, `hoisted`, before a W directly in front of it, which then hides the transfer.

    What a rank sends and asks for between two tasks is one exchange.
    """

    def place_of(row: Row, place: int) -> int:
        behind_weight = hoisted and place > 0 and row[place - 1].kind == "W" and row[place].kind != "W"
        return place - 1 if behind_weight else place

    asked = tuple(tuple(place_of(row, place) for place in range(len(row))) for row in rows)
    transfers = _transfers(rows, 1)
    exchange = [t.sent + 1 if t.target > t.source else asked[t.target][t.received] for t in transfers]
    return Receives(asked=asked, queues=_queued(transfers, exchange, len(rows)))


def received_by_steps(rows: tuple[Row, ...], steps: Steps) -> Receives:
    """Two chunks a rank in a V, sent and asked for in the step behind the sender's on a clock of unit tasks: `steps[rank][place]`."""
    transfers = _transfers(rows, 2)
    exchange = [steps[t.source][t.sent] + 1 for t in transfers]
    asked = [list(range(len(row))) for row in rows]
    for (_, _, target, place), step in zip(transfers, exchange, strict=True):
        asked[target][place] = min(place, bisect_left(steps[target], step))
    return Receives(asked=tuple(map(tuple, asked)), queues=_queued(transfers, exchange, len(rows)))
