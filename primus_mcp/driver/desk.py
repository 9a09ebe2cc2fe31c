"""Everything that a model asks, is answered and calls goes over this desk: budgets first, then the journal, then the world.

After a kill the same questions get the same answers from the journal, so that the run stands where it stood: what was answered is not
asked again, what was evaluated is not evaluated again.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from primus_mcp.driver.background import TooLateError, within
from primus_mcp.driver.stops import ProviderError, Stop, ToolFailedError
from primus_mcp.errors import PrimusMcpError, RunDirectoryError
from primus_mcp.session import TuningSession
from primus_mcp.trials.budget import BudgetExhaustedError
from primus_mcp.trials.journal import Done, Event, LlmCall, LlmReserved, Round, RoundStarted, ToolCall
from primus_mcp.units import S_PER_MINUTE

MAX_ATTEMPTS = 5
"""Requests for one answer: the first and its repetitions after errors that may pass."""
MAX_LATE = 2
"""The same where requests are not answered in time: each has cost minutes."""
REQUEST_LIMIT_S = 600.0
"""For one request: models that think, and models on a CPU, need minutes."""
FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 60.0
MAX_TOOL_CALLS = 300
"""Tool calls of a round: a loop in generated code ends here."""
MAX_REFUSALS = 3
"""Calls that a budget refused before the round is stopped."""
FINISH = "call SUBMIT now with what you have"
LLM_BUDGETS = ("max_llm_calls", "max_tokens", "max_usd")
_DRIVER_EVENTS = (RoundStarted, LlmReserved, LlmCall, ToolCall)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A language model's answer. None: the provider did not say."""

    text: str
    model: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Time, exchangeable in tests."""

    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def plain_json(value: Any) -> Any:
    """What JSON makes of a value, so that a recorded one equals a live one."""
    return json.loads(json.dumps(value, default=str))


def open_round(events: Sequence[Event]) -> RoundStarted | None:
    """The round that a kill left open."""
    ended = {event.index for event in events if isinstance(event, Round)}
    started = [event for event in events if isinstance(event, RoundStarted)]
    return started[-1] if started and started[-1].index not in ended else None


class Desk:
    """One searcher over one session. `scope` names what is going on: `plan`, `round 3`."""

    def __init__(self, session: TuningSession, *, model: str, clock: Clock | None = None) -> None:
        self.session, self.model, self.clock = session, model, clock or Clock()
        events = session.journal.events()
        self._answers: dict[str, list[LlmCall]] = {}
        for event in events:
            if isinstance(event, LlmCall) and event.key:
                self._answers.setdefault(event.key, []).append(event)
        last = max((index for index, event in enumerate(events) if isinstance(event, _DRIVER_EVENTS)), default=len(events))
        self.charged = {event.key for event in events[last + 1 :] if isinstance(event, Done) and event.origin == "llm"}
        """Trials of a tool call that a kill cut short after they were counted."""
        self._unfinished = open_round(events)
        self._calls: deque[ToolCall] = deque()
        self._scope, self._asked, self._called, self._refused = "plan", 0, 0, 0
        self.round_index = 0
        self._began_s = self.clock.now_s()
        self.requests_sent = 0

    def begin_round(self, make_inputs: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Start the next round, or the one that a kill left open, and return its inputs."""
        events = self.session.journal.events()
        self._asked = self._called = self._refused = 0
        self._began_s = self.clock.now_s()
        if self._unfinished is not None:
            started, self._unfinished = self._unfinished, None
            self._calls = deque(event for event in events if isinstance(event, ToolCall) and event.round == started.index)
        else:
            index = max((event.index for event in events if isinstance(event, RoundStarted | Round)), default=0) + 1
            started = RoundStarted(index=index, inputs=plain_json(make_inputs()))
            self.session.journal.append(started)
            self._calls = deque()
        self.round_index, self._scope = started.index, f"round {started.index}"
        return started.inputs

    def end_round(self, *, improved: bool, summary: str | None = None) -> Round:
        """Close the round in the journal."""
        ended = Round(
            index=self.round_index, iterations=self._asked, duration_s=self._elapsed_s(), improved=improved, summary=summary or None
        )
        self.session.journal.append(ended)
        return ended

    def _elapsed_s(self) -> float:
        return self.clock.now_s() - self._began_s

    def wall_left_s(self) -> float | None:
        """Seconds that max_wall_minutes leaves, this round's own counted; None: no limit."""
        limit = self.session.budget.limits.get("max_wall_minutes")
        if limit is None:
            return None
        spent = sum(event.duration_s for event in self.session.journal.events() if isinstance(event, Round))
        return limit * S_PER_MINUTE - spent - self._elapsed_s()

    def require_time(self) -> None:
        """Raise Stop when the wall clock is used up."""
        left = self.wall_left_s()
        if left is not None and left <= 0:
            limit = self.session.budget.limits["max_wall_minutes"]
            raise Stop(f"budget max_wall_minutes is used up: {limit:,g} minutes; raise it with --budget", scope="stage", cause="budget")

    def ask(self, send: Callable[[], Reply], *, purpose: str) -> str:
        """The model's answer: the recorded one where there is one, else by `send`, repeated with pauses while that may help.

        Raises Stop when a budget or the provider ends the round or the stage. `send` raises ProviderError.
        """
        self._asked += 1
        key = f"{self._scope}, question {self._asked}"
        recorded = self._answers.get(key, [])
        for call in recorded:
            if call.reply is not None:
                return call.reply
        attempt = max((call.attempt for call in recorded), default=0) + 1
        while True:
            self.require_time()
            try:
                return self._request(send, LlmReserved(key=key, attempt=attempt, purpose=purpose))
            except ProviderError as error:
                if not error.retryable or attempt >= (MAX_LATE if error.late else MAX_ATTEMPTS):
                    tried = f" ({attempt} requests)" if attempt > 1 else ""
                    raise Stop(f"the language model did not answer{tried}: {error}", scope=error.scope, cause="provider") from error
                self._pause(error.retry_after_s, attempt)
            attempt += 1

    def _pause(self, asked_for_s: float | None, attempt: int) -> None:
        pause_s = min(max(asked_for_s or 0.0, FIRST_PAUSE_S * 2 ** (attempt - 1)), MAX_PAUSE_S)
        left = self.wall_left_s()
        self.clock.sleep(pause_s if left is None else max(0.0, min(pause_s, left)))

    def in_time(self, send: Callable[[], Reply]) -> Reply:
        """The answer to one request. Raises ProviderError, also when its limit or the wall clock runs out before it comes."""
        left = self.wall_left_s()
        limit_s = REQUEST_LIMIT_S if left is None else max(0.0, min(REQUEST_LIMIT_S, left))
        try:
            return within(limit_s, send, "request")
        except TooLateError:
            raise ProviderError(f"no answer within {limit_s:,.0f} s", retryable=True, late=True) from None

    def _request(self, send: Callable[[], Reply], reserved: LlmReserved) -> str:
        journal = self.session.journal
        try:
            journal.append(reserved, partial(self.session.budget.require_request, reservation=reserved))
        except BudgetExhaustedError as error:
            raise Stop(str(error), scope="round" if error.name == "max_rlm_iterations" else "stage", cause="budget") from None
        began_s = self.clock.now_s()
        self.requests_sent += 1
        asked = LlmCall(purpose=reserved.purpose, model=self.model, key=reserved.key, attempt=reserved.attempt)
        try:
            reply = self.in_time(send)
        except ProviderError as error:
            journal.append(asked.model_copy(update={"error": str(error), "duration_s": self.clock.now_s() - began_s}))
            raise
        answer = {
            "model": reply.model,
            "input_tokens": reply.input_tokens or 0,
            "output_tokens": reply.output_tokens or 0,
            "usd": reply.usd,
            "duration_s": self.clock.now_s() - began_s,
            "reply": reply.text,
        }
        journal.append(asked.model_copy(update=answer))
        return reply.text

    def call(self, tool: str, arguments: Mapping[str, Any], work: Callable[[], Any]) -> Any:
        """A tool call of the model: the recorded outcome after a kill, else `work()`, whose outcome is recorded.

        Raises ToolFailedError (the model sees it), and Stop for what no model may go on from.
        """
        given = plain_json(dict(arguments))
        self._called += 1
        if self._called > MAX_TOOL_CALLS:
            raise Stop(f"more than {MAX_TOOL_CALLS} tool calls in a round", scope="round", cause="budget")
        if self._calls:
            known = self._calls.popleft()
            if (known.tool, known.arguments) == (tool, given):
                return self._outcome(known)
            self._calls.clear()
        self.require_time()
        event = self._performed(ToolCall(round=self.round_index, tool=tool, arguments=given), work)
        self.session.journal.append(event)
        return self._outcome(event)

    def _performed(self, event: ToolCall, work: Callable[[], Any]) -> ToolCall:
        try:
            return event.model_copy(update={"result": plain_json(work())})
        except BudgetExhaustedError as error:
            return event.model_copy(update={"error": f"{error}; {FINISH}", "refused": True})
        except RunDirectoryError:
            raise
        except PrimusMcpError as error:
            return event.model_copy(update={"error": str(error)})

    def _outcome(self, event: ToolCall) -> Any:
        if event.error is None:
            return event.result
        if event.refused:
            self._refused += 1
            if self._refused >= MAX_REFUSALS:
                raise Stop(f"the model went on after {event.error.removesuffix('; ' + FINISH)}", scope="round", cause="budget")
        raise ToolFailedError(event.error)
