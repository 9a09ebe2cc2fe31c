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
from dataclasses import dataclass

from primus_mcp.projection.pipeline.order import Receives, Row, Task, home_of, stage_of

Steps = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transfer:
    """From `sender` (rank, place) to `receiver` (rank, place)."""

    sender: tuple[int, int]
    receiver: tuple[int, int]

    @property
    def pair(self) -> int:
        """The lower of the two ranks."""
        return min(self.sender[0], self.receiver[0])

    @property
    def upwards(self) -> bool:
        """Whether it goes to the higher rank: those of one exchange run upwards first, on even and on odd ranks."""
        return self.receiver[0] > self.sender[0]


def _sender(rank: int, task: Task, pp: int, vpp: int) -> tuple[int, int] | None:
    """(rank, chunk) that the task's input comes from; None where it comes from the rank itself or nowhere."""
    if task.kind == "W":
        return None
    source = stage_of(rank, task.chunk, pp, vee=vpp == 2) + (-1 if task.kind == "F" else 1)
    if not 0 <= source < vpp * pp:
        return None
    other, chunk = home_of(source, pp, vee=vpp == 2)
    return None if other == rank else (other, chunk)


def _transfers(rows: tuple[Row, ...], vpp: int) -> list[_Transfer]:
    at = [{task: place for place, task in enumerate(row)} for row in rows]
    found = []
    for rank, row in enumerate(rows):
        for place, task in enumerate(row):
            sender = _sender(rank, task, len(rows), vpp)
            if sender is not None:
                other, chunk = sender
                found.append(_Transfer(sender=(other, at[other][task._replace(chunk=chunk)]), receiver=(rank, place)))
    return found


def _queued(transfers: list[_Transfer], exchange: list[int], pp: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Transfers of each pair by the exchange that they belong to; of two ranks in all, of each direction."""
    queues: list[list[tuple[int, bool, tuple[int, int]]]] = [[] for _ in range(pp - 1 if pp != 2 else 2)]
    for transfer, number in zip(transfers, exchange, strict=True):
        queue = transfer.pair if pp != 2 else int(not transfer.upwards)
        queues[queue].append((number, not transfer.upwards, transfer.receiver))
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
    exchange = [t.sender[1] + 1 if t.upwards else asked[t.receiver[0]][t.receiver[1]] for t in transfers]
    return Receives(asked=asked, queues=_queued(transfers, exchange, len(rows)))


def received_by_steps(rows: tuple[Row, ...], steps: Steps) -> Receives:
    """Two chunks a rank in a V, sent and asked for in the step behind the sender's on a clock of unit tasks: `steps[rank][place]`."""
    transfers = _transfers(rows, 2)
    exchange = [steps[rank][place] + 1 for rank, place in (t.sender for t in transfers)]
    asked = [list(range(len(row))) for row in rows]
    for transfer, step in zip(transfers, exchange, strict=True):
        rank, place = transfer.receiver
        asked[rank][place] = min(place, bisect_left(steps[rank], step))
    return Receives(asked=tuple(map(tuple, asked)), queues=_queued(transfers, exchange, len(rows)))
