"""`build_order`: every schedule by name. Orders depend on sizes only, so they are built once."""

from __future__ import annotations

from functools import lru_cache

from primus_mcp.errors import InputError
from primus_mcp.projection.pipeline import loop_orders
from primus_mcp.projection.pipeline.order import Order, Row
from primus_mcp.projection.pipeline.rules import VEE_SCHEDULES, order_problem


def build_order(schedule: str, pp: int, vpp: int, micro_batches: int, group_size: int | None = None, live_cap: int | None = None) -> Order:
    """The tasks of every rank.

    group_size: micro-batches a group of the interleaved schedule, pp by default. live_cap: most live micro-batches a rank, for
    zero-bubble-heuristic only (None: no limit, as its planner has it by default). Raises InputError with the reason of
    `order_problem` where the schedule does not exist.
    """
    group = (pp if group_size is None else group_size) if schedule == "interleaved" else None
    return _built(schedule, pp, vpp, micro_batches, group, live_cap if schedule == "zero-bubble-heuristic" else None)


@lru_cache(maxsize=1024)
def _built(schedule: str, pp: int, vpp: int, micro_batches: int, group: int | None, live_cap: int | None) -> Order:
    problem = order_problem(schedule, pp, vpp, micro_batches, group)
    if problem is not None:
        raise InputError(problem, where="schedule", remedy="change the schedule, PP, VPP or the batch")
    ranks, period = _rows(schedule, pp, vpp, micro_batches, group, live_cap)
    return Order(schedule=schedule, pp=pp, vpp=vpp, micro_batches=micro_batches, vee=schedule in VEE_SCHEDULES, period=period, ranks=ranks)


def _rows(schedule: str, pp: int, vpp: int, micro_batches: int, group: int | None, live_cap: int | None) -> tuple[tuple[Row, ...], int]:
    """(rows, period in micro-batches, 0 where the order does not repeat)."""
    if schedule == "interleaved":
        assert group is not None
        return loop_orders.interleaved(pp, vpp, micro_batches, group), group
    make = {
        "gpipe": loop_orders.gpipe,
        "1f1b": loop_orders.one_f_one_b,
        "zero-bubble": loop_orders.zb_h1,
        "zb-h2": loop_orders.zb_h2,
    }[schedule]
    return make(pp, micro_batches), 0 if schedule == "gpipe" else 1
