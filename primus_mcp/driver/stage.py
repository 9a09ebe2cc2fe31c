"""The search after the seeds: by a language model where one can be asked, by coordinate search otherwise; and what it came to."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from dataclasses import dataclass

from primus_mcp.driver.agent import Agent
from primus_mcp.driver.coordinate import coordinate_search
from primus_mcp.driver.desk import Clock, Desk
from primus_mcp.driver.loop import Loop, Observer, SearchEnd
from primus_mcp.driver.prompts import Task
from primus_mcp.driver.review import no_gain_text, proven_optimum, to_review
from primus_mcp.driver.sandbox import EXECUTION_LIMIT_S, SandboxError, Sandboxes
from primus_mcp.driver.settings import LanguageModel
from primus_mcp.reports.summary import AgentSummary
from primus_mcp.session import TuningSession
from primus_mcp.trials.journal import LlmCall, Round

NO_DSPY = "No module named 'dspy'; install primus-mcp[agent]"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEnd:
    """How the stage ended and what it used."""

    end: SearchEnd
    summary: AgentSummary


def missing_dspy() -> str | None:
    """Why DSPy cannot be imported, or None."""
    return None if importlib.util.find_spec("dspy") is not None else NO_DSPY


def make_agent(
    model: LanguageModel, desk: Desk, extras: tuple[str, ...], tell: Callable[[str], None], task: Task = "search"
) -> tuple[Agent, Callable[[], None]]:
    """DSPy's agent with a sandbox that was seen to run, or without one and ReAct; and how to close it."""
    from primus_mcp.driver.dspy_agent import DspyAgent
    from primus_mcp.driver.dspy_model import prepare_environment

    prepare_environment(model)
    sandboxes = Sandboxes(EXECUTION_LIMIT_S)
    try:
        sandboxes.probe()
    except SandboxError as error:
        sandboxes.close()
        tell(f"no sandbox for generated code ({error}): the model calls tools one at a time (ReAct) instead")
        return DspyAgent(model, desk, extras=extras, task=task), lambda: None
    return DspyAgent(model, desk, extras=extras, sandboxes=sandboxes, task=task), sandboxes.close


def run_llm_stage(
    session: TuningSession,
    model: LanguageModel,
    *,
    observer: Observer | None = None,
    tell: Callable[[str], None] = _log.warning,
    clock: Clock | None = None,
) -> StageEnd:
    """Plan and rounds by DSPy; where a sweep has proven the optimum, one round about what the model does not price. `tell` gets what the
    user must know. Ctrl-C passes through.
    """
    settings, review = session.target.agent, to_review(session)
    desk = Desk(session, model=model.model, clock=clock)
    agent, close = make_agent(model, desk, settings.prompt_extras, tell, "search" if review is None else "review")
    try:
        end = Loop(session, desk, agent, patience=settings.patience, observer=observer, review=review).run()
    finally:
        close()
    if review is not None and end.summaries:
        tell(f"about trial #{review}, in the language model's own words (unchecked):\n{end.summaries[-1]}")
    return StageEnd(end=end, summary=agent_summary(session, end, strategy="llm", method=agent.name, model=model.model))


def run_coordinate_stage(session: TuningSession, *, observer: Observer | None = None) -> StageEnd:
    """Bottleneck-driven local search under the same budgets; none where a sweep has proven the optimum."""
    optimum = proven_optimum(session)
    proven = SearchEnd(ending="optimum proven", reason=no_gain_text(optimum)) if optimum is not None else None
    end = proven or coordinate_search(session, observer=observer)
    return StageEnd(end=end, summary=agent_summary(session, end, strategy="coordinate", method="coordinate", model=None))


def agent_summary(session: TuningSession, end: SearchEnd, *, strategy: str, method: str, model: str | None) -> AgentSummary:
    """What the stage used, counted from the journal over all runs in the out-dir."""
    events = session.journal.events()
    calls = [event for event in events if isinstance(event, LlmCall)]
    priced = [call.usd for call in calls if call.usd is not None]
    spent = {row.name: row.spent for row in session.spending()}
    return AgentSummary(
        strategy=strategy,
        method=method,
        model=model,
        stopped_because=end.reason,
        rounds=sum(isinstance(event, Round) for event in events),
        proposals=int(spent["max_proposals"]),
        perf_calls=int(spent["max_perf_calls"]),
        llm_requests=int(spent["max_llm_calls"]),
        input_tokens=sum(call.input_tokens for call in calls),
        output_tokens=sum(call.output_tokens for call in calls),
        usd=sum(priced) if priced else None,
        unpriced_requests=len([call for call in calls if call.reply is not None and call.usd is None]),
        uncounted_requests=len([call for call in calls if call.reply is not None and not call.input_tokens]),
        own_summaries=[event.summary for event in events if isinstance(event, Round) and event.summary],
    )
