"""When a rank asks for the inputs of its tasks, in Primus's own pipeline.

Its runtime walks one table of tasks, sends and receives a rank. A receive is started where it stands in the table, so no transfer begins
before the receiver has got there: `asked[rank][place]` is the place whose task the receive of `place` is started before. A send is waited
for at the next exchange only, so it holds nobody up.
Source: AMD-AGI/Primus core/pipeline_parallel/scheduler/algorithms (zerobubble.py, zbv_formatted.py, zbv_greedy.py, base.py) and
backends/megatron/core/pipeline_parallel/primuspipe/handlers/communication_handler.py, `async_p2p`. Known error: the transfers of two
neighbours also queue behind each other (one stream a pair of ranks), which is left out: 0.3% of a step where a hop takes a hundredth of
a forward, 3% where it takes a tenth. zero-bubble-heuristic asks by its planner's clock, earlier than these: taken as early enough.
"""

from __future__ import annotations

from bisect import bisect_left

from primus_mcp.projection.pipeline.order import Row, Task, home_of, stage_of

Asked = tuple[tuple[int, ...], ...]


def asked_before_weights(rows: tuple[Row, ...]) -> Asked:
    """Before the task itself, or before a W directly in front of it, which then hides the transfer (zero-bubble)."""
    return tuple(
        tuple(place - 1 if place and row[place - 1].kind == "W" and task.kind != "W" else place for place, task in enumerate(row))
        for row in rows
    )


def asked_by_steps(rows: tuple[Row, ...], steps: tuple[tuple[int, ...], ...]) -> Asked:
    """One step behind the sender's on a common clock of unit tasks: `steps[rank][place]`, two chunks a rank placed as a V."""
    pp = len(rows)
    at = [{task: place for place, task in enumerate(row)} for row in rows]
    asked = []
    for rank, row in enumerate(rows):
        own = []
        for place, task in enumerate(row):
            sender = _sender(rank, task, pp)
            if sender is None:
                own.append(place)
                continue
            other, chunk = sender
            sent = steps[other][at[other][task._replace(chunk=chunk)]]
            own.append(min(place, bisect_left(steps[rank], sent + 1)))
        asked.append(tuple(own))
    return tuple(asked)


def _sender(rank: int, task: Task, pp: int) -> tuple[int, int] | None:
    """(rank, chunk) that the task's input comes from; None where it comes from the rank itself or nowhere."""
    if task.kind == "W":
        return None
    source = stage_of(rank, task.chunk, pp, vee=True) + (-1 if task.kind == "F" else 1)
    if not 0 <= source < 2 * pp:
        return None
    other, chunk = home_of(source, pp, vee=True)
    return None if other == rank else (other, chunk)
