"""The tasks of the winner's pipeline with their times, for a picture."""

from __future__ import annotations

from primus_mcp.evaluation.evaluators import Evaluator
from primus_mcp.projection.performance.pipeline_time import traced
from primus_mcp.projection.performance.projection import rates_for
from primus_mcp.projection.placement import place
from primus_mcp.search.sweep_result import SweepResult
from primus_mcp.space.knobs import TrialConfig

MAX_TASKS = 4000
"""Longer pipelines are drawn with as many micro-batches as fit, at least two rounds."""
Task = tuple[int, str, int, int, float, float]


def winner_timeline(evaluator: Evaluator, result: SweepResult) -> list[Task]:
    """(rank, kind, micro-batch, chunk, start, end) of the winner's compute as it is priced; [] at PP 1 or without a winner."""
    if result.best is None:
        return []
    config = evaluator.rules.check(TrialConfig(**result.best.trial)).config
    if config is None or config.pp == 1:
        return []
    arch, cluster = evaluator.workload.architecture, evaluator.cluster
    placement = place(arch, config, cluster.world_size)
    _, _, ranks = traced(rates_for(cluster, evaluator.gemm_backend), arch, config, placement, most_tasks=MAX_TASKS)
    return [(rank, task.kind, task.micro_batch, task.chunk, task.start_s, task.end_s) for rank, tasks in enumerate(ranks) for task in tasks]
