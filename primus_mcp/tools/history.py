"""Tools over the trial log: pages, the best, one trial, several side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from primus_mcp.errors import InputError
from primus_mcp.evaluation.rank import is_candidate
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.summary import baseline_of, count, record_of
from primus_mcp.reports.tables import ranked, verdict
from primus_mcp.session import TuningSession
from primus_mcp.tools.configuration import knobs_of
from primus_mcp.tools.evaluate import evaluated_fields
from primus_mcp.tools.registry import ToolContext, tool
from primus_mcp.tools.results import Best, Comparison, Evaluated, HistoryPage
from primus_mcp.tools.text import MAX_RESULT_CHARACTERS, presentable
from primus_mcp.trials.log import TrialRecord

MAX_PAGE = 100
MAX_COMPARED = 8
REASON_CHARACTERS = 300
METRICS = ("tokens_per_s_per_gpu", "iteration_ms", "memory_per_gpu_gb", "mfu", "bubble_ratio", "comm_exposed_ms")
TrialId = Annotated[int, Field(ge=0, description="from get_history")]


def find_trial(session: TuningSession, trial_id: int) -> TrialRecord:
    """A line of the log. Raises InputError with the ids that exist."""
    records = session.history()
    found = next((record for record in records if record.trial_id == trial_id), None)
    if found is None:
        have = f"trials are 0 to {records[-1].trial_id}" if records else "no trial was evaluated yet; evaluate_simulate does"
        raise InputError(f"there is no trial {trial_id}", where="trial_id", remedy=have)
    return found


def _row(session: TuningSession, record: TrialRecord, detail: str) -> dict[str, Any]:
    result = record.result
    row: dict[str, Any] = {
        "trial_id": record.trial_id,
        "origin": record.origin,
        "label": record.label,
        "changes": record.trial,
        "verdict": verdict(result),
        "tokens_per_s_per_gpu": result.tokens_per_s_per_gpu,
        "memory_per_gpu_gb": result.memory_per_gpu_gb,
        "fidelity": result.fidelity,
    }
    if result.reason:
        row["reason"] = result.reason[:REASON_CHARACTERS]
    if detail == "full":
        names = ("iteration_ms", "mfu", "bubble_ratio", "comm_exposed_ms", "memory_upper_gb", "dp", "expert_dp", "micro_batches")
        row |= {"time": record.time, "resolved": knobs_of(session, result.resolved), **{name: getattr(result, name) for name in names}}
    return row


def _cursor(cursor: str, order: str, total: int) -> tuple[int, int]:
    """(offset, number of trials that the pages are cut from): a trial that lands between two pages moves nothing."""
    if not cursor:
        return 0, total
    parts = cursor.split(":")
    if len(parts) != 3 or parts[0] != order or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts[1:]):
        raise InputError(
            f"{cursor[:40]!r} is not a cursor", where="cursor", remedy="pass next_cursor of the page before, with the same order"
        )
    return int(parts[1]), min(int(parts[2]), total)


def _page(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many rows as a result may hold, at least one."""
    kept: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        size += len(json.dumps(presentable(row), ensure_ascii=False))
        if kept and size > MAX_RESULT_CHARACTERS:
            break
        kept.append(row)
    return kept


@tool("Trial log, paged", toolset="inspect", read_only=True)
def get_history(
    context: ToolContext,
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 20,
    cursor: Annotated[str, Field(max_length=100)] = "",
    order: Literal["newest", "oldest", "best"] = "newest",
    detail: Literal["summary", "full"] = "summary",
) -> HistoryPage:
    """Trials with their changes, verdicts and numbers; next_cursor goes on."""
    everything = context.session.history()
    offset, total = _cursor(cursor, order, len(everything))
    records = list(everything[:total])
    listed = ranked(records) if order == "best" else records if order == "oldest" else records[::-1]
    rows = _page([_row(context.session, record, detail) for record in listed[offset : offset + limit]])
    end = offset + len(rows)
    more = f"{order}:{end}:{total}" if end < total else None
    return HistoryPage(
        trials=rows,
        total=len(everything),
        next_cursor=more,
        next="get_history with cursor=next_cursor for more" if more else "get_trial for one in full" if rows else "evaluate_simulate",
    )


def _remedy(session: TuningSession) -> str:
    plan = "seed_trials runs the search's own plan; explain_trial names what would fit"
    return f"{plan}; {session.more_nodes}" if session.more_nodes else plan


@tool("Best trial so far", toolset="inspect", read_only=True, listed_result=True)
def get_best(context: ToolContext) -> Best:
    """The fastest trial inside the memory cap, against the baseline."""
    session = context.session
    records = session.history()
    ranking = session.best()
    counts = count(records)
    if ranking.best is None:
        raise InputError(
            f"no trial can be recommended: {counts.trials} tried, {counts.illegal} illegal, {counts.over_margin} need too much memory",
            where="get_best",
            remedy=_remedy(session),
        )
    baseline = baseline_of(records, session.pins)
    before = baseline.result if baseline else None
    comparable = before is not None and is_candidate(before) and before.fidelity == ranking.best.fidelity
    speed = before.tokens_per_s_per_gpu if before is not None and comparable else None
    return Best(
        **evaluated_fields(session, ranking.best),
        note=ranking.note,
        baseline_tokens_per_s_per_gpu=speed,
        times_baseline=(ranking.best.tokens_per_s_per_gpu or 0.0) / speed if speed else None,
        baseline_verdict=verdict(before) if before is not None else "not evaluated: evaluate_simulate without a change",
        runner_up_trial_id=ranking.runner_up.trial_id if ranking.runner_up else None,
        trials=counts.trials,
        candidates=counts.candidates,
        next="export_best writes it; explain_trial names its bottlenecks",
    )


@tool("One trial in full", toolset="inspect", read_only=True)
def get_trial(context: ToolContext, trial_id: TrialId) -> Evaluated:
    """One trial of the log with every number."""
    record = find_trial(context.session, trial_id)
    return Evaluated(**evaluated_fields(context.session, record.result), repeated=True, next=f"explain_trial(trial_id={trial_id})")


@tool("Compare trials", toolset="inspect", read_only=True)
def compare_trials(
    context: ToolContext, trial_ids: Annotated[list[int], Field(min_length=2, max_length=MAX_COMPARED, description="2 to 8 ids")]
) -> Comparison:
    """Trials side by side: metrics, and only the knobs in which they differ."""
    session = context.session
    records = [find_trial(session, trial_id) for trial_id in trial_ids]
    knobs = [knobs_of(session, record.result.resolved) or {} for record in records]
    columns = {name: [found.get(name) for found in knobs] for name in dict.fromkeys(name for found in knobs for name in found)}
    best = record_of(records, _fastest(records))
    return Comparison(
        trial_ids=trial_ids,
        verdicts=[verdict(record.result) for record in records],
        metrics={name: [getattr(record.result, name) for record in records] for name in METRICS},
        differences={name: column for name, column in columns.items() if len({str(value) for value in column}) > 1},
        fastest=best.trial_id if best else None,
        next="explain_trial shows where the time and memory of one go",
    )


def _fastest(records: Sequence[TrialRecord]) -> EvaluationResult | None:
    first = ranked(records)[0]
    return first.result if is_candidate(first.result) else None
