"""The tasks of the winner's pipeline with their times, for a picture."""

from __future__ import annotations

from primus_mcp.evaluation.evaluators import Evaluator
from primus_mcp.projection.layers.settings import layer_settings
from primus_mcp.projection.performance.pipeline_time import hop_s, schedule_name
from primus_mcp.projection.performance.projection import rates_for
from primus_mcp.projection.performance.stages import stage_cost
from primus_mcp.projection.pipeline import build_order, stage_times, trace
from primus_mcp.projection.placement import place
from primus_mcp.projection.planner import planner_of
from primus_mcp.search.sweep_result import SweepResult
from primus_mcp.space.knobs import TrialConfig

MAX_TASKS = 4000
"""Longer pipelines are drawn with as many micro-batches as fit, at least two rounds."""
Task = tuple[int, str, int, int, float, float]


def winner_timeline(evaluator: Evaluator, result: SweepResult) -> list[Task]:
    """(rank, kind, micro-batch, chunk, start, end) of the winner's compute; [] at PP 1 or without a winner.

    A pipeline of more than MAX_TASKS tasks is cut to fewer micro-batches, a multiple of PP.
    """
    if result.best is None:
        return []
    config = evaluator.rules.check(TrialConfig(**result.best.trial)).config
    if config is None or config.pp == 1:
        return []
    arch, cluster = evaluator.workload.architecture, evaluator.cluster
    placement = place(arch, config, cluster.world_size)
    rates, settings = rates_for(cluster, "auto"), layer_settings(config)
    stages = [stage_cost(rates, arch, settings, chunk, config.recompute) for chunk in placement.chunks]
    per_micro_batch = 3 * config.pp * config.vpp
    most = max(2 * config.pp, MAX_TASKS // per_micro_batch // config.pp * config.pp)
    name = schedule_name(config)
    order = build_order(name, config.pp, config.vpp, min(placement.micro_batches, most), planner=planner_of(config))
    times = stage_times(
        len(stages),
        tuple(stage.forward_s for stage in stages),
        tuple(stage.backward_s for stage in stages),
        tuple(stage.weight_s for stage in stages),
        hop_s(rates, arch, settings, config.pp, cluster.world_size),
    )
    blocking = name in ("1f1b", "interleaved") and not config.overlap_p2p
    return [
        (rank, task.kind, task.micro_batch, task.chunk, task.start_s, task.end_s)
        for rank, row in enumerate(trace(order, times, blocking=blocking))
        for task in row
    ]
