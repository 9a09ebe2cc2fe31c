"""explain_trial: where time and memory go, and what one change would do. Neighbours are priced, not logged, and few."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Annotated, Any

from pydantic import Field

from primus_mcp.errors import InputError, UnknownFigureError
from primus_mcp.evaluation.cheapest import cheapest_fitting_change, fitting_changes, memory_changes
from primus_mcp.evaluation.rank import is_candidate
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.part_words import part_text
from primus_mcp.reports.tables import verdict
from primus_mcp.search.enough_nodes import nodes_text_for
from primus_mcp.search.neighbours import neighbours
from primus_mcp.search.sensitivity import LEAST_SWING, MOST_SWING, SWING
from primus_mcp.search.sweep_tools import RIVALS, sureness, sureness_answer, with_rivals
from primus_mcp.session import TuningSession
from primus_mcp.space.knobs import TrialConfig, set_knobs
from primus_mcp.tools.evaluate import better
from primus_mcp.tools.history import TrialId, find_trial
from primus_mcp.tools.registry import ToolContext, tool
from primus_mcp.tools.results import Explained

MAX_NEIGHBOURS = 40
SHOWN = 6
MAIN_PARTS = 4
NOTABLE_SHARE = 0.05


def _largest(parts: Mapping[str, float] | None) -> dict[str, float | None] | None:
    if parts is None:
        return None
    return {name: parts[name] for name in sorted(parts, key=lambda name: -parts[name])}


def _bottlenecks(result: EvaluationResult) -> list[str]:
    """The largest parts of the iteration and of memory, in words, with their shares."""
    lines = []
    if result.time_breakdown and result.iteration_ms:
        for name, value in list((_largest(result.time_breakdown) or {}).items())[:MAIN_PARTS]:
            if value is not None and value / result.iteration_ms >= NOTABLE_SHARE:
                lines.append(f"time: {part_text(name)} {value / result.iteration_ms:.0%} of the iteration ({value:,.0f} ms)")
    if result.memory_breakdown and result.memory_per_gpu_gb:
        for name, value in list((_largest(result.memory_breakdown) or {}).items())[:MAIN_PARTS]:
            if value is not None and value / result.memory_per_gpu_gb >= NOTABLE_SHARE:
                lines.append(f"memory: {part_text(name)} {value / result.memory_per_gpu_gb:.0%} of the worst rank ({value:.1f} GB)")
    lines += [f"memory: {load} x the mean expert load needs {gb:.1f} GB" for load, gb in (result.memory_at_expert_load_gb or {}).items()]
    return lines


def _steps(session: TuningSession, trial: TrialConfig) -> Iterator[dict[str, Any]]:
    """Single changes, memory savers first where the trial is legal."""
    config = session.evaluator.rules.check(trial).config
    if config is None:
        return
    yield from memory_changes(config, moe=session.workload.architecture.is_moe)
    held = set_knobs(trial)
    for _, knobs in neighbours(session.workload, session.target.cluster, trial):
        yield {name: value for name, value in knobs.items() if held.get(name) != value}


def _priced(session: TuningSession, trial: TrialConfig, should_stop: Callable[[], bool]) -> list[tuple[dict[str, Any], EvaluationResult]]:
    found: dict[str, tuple[dict[str, Any], EvaluationResult]] = {}
    for change in islice(_steps(session, trial), MAX_NEIGHBOURS):
        if should_stop():
            break
        changed = trial.model_copy(update=change)
        try:
            key = session.evaluator.key(changed)
            if key not in found:
                found[key] = (change, session.evaluator.evaluate(changed))
        except (InputError, UnknownFigureError):
            continue
    found.pop(session.evaluator.key(trial), None)
    return list(found.values())


def _shown(entries: list[tuple[dict[str, Any], EvaluationResult]], own: EvaluationResult) -> list[dict[str, Any]]:
    """The fastest few, with the gain over the trial where it has a throughput."""
    entries = sorted(entries, key=lambda entry: -(entry[1].tokens_per_s_per_gpu or 0.0))
    base = own.tokens_per_s_per_gpu
    return [
        {
            "change": change,
            "tokens_per_s_per_gpu": result.tokens_per_s_per_gpu,
            "gain": (result.tokens_per_s_per_gpu or 0.0) / base - 1 if base else None,
            "memory_per_gpu_gb": result.memory_per_gpu_gb,
            "verdict": verdict(result),
        }
        for change, result in entries[:SHOWN]
    ]


def _would_fit(session: TuningSession, trial: TrialConfig, own: EvaluationResult) -> list[dict[str, Any]]:
    """The least change of each knob that fits, else the best pair."""
    if own.within_margin is not False:
        return []
    found = fitting_changes(session.evaluator, trial)
    if not found and (pair := cheapest_fitting_change(session.evaluator, trial)) is not None:
        found = [pair]
    return _shown([(dict(fitting.change), fitting.result) for fitting in found], own)


def _sensitivity(
    session: TuningSession, trial: TrialConfig, faster: list[tuple[dict[str, Any], EvaluationResult]], swing: float
) -> dict[str, Any]:
    """How sure the trial is against the faster changes found, which its words call by what they change."""
    changes = [change for change, _ in sorted(faster, key=lambda entry: -(entry[1].tokens_per_s_per_gpu or 0.0))[:RIVALS]]
    rivals = [trial.model_copy(update=change) for change in changes]
    answer = sureness_answer(session.evaluator, sureness(session.evaluator, trial, rivals=rivals, swing=swing))
    return {**answer, "summary": [with_rivals(line, [json.dumps(change) for change in changes]) for line in answer["summary"]]}


def _nodes(session: TuningSession, trial: TrialConfig, result: EvaluationResult) -> list[str]:
    """How many nodes are enough for a trial that does not fit."""
    text = nodes_text_for(session.evaluator, trial) if result.within_margin is False else None
    return [f"nodes: {text}"] if text else []


@tool("Explain a trial", toolset="inspect", read_only=True)
def explain_trial(
    context: ToolContext,
    trial_id: TrialId,
    sensitivity: Annotated[bool, Field(description="also with uncertain rates off by swing")] = False,
    swing: Annotated[float, Field(ge=LEAST_SWING, le=MOST_SWING)] = SWING,
) -> Explained:
    """Where a trial's time and memory go, and which single change fits or is faster (priced, not logged)."""
    session = context.session
    record = find_trial(session, trial_id)
    result, trial = record.result, TrialConfig.model_validate(record.trial)
    priced = _priced(session, trial, context.should_stop) if result.legal else []
    candidates = [entry for entry in priced if is_candidate(entry[1])]
    faster = [entry for entry in candidates if is_candidate(result) and better(entry[1], result)]
    return Explained(
        trial_id=trial_id,
        verdict=verdict(result),
        reason=result.reason,
        time_ms=_largest(result.time_breakdown),
        memory_gb=_largest(result.memory_breakdown),
        per_rank_memory_gb=list(result.per_rank_memory_gb) if result.per_rank_memory_gb else None,
        comm_ms=_largest(result.comm_breakdown),
        bottlenecks=[*_bottlenecks(result), *_nodes(session, trial, result)],
        would_fit=_would_fit(session, trial, result),
        faster=_shown(faster, result),
        neighbours_priced=len(priced),
        sensitivity=_sensitivity(session, trial, faster, swing) if sensitivity and is_candidate(result) else None,
        next="evaluate_simulate with the trial's changes and one of these" if priced else "get_legal_axes lists the legal values",
    )
