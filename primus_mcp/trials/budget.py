"""Budgets: one table of what each limit counts and whom it limits. What is spent is counted from the journal, never kept beside it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from primus_mcp.errors import PrimusMcpError
from primus_mcp.trials.journal import Cancelled, Done, Event, LlmCall, LlmReserved, Reserved, Round
from primus_mcp.trials.log import Origin

SEED_BUDGET = 12
MAX_EVALUATIONS = 10_000
_SECONDS_PER_MINUTE = 60


class BudgetExhaustedError(PrimusMcpError):
    """A limit is reached (or 0: that stage is off); the text names it, what was spent and how to raise it."""

    exit_code = 4

    def __init__(self, name: str, limit: float, spent: float) -> None:
        self.name, self.limit, self.spent = name, limit, spent
        state = "is 0: that stage is off" if limit == 0 else f"is used up: {spent:,g} of {limit:,g}"
        super().__init__(f"budget {name} {state}; raise it with --budget {name}=N")


def _open_reservations(events: Sequence[Event]) -> list[Reserved]:
    found: dict[str, dict[Origin, Reserved]] = {}
    for event in events:
        if isinstance(event, Reserved):
            found.setdefault(event.key, {})[event.origin] = event
        elif isinstance(event, Done | Cancelled):
            found.pop(event.key, None)
    return [event for by_origin in found.values() for event in by_origin.values()]


SEARCHERS: frozenset[Origin] = frozenset({"llm", "coordinate"})
"""Who searches after the seeds, under the limits of the driver."""


def _priced_keys(events: Sequence[Event], origins: frozenset[Origin]) -> set[str]:
    """Keys whose time was computed for `origins` and that still stand in the log, and those that are reserved: they may yet be."""
    done: set[str] = set()
    for event in events:
        if isinstance(event, Cancelled):
            done.discard(event.key)
        elif isinstance(event, Done) and event.origin in origins and event.priced and not event.repeated:
            done.add(event.key)
    return done | {event.key for event in _open_reservations(events) if event.origin in origins}


def _proposals(events: Sequence[Event]) -> float:
    done = [event for event in events if isinstance(event, Done) and event.origin in SEARCHERS]
    counted = len({event.key for event in done if not event.repeated}) + sum(event.repeated for event in done)
    return counted + len({event.key for event in _open_reservations(events) if event.origin in SEARCHERS})


def _llm_requests(events: Sequence[Event]) -> float:
    """Requests sent or reserved; one that a kill cut short and that was sent again is one."""
    named = {(event.key, event.attempt) for event in events if isinstance(event, LlmReserved | LlmCall) and event.key}
    return len(named) + sum(isinstance(event, LlmCall) and not event.key for event in events)


def _iterations(events: Sequence[Event]) -> float:
    """Questions of the present round, however often each was sent."""
    last = max((index for index, event in enumerate(events) if isinstance(event, Round)), default=-1)
    inner = [event for event in events[last + 1 :] if isinstance(event, LlmReserved | LlmCall) and event.purpose == "rlm"]
    return len({event.key for event in inner if event.key}) + sum(not event.key for event in inner)


def _llm_sum(amount: Callable[[LlmCall], float]) -> Callable[[Sequence[Event]], float]:
    return lambda events: sum(amount(event) for event in events if isinstance(event, LlmCall))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One row: what `name` counts in the journal, and whose reservations it stops (empty: it stops something else than a trial)."""

    name: str
    counts: str
    spent: Callable[[Sequence[Event]], float]
    stops: frozenset[Origin] = frozenset()
    measured_only: bool = False


_EVERYONE: frozenset[Origin] = frozenset({"seed", "llm", "coordinate", "sweep", "user"})
LIMITS: tuple[Limit, ...] = (
    Limit(name="max_proposals", counts="proposals of the driver, illegal and repeated ones too", spent=_proposals, stops=SEARCHERS),
    Limit(
        name="max_perf_calls",
        counts="performance evaluations computed for the driver (illegal, infeasible and repeated ones are free)",
        spent=lambda events: len(_priced_keys(events, SEARCHERS)),
        stops=SEARCHERS,
    ),
    Limit(name="max_rounds", counts="rounds of the driver", spent=lambda events: sum(isinstance(event, Round) for event in events)),
    Limit(name="max_rlm_iterations", counts="inner iterations of the present round", spent=_iterations),
    Limit(
        name="max_benchmark_calls",
        counts="measured runs, from the moment they are reserved",
        spent=lambda events: sum(isinstance(event, Reserved) and event.measured for event in events),
        stops=_EVERYONE,
        measured_only=True,
    ),
    Limit(name="max_llm_calls", counts="requests to a language model, retries too", spent=_llm_requests),
    Limit(name="max_tokens", counts="tokens in and out", spent=_llm_sum(lambda call: call.input_tokens + call.output_tokens)),
    Limit(
        name="max_usd", counts="US dollars spent on language models, where the price is known", spent=_llm_sum(lambda call: call.usd or 0.0)
    ),
    Limit(
        name="max_wall_minutes",
        counts="minutes spent in rounds of the driver",
        spent=lambda events: sum(event.duration_s for event in events if isinstance(event, Round)) / _SECONDS_PER_MINUTE,
    ),
    Limit(
        name="seed_budget",
        counts="seeds that were priced (illegal and infeasible ones are free)",
        spent=lambda events: len(_priced_keys(events, frozenset({"seed"}))),
        stops=frozenset({"seed"}),
    ),
    Limit(
        name="max_evaluations",
        counts="evaluations that a person or client asked for",
        spent=lambda events: len({event.key for event in events if isinstance(event, Reserved) and event.origin == "user"}),
        stops=frozenset({"user"}),
    ),
)
LIMIT_NAMES: tuple[str, ...] = tuple(limit.name for limit in LIMITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """State of one limit. `limit` None: unlimited."""

    name: str
    counts: str
    limit: float | None
    spent: float

    @property
    def left(self) -> float | None:
        """What may still be spent; None: no limit."""
        return None if self.limit is None else max(0.0, self.limit - self.spent)


class Budget:
    """Limits by name; one that is absent or None does not limit."""

    def __init__(self, limits: Mapping[str, float | None]) -> None:
        unknown = sorted(set(limits) - set(LIMIT_NAMES))
        assert not unknown, f"not in the table of budgets: {unknown}"
        self.limits: dict[str, float | None] = dict(limits)

    def status(self, events: Sequence[Event], names: Collection[str] = LIMIT_NAMES) -> tuple[Spending, ...]:
        """Every limit of these names with what was spent of it."""
        return tuple(
            Spending(name=limit.name, counts=limit.counts, limit=self.limits.get(limit.name), spent=limit.spent(events))
            for limit in LIMITS
            if limit.name in names
        )

    def require(self, name: str, events: Sequence[Event]) -> None:
        """Raise BudgetExhaustedError when `name` is used up."""
        limit, spent = self.limits.get(name), next(row for row in LIMITS if row.name == name).spent(events)
        if limit is not None and spent >= limit:
            raise BudgetExhaustedError(name, limit, spent)

    def require_trial(self, events: Sequence[Event], reservation: Reserved) -> None:
        """Raise BudgetExhaustedError when this trial may not start. A trial that a kill cut short does not count against itself."""
        others = [
            event for event in events if not (isinstance(event, Reserved) and event.key == reservation.key and not reservation.measured)
        ]
        for limit in LIMITS:
            if reservation.origin in limit.stops and (reservation.measured or not limit.measured_only):
                self.require(limit.name, others)
