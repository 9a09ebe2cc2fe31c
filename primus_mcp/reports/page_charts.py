"""Which charts the report of an out-dir has, in the order of the page."""

from __future__ import annotations

from collections.abc import Sequence

from primus_mcp.evaluation.rank import is_candidate
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.charts.bars import stacked_bars, tornado
from primus_mcp.reports.charts.chart import Chart
from primus_mcp.reports.charts.points import scatter
from primus_mcp.reports.charts.timeline import pipeline_timeline
from primus_mcp.reports.charts.trials import HEADINGS, search_curve
from primus_mcp.reports.html_source import ReportSource, Swept
from primus_mcp.reports.part_words import named_parts
from primus_mcp.reports.sweep_text import configuration_text
from primus_mcp.search.pareto import FrontPoint

TIME, MEMORY, RANKS, SEARCH, TRIALS, FRONT = "time", "memory", "memory-of-ranks", "search", "throughput-and-memory", "pareto-front"


def pipeline_name(place: int) -> str:
    """The chart of the pipeline of the sweep at a place in sweep.json."""
    return f"pipeline-{place + 1}"


def sensitivity_name(place: int) -> str:
    """The chart of how sure the sweep at a place in sweep.json is."""
    return f"sensitivity-{place + 1}"


def page_charts(source: ReportSource) -> list[Chart]:
    """Those that there is something to show for."""
    best = source.ranking.best
    charts = _winner(source, best) if best is not None else []
    charts += _trials(source, best) if source.records else []
    for place, swept in enumerate(source.sweeps):
        charts += _sweep(place, swept)
    return charts + _front(source.front)


def _winner(source: ReportSource, best: EvaluationResult) -> list[Chart]:
    """Time and memory of the winner beside the baseline's, and its ranks."""
    rows = [("winner", best)] + ([("baseline", source.baseline.result)] if source.baseline and source.baseline.result != best else [])
    times = [(name, named_parts(result.time_breakdown)) for name, result in rows if result.time_breakdown]
    memory = [(name, named_parts(result.memory_breakdown)) for name, result in rows if result.memory_breakdown]
    limits = [("cap", source.cap_gb)] if source.cap_gb else []
    ranks = [(f"rank {number}", {"device memory": value}) for number, value in enumerate(best.per_rank_memory_gb or [])]
    found = [stacked_bars(TIME, "Time of an iteration by component", times, "ms")] if times else []
    if memory:
        found.append(stacked_bars(MEMORY, "Memory by component on the worst rank", memory, "GB", limits=limits))
    if len(ranks) > 1:
        found.append(stacked_bars(RANKS, "Device memory of every pipeline rank of the winner", ranks, "GB", limits=limits))
    return found


def _trials(source: ReportSource, best: EvaluationResult | None) -> list[Chart]:
    results = [record.result for record in source.records]
    found = [search_curve(SEARCH, "Throughput trial by trial; the line is the best so far", results)]
    points = [
        (r.memory_per_gpu_gb, r.tokens_per_s_per_gpu, "fits", f"trial {record.trial_id}: {configuration_text(r, record.trial)}")
        for record in source.records
        if is_candidate(r := record.result)
        and r.fidelity == (best.fidelity if best else r.fidelity)
        and r.memory_per_gpu_gb is not None
        and r.tokens_per_s_per_gpu is not None
    ]
    if points and best is not None and best.memory_per_gpu_gb is not None and best.tokens_per_s_per_gpu is not None:
        star = (best.memory_per_gpu_gb, best.tokens_per_s_per_gpu, f"winner, trial {best.trial_id}")
        axes = ("GB a GPU", HEADINGS.get(best.fidelity, "tokens/s/GPU"))
        found.append(scatter(TRIALS, "Throughput against memory of every trial that fits", points, axes, best=star, cap=source.cap_gb))
    return found


def _sweep(place: int, swept: Swept) -> list[Chart]:
    """The winner's pipeline, and what its throughput hangs on."""
    found, where = [], swept.cluster
    if swept.timeline:
        found.append(pipeline_timeline(pipeline_name(place), f"Pipeline of the first on {where}, task by task", swept.timeline))
    if sure := swept.sensitivity:
        rows = [(swing.what, swing.low, swing.high) for swing in sure.swings]
        swing = f"{100 * sure.swing:.3g}%"
        title = f"Throughput of the first on {where}: each uncertain rate {swing} lower and higher, constants at the ends of their range"
        found.append(tornado(sensitivity_name(place), title, rows, sure.tokens_per_s_per_gpu))
    return found


def _front(front: Sequence[FrontPoint]) -> list[Chart]:
    """Throughput against free memory of every point that none other beats, a colour a cluster."""
    points = [
        (
            point.headroom_gb,
            point.tokens_per_s_per_gpu,
            f"{point.nodes} nodes of {point.gpu}",
            f"{point.cluster}: {configuration_text(point.result, point.trial)}",
        )
        for point in front
    ]
    title = "Pareto front: throughput against memory that stays free"
    return [scatter(FRONT, title, points, ("GB free a GPU", "tokens/s/GPU"))] if len(points) > 1 else []
