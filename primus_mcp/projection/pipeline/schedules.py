"""`build_order`: every schedule by name. Orders depend on sizes only, so they are built once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from primus_mcp.errors import InputError
from primus_mcp.projection.pipeline.bidirectional import dualpipe, dualpipe_v
from primus_mcp.projection.pipeline.heuristic import PlannerCosts, default_costs, plan_heuristic
from primus_mcp.projection.pipeline.loop_orders import (
    gpipe,
    interleaved,
    interleaved_warm_up,
    one_f_one_b,
    one_f_one_b_paired,
    zb_h1,
    zb_h2,
)
from primus_mcp.projection.pipeline.order import Order, Receives, Row
from primus_mcp.projection.pipeline.receives import received_before_weights, received_by_steps
from primus_mcp.projection.pipeline.rules import (
    INTERLEAVED_SCHEDULES,
    PAIRED_SCHEDULES,
    SOLVED_SCHEDULE,
    VEE_SCHEDULES,
    model_copies,
    order_problem,
)
from primus_mcp.projection.pipeline.v_greedy import v_half, v_min
from primus_mcp.projection.pipeline.v_orders import zbv, zbv_paired

_MAKERS: dict[str, Callable[[int, int], tuple[Row, ...]]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "zero-bubble": zb_h1,
    "zb-h2": zb_h2,
}
_WITH_CELLS = {"v-half": v_half, "v-min": v_min}
_WITH_PAIRS = {"dualpipe": dualpipe, "dualpipe-v": dualpipe_v, "zbv-formatted-a2a": zbv_paired}


def period_of(schedule: str, pp: int, group_size: int | None) -> int:
    """Micro-batches after which a schedule repeats; 0 for gpipe and the heuristic, which do not."""
    if schedule in ("gpipe", "zero-bubble-heuristic"):
        return 0
    if schedule == "dualpipe":
        return 2
    return (pp if group_size is None else group_size) if schedule in INTERLEAVED_SCHEDULES else 1


def require_sizes(schedule: str, pp: int, vpp: int, micro_batches: int, group_size: int | None) -> None:
    """Raises InputError with the reason of `order_problem` where the schedule does not exist for these sizes."""
    problem = order_problem(schedule, pp, vpp, micro_batches, group_size)
    if problem is not None:
        raise InputError(problem, where="schedule", remedy="change the schedule, PP, VPP or the batch")


def build_order(
    schedule: str, pp: int, vpp: int, micro_batches: int, group_size: int | None = None, planner: PlannerCosts | None = None
) -> Order:
    """The tasks of every rank.

    group_size: micro-batches a group of the interleaved schedule, pp by default. planner: what zero-bubble-heuristic plans with, its
    own costs without a cap by default. Raises InputError with the reason of `order_problem` where the schedule does not exist, and
    where the planner's caps hold no order.
    """
    group = (pp if group_size is None else group_size) if schedule in INTERLEAVED_SCHEDULES else None
    return _built(schedule, pp, vpp, micro_batches, group, planner if schedule == "zero-bubble-heuristic" else None)


@lru_cache(maxsize=256)
def _built(schedule: str, pp: int, vpp: int, micro_batches: int, group: int | None, planner: PlannerCosts | None) -> Order:
    require_sizes(schedule, pp, vpp, micro_batches, group)
    if schedule == SOLVED_SCHEDULE:
        raise InputError("its order depends on the times of the stages", where=schedule, remedy="solve for it")
    vee, period = schedule in VEE_SCHEDULES, period_of(schedule, pp, group)
    paired_from: tuple[int, ...] = ()
    receives: Receives | None = None
    if schedule in INTERLEAVED_SCHEDULES:
        paired = schedule in PAIRED_SCHEDULES
        warm_up = interleaved_warm_up(pp, vpp, micro_batches, period, int(paired))
        ranks, paired_from = interleaved(vpp, micro_batches, period, warm_up), warm_up if paired else ()
    elif schedule in _WITH_PAIRS:
        ranks, paired_from = _WITH_PAIRS[schedule](pp, micro_batches)
    elif schedule in _WITH_CELLS:
        ranks, cells = _WITH_CELLS[schedule](pp, micro_batches)
        receives = received_by_steps(ranks, cells)
    elif schedule == "zbv-formatted":
        ranks = zbv(pp, micro_batches)
        receives = received_by_steps(ranks, tuple(tuple(range(rank, rank + len(row))) for rank, row in enumerate(ranks)))
    elif schedule == "1f1b-a2a":
        ranks, paired_from = one_f_one_b_paired(micro_batches), (1,)
    elif schedule == "zero-bubble-heuristic":
        ranks = plan_heuristic(micro_batches, planner or default_costs(pp))
    else:
        ranks = _MAKERS[schedule](pp, micro_batches)
        if schedule == "zero-bubble":
            receives = received_before_weights(ranks, hoisted=micro_batches >= pp)
    return Order(
        schedule=schedule,
        pp=pp,
        vpp=vpp,
        micro_batches=micro_batches,
        vee=vee,
        period=period,
        paired_from=paired_from,
        ranks=ranks,
        copies=model_copies(schedule),
        receives=receives,
    )
