"""`build_order`: every schedule by name. Orders depend on sizes only, so they are built once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from primus_mcp.errors import InputError
from primus_mcp.projection.pipeline.heuristic import default_costs, plan_heuristic
from primus_mcp.projection.pipeline.loop_orders import gpipe, interleaved, one_f_one_b, zb_h1, zb_h2
from primus_mcp.projection.pipeline.order import Order, Row
from primus_mcp.projection.pipeline.rules import VEE_SCHEDULES, order_problem
from primus_mcp.projection.pipeline.v_greedy import v_half, v_min
from primus_mcp.projection.pipeline.v_orders import zbv

_MAKERS: dict[str, Callable[[int, int], tuple[Row, ...]]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "zero-bubble": zb_h1,
    "zb-h2": zb_h2,
    "zbv-formatted": zbv,
    "v-half": v_half,
    "v-min": v_min,
}


def require_sizes(schedule: str, pp: int, vpp: int, micro_batches: int, group_size: int | None) -> None:
    """Raises InputError with the reason of `order_problem` where the schedule does not exist for these sizes."""
    problem = order_problem(schedule, pp, vpp, micro_batches, group_size)
    if problem is not None:
        raise InputError(problem, where="schedule", remedy="change the schedule, PP, VPP or the batch")


def build_order(schedule: str, pp: int, vpp: int, micro_batches: int, group_size: int | None = None, live_cap: int | None = None) -> Order:
    """The tasks of every rank.

    group_size: micro-batches a group of the interleaved schedule, pp by default. live_cap: most live micro-batches a rank, for
    zero-bubble-heuristic only (None: no limit, as its planner has it by default). Raises InputError with the reason of
    `order_problem` where the schedule does not exist.
    """
    group = (pp if group_size is None else group_size) if schedule == "interleaved" else None
    return _built(schedule, pp, vpp, micro_batches, group, live_cap if schedule == "zero-bubble-heuristic" else None)


@lru_cache(maxsize=256)
def _built(schedule: str, pp: int, vpp: int, micro_batches: int, group: int | None, live_cap: int | None) -> Order:
    require_sizes(schedule, pp, vpp, micro_batches, group)
    ranks, period = _rows(schedule, pp, vpp, micro_batches, group, live_cap)
    return Order(schedule=schedule, pp=pp, vpp=vpp, micro_batches=micro_batches, vee=schedule in VEE_SCHEDULES, period=period, ranks=ranks)


def _rows(schedule: str, pp: int, vpp: int, micro_batches: int, group: int | None, live_cap: int | None) -> tuple[tuple[Row, ...], int]:
    """(rows, period in micro-batches, 0 where the order does not repeat)."""
    if schedule == "interleaved":
        assert group is not None
        return interleaved(pp, vpp, micro_batches, group), group
    if schedule == "zero-bubble-heuristic":
        return plan_heuristic(micro_batches, default_costs(pp), live_cap=live_cap), 0
    return _MAKERS[schedule](pp, micro_batches), 0 if schedule == "gpipe" else 1
