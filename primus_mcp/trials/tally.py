"""What the events of a journal come to, event by event: asking costs as much after twenty rounds as after one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from primus_mcp.trials.journal import Cancelled, Done, Event, LlmCall, LlmReserved, Reserved, Round
from primus_mcp.trials.log import Origin


@dataclass(slots=True)
class Tally:
    """Sums over the events that were added, in their order. What a kill left reserved counts as spent: it may yet be."""

    reserved: dict[str, set[Origin]] = field(default_factory=dict)
    """Who reserved each trial that is neither done nor given up."""
    priced: dict[Origin, set[str]] = field(default_factory=dict)
    """Trials whose time was computed, and that still stand in the log, by who proposed them."""
    done: dict[Origin, set[str]] = field(default_factory=dict)
    """Trials that were new when they were proposed."""
    repeats: dict[Origin, int] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    """Trials that a person or client ever reserved."""
    measured: int = 0
    rounds: int = 0
    rounds_s: float = 0.0
    requests: dict[str, set[int]] = field(default_factory=dict)
    """Attempts that were reserved for each question to a language model."""
    answers: dict[str, set[int]] = field(default_factory=dict)
    """Attempts that ended, with an answer or without."""
    sent: int = 0
    """Requests, sent or reserved; one that a kill cut short and that was sent again is one."""
    tokens: int = 0
    usd: float = 0.0
    questions: set[str] = field(default_factory=set)
    """Questions of the present round."""
    unnamed_questions: int = 0

    def add(self, event: Event) -> None:
        """Count one event."""
        match event:
            case Reserved():
                self._reserve(event)
            case Done():
                self._finish(event)
            case Cancelled():
                self.reserved.pop(event.key, None)
                for keys in self.priced.values():
                    keys.discard(event.key)
            case LlmReserved() | LlmCall():
                self._request(event)
            case Round():
                self.rounds += 1
                self.rounds_s += event.duration_s
                self.questions, self.unnamed_questions = set(), 0

    def _reserve(self, event: Reserved) -> None:
        self.reserved.setdefault(event.key, set()).add(event.origin)
        self.measured += event.measured
        if event.origin == "user":
            self.asked.add(event.key)

    def _finish(self, event: Done) -> None:
        self.reserved.pop(event.key, None)
        if event.repeated:
            self.repeats[event.origin] = self.repeats.get(event.origin, 0) + 1
            return
        self.done.setdefault(event.origin, set()).add(event.key)
        if event.priced:
            self.priced.setdefault(event.origin, set()).add(event.key)

    def _request(self, event: LlmReserved | LlmCall) -> None:
        if isinstance(event, LlmCall):
            self.tokens += event.input_tokens + event.output_tokens
            self.usd += event.usd or 0.0
            self.sent += not event.key
        if event.key:
            self.sent += event.attempt not in self.requests.get(event.key, ()) and event.attempt not in self.answers.get(event.key, ())
            attempts = self.answers if isinstance(event, LlmCall) else self.requests
            attempts.setdefault(event.key, set()).add(event.attempt)
        if event.purpose == "rlm":
            self.unnamed_questions += not event.key
            self.questions |= {event.key} if event.key else set()

    def _open(self, origins: Collection[Origin], own: str) -> set[str]:
        return {key for key, by in self.reserved.items() if key != own and not by.isdisjoint(origins)}

    def priced_trials(self, origins: Collection[Origin], own: str = "") -> int:
        """Trials of `origins` whose time was computed, or that are reserved; the reservation of trial `own` left out."""
        return len(self._open(origins, own).union(*(self.priced.get(origin, ()) for origin in origins)))

    def proposals(self, origins: Collection[Origin], own: str = "") -> int:
        """New trials and repeats of `origins`, and open reservations; that of trial `own` left out."""
        new = set[str]().union(*(self.done.get(origin, ()) for origin in origins))
        return len(new) + sum(self.repeats.get(origin, 0) for origin in origins) + len(self._open(origins, own))

    def asked_trials(self, own: str = "") -> int:
        """Trials that a person or client reserved; trial `own` left out."""
        return len(self.asked) - (own in self.asked)

    def sent_without(self, own: LlmReserved) -> int:
        """Requests, the reservation `own` left out."""
        only_reserved = own.attempt in self.requests.get(own.key, ()) and own.attempt not in self.answers.get(own.key, ())
        return self.sent - only_reserved

    def is_new_question(self, own: LlmReserved) -> bool:
        """Whether nothing was sent for this question but what `own` reserves."""
        return own.key not in self.answers and self.requests.get(own.key, set()) <= {own.attempt}

    def iterations(self, own: str = "") -> int:
        """Questions of the present round, however often each was sent; question `own` left out."""
        return len(self.questions) - (own in self.questions) + self.unnamed_questions
