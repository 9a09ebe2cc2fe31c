"""What each rank holds in memory while it runs: from the order alone, no times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from primus_mcp.projection.pipeline.heuristic import PlannerCosts
from primus_mcp.projection.pipeline.order import Kind, Row
from primus_mcp.projection.pipeline.periodic import representative_order
from primus_mcp.projection.pipeline.rules import SOLVED_SCHEDULE, model_copies
from primus_mcp.projection.pipeline.schedules import require_sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """What a rank holds just before it runs a task of `kind` on `chunk`.

    forward_live[c] = micro-batches of chunk c whose F has run and whose B or D has not; weight_pending[c] = those whose B has run and
    whose W has not. The two are disjoint. The micro-batch that the task itself works on is counted, except for an F, which adds
    its own while it runs.
    """

    kind: Kind
    chunk: int
    forward_live: tuple[int, ...]
    weight_pending: tuple[int, ...]


def _walk(row: Row, vpp: int) -> Iterator[LiveState]:
    """The state before each task of one rank."""
    live, pending = [0] * vpp, [0] * vpp
    for kind, _, chunk in row:
        yield LiveState(kind=kind, chunk=chunk, forward_live=tuple(live), weight_pending=tuple(pending))
        if kind == "F":
            live[chunk] += 1
        elif kind == "D":
            live[chunk] -= 1
        elif kind == "B":
            live[chunk] -= 1
            pending[chunk] += 1
        else:
            pending[chunk] -= 1


def states_of_row(row: Row, vpp: int) -> tuple[LiveState, ...]:
    """Distinct states of one rank, in the order in which they first appear."""
    return tuple(dict.fromkeys(_walk(row, vpp)))


States = tuple[LiveState, ...]


@lru_cache(maxsize=1024)
def states_by_gradients(
    schedule: str, *, pp: int, vpp: int, micro_batches: int, group_size: int | None = None
) -> tuple[Mapping[frozenset[int], States], ...]:
    """Per rank the distinct states by the chunks that have weight gradients then: those with a D or W behind them in this step."""
    found: list[Mapping[frozenset[int], States]] = []
    for row in representative_order(schedule, pp, vpp, micro_batches, group_size, None).ranks:
        states: dict[frozenset[int], dict[LiveState, None]] = defaultdict(dict)
        with_gradient: frozenset[int] = frozenset()
        for state in _walk(row, vpp):
            states[with_gradient][state] = None
            if state.kind in "DW":
                with_gradient |= {state.chunk}
        found.append({held: tuple(distinct) for held, distinct in states.items()})
    return tuple(found)


def _capped_states(most: int) -> tuple[LiveState, ...]:
    """A bound of any order with at most so many live: all but one F done and no B, which holds more than what waits for W."""
    return (
        LiveState(kind="F", chunk=0, forward_live=(most - 1,), weight_pending=(0,)),
        LiveState(kind="B", chunk=0, forward_live=(most,), weight_pending=(0,)),
        LiveState(kind="W", chunk=0, forward_live=(most - 1,), weight_pending=(1,)),
    )


def live_states(
    schedule: str, *, pp: int, vpp: int, micro_batches: int, group_size: int | None = None, planner: PlannerCosts | None = None
) -> tuple[tuple[LiveState, ...], ...]:
    """Per rank the distinct states in which it runs its tasks, exact for any number of micro-batches (see `representative_order`).

    Of seaailab-ilp, whose order depends on times, the fullest states under the planner's caps (1F1B's peak by default): a bound.
    Raises InputError where the schedule does not exist.
    """
    return _live_states(schedule, pp, vpp, micro_batches, group_size, planner)


@lru_cache(maxsize=4096)
def _live_states(
    schedule: str, pp: int, vpp: int, micro_batches: int, group_size: int | None, planner: PlannerCosts | None
) -> tuple[tuple[LiveState, ...], ...]:
    if schedule == SOLVED_SCHEDULE:
        require_sizes(schedule, pp, vpp, micro_batches, group_size)
        caps = (float(pp),) * pp if planner is None else planner.caps or (float(micro_batches),) * pp
        return tuple(_capped_states(min(micro_batches, int(cap))) for cap in caps)
    order = representative_order(schedule, pp, vpp, micro_batches, group_size, planner)
    return tuple(states_of_row(row, vpp) for row in order.ranks)


def live_units(
    schedule: str, pp: int, vpp: int, micro_batches: int, rank: int, group_size: int | None = None, planner: PlannerCosts | None = None
) -> float:
    """Peak of live micro-batches on a rank, in units of one micro-batch of 1/pp of the model (a chunk is 1/vpp, 2/vpp under two copies).

    Every micro-batch counts in full from the start of its F to the end of its D or W.
    """
    states = live_states(schedule, pp=pp, vpp=vpp, micro_batches=micro_batches, group_size=group_size, planner=planner)[rank]
    return max(sum(state.forward_live) + sum(state.weight_pending) + (state.kind == "F") for state in states) * model_copies(schedule) / vpp
