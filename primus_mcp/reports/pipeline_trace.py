"""The pipeline of one iteration, task by task: as a Chrome / Perfetto trace and as a chart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.ops.backend import GemmBackend
from primus_mcp.projection.performance.pipeline_time import traced
from primus_mcp.projection.performance.projection import rates_for
from primus_mcp.projection.pipeline import TracedTask
from primus_mcp.projection.placement import place
from primus_mcp.reports.charts.chart import Chart
from primus_mcp.reports.charts.timeline import KINDS, pipeline_timeline

MAX_TASKS = 40_000
"""Longer iterations are traced as their first micro-batches; the steady state repeats."""
_TRACE_COLORS = {"F": "thread_state_running", "B": "thread_state_runnable", "D": "thread_state_runnable", "W": "thread_state_iowait"}
_US_PER_S = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTrace:
    """`ranks[r]` in the order in which they run; `micro_batches` of the iteration's `all_micro_batches` are shown."""

    schedule: str
    ranks: tuple[tuple[TracedTask, ...], ...]
    micro_batches: int
    all_micro_batches: int


def pipeline_trace(
    arch: Architecture, config: TrainingConfig, cluster: Cluster, *, backend: GemmBackend = "auto", most: int | None = None
) -> PipelineTrace:
    """Every task with its times. `most`: at most so many micro-batches. Raises InputError where the schedule does not exist."""
    placement = place(arch, config, cluster.world_size)
    name, shown, ranks = traced(rates_for(cluster, backend), arch, config, placement, most_tasks=MAX_TASKS, most=most)
    return PipelineTrace(schedule=name, ranks=ranks, micro_batches=shown, all_micro_batches=placement.micro_batches)


def chrome_trace(found: PipelineTrace) -> dict[str, Any]:
    """Trace Event Format: a thread a rank, a complete event a task (chrome://tracing, ui.perfetto.dev). Times in microseconds."""
    events: list[dict[str, Any]] = []
    for rank, tasks in enumerate(found.ranks):
        events.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": rank, "args": {"name": f"pipeline rank {rank}"}})
        events += [
            {
                "name": f"{task.kind}{task.micro_batch}" + (f".{task.chunk}" if found.schedule != "1f1b" else ""),
                "cat": KINDS[task.kind],
                "cname": _TRACE_COLORS[task.kind],
                "ph": "X",
                "pid": 0,
                "tid": rank,
                "ts": task.start_s * _US_PER_S,
                "dur": (task.end_s - task.start_s) * _US_PER_S,
                "args": {"micro_batch": task.micro_batch, "chunk": task.chunk, "stage": task.stage},
            }
            for task in tasks
        ]
    shown = f"{found.micro_batches} of {found.all_micro_batches} micro-batches"
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"schedule": found.schedule, "shown": shown}}


def pipeline_chart(found: PipelineTrace, *, title: str) -> Chart:
    """A row a rank, forward, backward and weight-gradient tasks in three colours, idle time empty."""
    tasks = [
        (rank, task.kind, task.micro_batch, task.chunk, task.start_s, task.end_s) for rank, row in enumerate(found.ranks) for task in row
    ]
    return pipeline_timeline("pipeline", title, tasks)
