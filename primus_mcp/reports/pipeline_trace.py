"""The pipeline of one iteration, task by task: as a Chrome / Perfetto trace and as a picture."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.layers.settings import layer_settings
from primus_mcp.projection.ops.backend import GemmBackend
from primus_mcp.projection.performance.pipeline_time import hop_s, paired_s, run_name, schedule_name, stage_costs
from primus_mcp.projection.performance.projection import rates_for
from primus_mcp.projection.pipeline import TracedTask, build_order, stage_times, trace
from primus_mcp.projection.pipeline.rules import INTERLEAVED_SCHEDULES
from primus_mcp.projection.placement import place
from primus_mcp.projection.planner import planner_of

MAX_TASKS = 40_000
"""Longer iterations are traced as their first micro-batches; the steady state repeats."""
_NAMES = {"F": "forward", "B": "backward (input)", "D": "backward", "W": "backward (weights)"}
_COLORS = {"F": "#2563eb", "B": "#16a34a", "D": "#16a34a", "W": "#f59e0b"}
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
    rates, settings = rates_for(cluster, backend), layer_settings(config)
    placement = place(arch, config, cluster.world_size)
    stages, alone = stage_costs(rates, arch, config, placement)
    name = run_name(config, placement)
    a_micro_batch = placement.pp * placement.vpp * 3
    shown = min(placement.micro_batches, most or placement.micro_batches, max(2 * placement.pp, MAX_TASKS // a_micro_batch))
    if name in INTERLEAVED_SCHEDULES and shown < placement.micro_batches:
        group = config.microbatch_group_size or placement.pp
        shown = max(group, shown - shown % group)
    group_size = config.microbatch_group_size if name in INTERLEAVED_SCHEDULES else None
    order = build_order(name, placement.pp, placement.vpp, shown, group_size, planner_of(config))
    times = stage_times(
        len(alone),
        tuple(stage.forward_s for stage in alone),
        tuple(stage.backward_s for stage in alone),
        tuple(stage.weight_s for stage in alone),
        hop_s(rates, arch, settings, config.pp, cluster.world_size),
        paired_s(stages, alone),
    )
    blocking = schedule_name(config) in ("1f1b", "interleaved") and not config.overlap_p2p
    ranks = trace(order, times, blocking=blocking)
    return PipelineTrace(schedule=name, ranks=ranks, micro_batches=shown, all_micro_batches=placement.micro_batches)


def chrome_trace(found: PipelineTrace) -> dict[str, Any]:
    """Trace Event Format: a thread a rank, a complete event a task (chrome://tracing, ui.perfetto.dev). Times in microseconds."""
    events: list[dict[str, Any]] = []
    for rank, tasks in enumerate(found.ranks):
        events.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": rank, "args": {"name": f"pipeline rank {rank}"}})
        events += [
            {
                "name": f"{task.kind}{task.micro_batch}" + (f".{task.chunk}" if found.schedule != "1f1b" else ""),
                "cat": _NAMES[task.kind],
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


def pipeline_png(found: PipelineTrace, *, title: str) -> bytes:
    """PNG bytes: a row a rank, forward, backward and weight-gradient tasks in three colours, idle white."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(12.0, max(2.4, 0.34 * len(found.ranks) + 1.4)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for rank, tasks in enumerate(found.ranks):
        for kind, color in _COLORS.items():
            spans = [(1e3 * task.start_s, 1e3 * (task.end_s - task.start_s)) for task in tasks if task.kind == kind]
            if spans:
                axes.broken_barh(spans, (rank - 0.4, 0.8), facecolors=color, edgecolors="white", linewidth=0.3)
    axes.invert_yaxis()
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("ms")
    axes.set_ylabel("pipeline rank")
    axes.set_title(title, loc="left", fontsize=10)
    used = {task.kind for tasks in found.ranks for task in tasks}
    axes.legend(
        handles=[Patch(color=_COLORS[kind], label=_NAMES[kind]) for kind in sorted(used)],
        frameon=False,
        ncols=3,
        fontsize=8,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
    )
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()
