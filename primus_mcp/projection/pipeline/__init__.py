"""Pipeline schedules: ordered tasks a rank, one simulator for all of them, and what each rank holds live."""

from primus_mcp.projection.pipeline.live import LiveState, live_states, live_units
from primus_mcp.projection.pipeline.order import Order, Task, home_of, stage_of
from primus_mcp.projection.pipeline.rules import order_problem, overlapped_schedule
from primus_mcp.projection.pipeline.schedules import build_order
from primus_mcp.projection.pipeline.simulator import Timeline, TracedTask, simulate, simulate_order, trace
from primus_mcp.projection.pipeline.times import StageTimes, stage_times

__all__ = [
    "LiveState",
    "Order",
    "StageTimes",
    "Task",
    "Timeline",
    "TracedTask",
    "build_order",
    "home_of",
    "live_states",
    "live_units",
    "order_problem",
    "overlapped_schedule",
    "simulate",
    "simulate_order",
    "stage_of",
    "stage_times",
    "trace",
]
