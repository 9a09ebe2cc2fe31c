"""Budgets: one table of what each limit counts and whom it limits. What is spent is counted from the journal, never kept beside it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

from primus_mcp.errors import PrimusMcpError
from primus_mcp.trials.journal import Event, LlmReserved, Reserved
from primus_mcp.trials.log import Origin
from primus_mcp.trials.tally import Tally
from primus_mcp.units import S_PER_MINUTE

SEED_BUDGET = 12
MAX_EVALUATIONS = 10_000


class BudgetExhaustedError(PrimusMcpError):
    """A limit is reached (or 0: that stage is off); the text names it, what was spent and how to raise it."""

    exit_code = 4

    def __init__(self, name: str, limit: float, spent: float) -> None:
        self.name, self.limit, self.spent = name, limit, spent
        state = "is 0: that stage is off" if limit == 0 else f"is used up: {spent:,g} of {limit:,g}"
        super().__init__(f"budget {name} {state}; raise it with --budget {name}=N")


SEARCHERS: frozenset[Origin] = frozenset({"llm", "coordinate"})
"""Who searches after the seeds, under the limits of the driver."""
SEEDS: frozenset[Origin] = frozenset({"seed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One row: what `name` counts in the journal, and whose reservations it stops (empty: it stops something else than a trial).

    `spent(tally, own)` leaves out what trial `own` has reserved ("": nothing).
    """

    name: str
    counts: str
    spent: Callable[[Tally, str], float]
    stops: frozenset[Origin] = frozenset()
    measured_only: bool = False


_EVERYONE: frozenset[Origin] = frozenset({"seed", "llm", "coordinate", "sweep", "user"})
LIMITS: tuple[Limit, ...] = (
    Limit(
        name="max_proposals",
        counts="proposals of the driver, illegal and repeated ones too",
        spent=lambda tally, own: tally.proposals(SEARCHERS, own),
        stops=SEARCHERS,
    ),
    Limit(
        name="max_perf_calls",
        counts="performance evaluations computed for the driver (illegal, infeasible and repeated ones are free)",
        spent=lambda tally, own: tally.priced_trials(SEARCHERS, own),
        stops=SEARCHERS,
    ),
    Limit(name="max_rounds", counts="rounds of the driver", spent=lambda tally, _: tally.rounds),
    Limit(name="max_rlm_iterations", counts="inner iterations of the present round", spent=lambda tally, _: tally.iterations()),
    Limit(
        name="max_benchmark_calls",
        counts="measured runs, from the moment they are reserved",
        spent=lambda tally, _: tally.measured,
        stops=_EVERYONE,
        measured_only=True,
    ),
    Limit(name="max_llm_calls", counts="requests to a language model, retries too", spent=lambda tally, _: tally.sent),
    Limit(name="max_tokens", counts="tokens in and out", spent=lambda tally, _: tally.tokens),
    Limit(name="max_usd", counts="US dollars spent on language models, where the price is known", spent=lambda tally, _: tally.usd),
    Limit(
        name="max_wall_minutes",
        counts="minutes spent in rounds of the driver",
        spent=lambda tally, _: tally.rounds_s / S_PER_MINUTE,
    ),
    Limit(
        name="seed_budget",
        counts="seeds that were priced (illegal and infeasible ones are free)",
        spent=lambda tally, own: tally.priced_trials(SEEDS, own),
        stops=SEEDS,
    ),
    Limit(
        name="max_evaluations",
        counts="evaluations that a person or client asked for",
        spent=lambda tally, own: tally.asked_trials(own),
        stops=frozenset({"user"}),
    ),
)
_ROWS = {limit.name: limit for limit in LIMITS}
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
        self._lock, self._tally, self._counted = Lock(), Tally(), tuple[Event, ...]()

    def _of(self, events: Sequence[Event]) -> Tally:
        """The tally of these events; where they go on from those counted last, only the new ones are added. The caller holds the lock."""
        known, events = len(self._counted), tuple(events)
        if events[:known] != self._counted:
            self._tally, known = Tally(), 0
        for event in events[known:]:
            self._tally.add(event)
        self._counted = events
        return self._tally

    def status(self, events: Sequence[Event], names: Collection[str] = LIMIT_NAMES) -> tuple[Spending, ...]:
        """Every limit of these names with what was spent of it."""
        with self._lock:
            tally = self._of(events)
            return tuple(
                Spending(name=limit.name, counts=limit.counts, limit=self.limits.get(limit.name), spent=limit.spent(tally, ""))
                for limit in LIMITS
                if limit.name in names
            )

    def _refuse(self, name: str, spent: float) -> None:
        limit = self.limits.get(name)
        if limit is not None and spent >= limit:
            raise BudgetExhaustedError(name, limit, spent)

    def require(self, name: str, events: Sequence[Event]) -> None:
        """Raise BudgetExhaustedError when `name` is used up."""
        with self._lock:
            self._refuse(name, _ROWS[name].spent(self._of(events), ""))

    def require_trial(self, events: Sequence[Event], reservation: Reserved) -> None:
        """Raise BudgetExhaustedError when this trial may not start. A trial that a kill cut short does not count against itself."""
        own = "" if reservation.measured else reservation.key
        with self._lock:
            tally = self._of(events)
            for limit in LIMITS:
                if reservation.origin in limit.stops and (reservation.measured or not limit.measured_only):
                    self._refuse(limit.name, limit.spent(tally, own))

    def require_request(self, events: Sequence[Event], reservation: LlmReserved) -> None:
        """Raise BudgetExhaustedError when this request may not be sent. One that a kill cut short does not count against itself."""
        with self._lock:
            tally = self._of(events)
            spent = {"max_llm_calls": tally.sent_without(reservation), "max_tokens": tally.tokens, "max_usd": tally.usd}
            for name, amount in spent.items():
                self._refuse(name, amount)
            if reservation.purpose == "rlm" and tally.is_new_question(reservation):
                self._refuse("max_rlm_iterations", tally.iterations(reservation.key))
