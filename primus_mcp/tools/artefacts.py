"""Tools that run the seed plan, draw, and write what to run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from primus_mcp.errors import InputError, RunDirectoryError
from primus_mcp.evaluation.rank import is_candidate
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.inputs.regular_file import read_regular
from primus_mcp.reports.best import best_block, exports_block, proof_line
from primus_mcp.reports.html_source import SWEEP_NAME
from primus_mcp.reports.summary import baseline_of, overlay_name
from primus_mcp.reports.sweep_document import write_report as report
from primus_mcp.search.prices import cost_of
from primus_mcp.session import PLOT_NAME, SUMMARY_NAME, TuningSession
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.overlay import exports
from primus_mcp.tools.history import find_trial
from primus_mcp.tools.registry import ToolContext, tool
from primus_mcp.tools.results import Exported, Picture, Reported, SeedsPriced
from primus_mcp.trials.log import LOG_NAME
from primus_mcp.trials.scratchpad import SCRATCHPAD_NAME

MAX_SKIPPED = 10
BEST = -1


@tool("Run the seed plan", toolset="evaluate", idempotent=True, long=True)
def seed_trials(context: ToolContext) -> SeedsPriced:
    """Evaluate the search's own plan, most promising first, until seed_budget is used. The best start."""
    session = context.session

    def progress(priced: int, limit: int, best: EvaluationResult | None) -> None:
        speed = best.tokens_per_s_per_gpu if best else None
        context.progress(priced, limit, f"{len(session.history())} tried" + (f", best {speed:,.0f} tokens/s/GPU" if speed else ""))

    run = session.run_seeds(progress=progress, should_stop=context.should_stop)
    best, baseline = session.best().best, baseline_of(session.history(), session.pins)
    return SeedsPriced(
        stopped_because=run.stopped_because,
        priced=run.priced,
        skipped=[f"{label}: {reason}" for label, reason in run.skipped[:MAX_SKIPPED]],
        trials=len(session.history()),
        best_trial_id=best.trial_id if best else None,
        best_tokens_per_s_per_gpu=best.tokens_per_s_per_gpu if best else None,
        baseline_tokens_per_s_per_gpu=baseline.result.tokens_per_s_per_gpu if baseline and is_candidate(baseline.result) else None,
        next="get_best, then explain_trial and evaluate_simulate to improve on it" if best else _nothing(session),
    )


def _nothing(session: TuningSession) -> str:
    return "; ".join(filter(None, ("get_history says why nothing fits", session.more_nodes)))


@tool("Plot the trials", toolset="inspect", read_only=False, idempotent=True)
def plot_trials(context: ToolContext) -> Picture:
    """Throughput and memory by trial as PNG."""
    session = context.session
    outcome = session.finish("running")
    best = session.best().best
    path = session.folder.path / PLOT_NAME
    if not path.is_file():
        raise RunDirectoryError(f"{PLOT_NAME} is missing: {'; '.join(outcome.warnings)}")
    png, best_id = read_regular(path), best.trial_id if best else None
    return Picture(png=png, trials=len(session.history()), best_trial_id=best_id, path=str(path), next="get_best")


@tool("Write the report", toolset="inspect", read_only=False, idempotent=True)
def write_report(context: ToolContext) -> Reported:
    """One HTML page with charts of everything that was tried and swept."""
    session = context.session
    records, swept = session.history(), (session.folder.path / SWEEP_NAME).is_file()
    if not records and not swept:
        raise InputError("nothing was tried yet", where="write_report", remedy="seed_trials, sweep or evaluate_simulate first")
    session.finish("running")
    path = report(session.folder)
    return Reported(path=str(path), bytes=path.stat().st_size, trials=len(records), swept=swept, next="give the user the path")


@tool("Export what to run", toolset="inspect", read_only=False, idempotent=True)
def export_best(context: ToolContext, trial_id: Annotated[int, Field(ge=BEST, description="-1: the best trial")] = BEST) -> Exported:
    """PRIMUS_* exports and the workload YAML of the best trial or another; writes all artefacts."""
    session = context.session
    best = session.best()
    if trial_id == BEST:
        if best.best is None or best.best.trial_id is None:
            raise InputError("no trial fits yet", where="export_best", remedy="seed_trials, or evaluate_simulate")
        trial_id = best.best.trial_id
    record = find_trial(session, trial_id)
    if not is_candidate(record.result):
        raise InputError(
            f"trial {trial_id} cannot be recommended: {record.result.reason}",
            where="trial_id",
            remedy="choose one that get_history lists as fits",
        )
    if record.result.fidelity == "synthetic":
        raise InputError("the numbers of a dry session are made up", where="export_best", remedy="open the session without mode dry")
    session.finish("running")
    folder = session.folder.path
    trial = TrialConfig.model_validate(record.trial)
    lines = exports(session.workload, trial)
    path = folder / overlay_name(trial_id)
    baseline = baseline_of(session.history(), session.pins)
    note = best.note if best.best is not None and best.best.trial_id == trial_id else None
    cost = cost_of(record.result, session.target.cluster.gpu.name, session.target.price)
    proof = proof_line(session.proof()) if best.best is not None and best.best.trial_id == trial_id else None
    before = baseline.result if baseline else None
    block = best_block(record.result, trial=record.trial, baseline=before, note=note, cost=cost, proof=proof)
    return Exported(
        trial_id=trial_id,
        block=f"{block}\n\n{exports_block(lines, str(path))}",
        exports=list(lines),
        overlay=read_regular(path).decode("utf-8"),
        overlay_path=str(path),
        files=[str(folder / name) for name in (LOG_NAME, SUMMARY_NAME, PLOT_NAME, SCRATCHPAD_NAME)],
        next="run it, and compare the measured tokens/s/GPU with the projected",
    )
