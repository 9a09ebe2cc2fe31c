"""Plan, rounds, end: the search by a language model over a session. It ends with the log's best whatever the model does."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from primus_mcp.driver.agent import Agent
from primus_mcp.driver.belt import Belt
from primus_mcp.driver.briefing import Briefings
from primus_mcp.driver.desk import LLM_BUDGETS, Desk, open_round
from primus_mcp.driver.review import no_gain_text, reviewed
from primus_mcp.driver.stops import Stop
from primus_mcp.session import TuningSession
from primus_mcp.tools.text import clean
from primus_mcp.trials.budget import BudgetExhaustedError
from primus_mcp.trials.journal import Event, Round

MIN_GAIN = 0.005
"""A round that gains less than this share has not improved."""
MAX_SUMMARY = 2_000
UNFINISHED = "(the round ended without a summary)"
SEARCH_BUDGETS = ("max_rounds", "max_proposals", "max_perf_calls", "max_rlm_iterations")
Ending = Literal["agent finished", "budget exhausted", "optimum proven"]


class Observer(Protocol):
    """Who watches: a live view, a log, nobody."""

    def planned(self, plan: str) -> None:
        """The planner has answered."""

    def round_started(self, index: int) -> None:
        """A round begins."""

    def trial(self, outcome: Mapping[str, Any]) -> None:
        """A configuration was evaluated."""

    def round_ended(self, ended: Round, note: str) -> None:
        """A round has ended; `note` says why, or is the model's own summary."""


class Nobody:
    """An observer that does nothing."""

    def planned(self, plan: str) -> None:
        """Nothing."""

    def round_started(self, index: int) -> None:
        """Nothing."""

    def trial(self, outcome: Mapping[str, Any]) -> None:
        """Nothing."""

    def round_ended(self, ended: Round, note: str) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEnd:
    """Why the search ended, in words, and the model's own summaries, which prove nothing."""

    ending: Ending
    reason: str
    summaries: tuple[str, ...] = field(default=())


def _rate(session: TuningSession) -> float:
    best = session.best().best
    return best.tokens_per_s_per_gpu or 0.0 if best is not None else 0.0


def rounds_without_gain(events: Sequence[Event]) -> int:
    """Rounds at the end of the journal that did not improve."""
    count = 0
    for event in reversed([event for event in events if isinstance(event, Round)]):
        if event.improved:
            break
        count += 1
    return count


def stop_reason(
    session: TuningSession, patience: int, *, limits: Sequence[str] = (*SEARCH_BUDGETS, *LLM_BUDGETS)
) -> tuple[Ending, str] | None:
    """Why no further round may start, or None."""
    events = session.journal.events()
    for name in limits:
        try:
            session.budget.require(name, events)
        except BudgetExhaustedError as error:
            return "budget exhausted", str(error)
    if (idle := rounds_without_gain(events)) >= patience:
        return "agent finished", f"{idle} rounds without an improvement of {MIN_GAIN:.1%} (agent.patience)"
    return None


class Loop:
    """One run of the search. `patience`: rounds without an improvement before it stops. `review`: a proven optimum, which gets one round
    and no plan instead of a search.
    """

    def __init__(
        self,
        session: TuningSession,
        desk: Desk,
        agent: Agent,
        *,
        patience: int,
        observer: Observer | None = None,
        review: int | None = None,
    ) -> None:
        self._session, self._desk, self._agent, self._patience, self._review = session, desk, agent, patience, review
        self._watch: Observer = observer or Nobody()
        self._belt = Belt(session, desk, ask_llm=agent.ask, on_trial=self._watch.trial)
        self._briefings = Briefings(session)
        self._summaries: list[str] = []

    def run(self) -> SearchEnd:
        """Until a budget, patience or the provider ends it. Ctrl-C passes through; what was evaluated is in the log."""
        if (reason := self._stop()) is not None:
            return self._end(*reason)
        try:
            plan = self._plan() if self._review is None else ""
            while True:
                if (reason := self._stop()) is not None:
                    return self._end(*reason)
                self._desk.require_time()
                self._round(plan)
                if self._review is not None:
                    return self._end("agent finished", f"{no_gain_text(self._review)}; its round is over")
        except Stop as stop:
            return self._end("budget exhausted" if stop.cause == "budget" else "agent finished", stop.reason)

    def _stop(self) -> tuple[Ending, str] | None:
        """Why no round may start; one that a kill left open goes on."""
        events = self._session.journal.events()
        if open_round(events) is not None:
            return None
        if self._review is not None and reviewed(events):
            return "agent finished", f"{no_gain_text(self._review)}, and the language model had its round"
        return stop_reason(self._session, self._patience if self._review is None else sys.maxsize)

    def _end(self, ending: Ending, reason: str) -> SearchEnd:
        return SearchEnd(ending=ending, reason=reason, summaries=tuple(self._summaries))

    def _plan(self) -> str:
        """The plan, or nothing where the model made none: rounds do without."""
        inputs = {name: value for name, value in self._briefings.inputs(plan="").items() if name != "plan"}
        try:
            plan = clean(self._agent.plan(inputs), MAX_SUMMARY * 2)
        except Stop as stop:
            if stop.scope == "stage":
                raise
            plan = ""
        self._watch.planned(plan)
        return plan

    def _round(self, plan: str) -> None:
        """One round; whatever the model does, it is closed, and only a stop of the stage goes on to the caller."""
        inputs = self._desk.begin_round(lambda: {**self._briefings.inputs(plan=plan), "rate": _rate(self._session)})
        self._watch.round_started(self._desk.round_index)
        given = {name: value for name, value in inputs.items() if name != "rate"}
        ending: Stop | None = None
        summary = ""
        try:
            summary = clean(self._agent.search(given, self._belt.functions, self._iterations()), MAX_SUMMARY)
            note = summary or UNFINISHED
        except Stop as stop:
            ending, note = stop, stop.reason
        if summary:
            self._summaries.append(summary)
        improved = _rate(self._session) > max(inputs["rate"] * (1 + MIN_GAIN), 0.0)
        self._watch.round_ended(self._desk.end_round(improved=improved, summary=summary), note)
        if ending is not None and ending.scope == "stage":
            raise ending

    def _iterations(self) -> int:
        limit = self._session.budget.limits.get("max_rlm_iterations")
        return 1_000 if limit is None else int(limit)
