"""After a sweep that proved its best no search can gain under the model: a language model gets one round about what that leaves out."""

from __future__ import annotations

from collections.abc import Sequence

from primus_mcp.session import TuningSession
from primus_mcp.trials.journal import Event, Round, RoundStarted, Swept


def proven_optimum(session: TuningSession) -> int | None:
    """The trial that a sweep under the digests of this session proved to be the fastest, if it still stands in the log."""
    proof = session.proof()
    return None if proof is None else proof.trial_id


def can_measure(session: TuningSession) -> bool:
    """Whether a round may still measure a configuration, which the proof says nothing about."""
    left = {row.name: row.left for row in session.spending()}["max_benchmark_calls"]
    return session.target.benchmark_host.has_gpu and left != 0


def to_review(session: TuningSession) -> int | None:
    """The proven optimum where rounds could change nothing about it; None: there is something to search for."""
    return None if can_measure(session) else proven_optimum(session)


def no_gain_text(trial_id: int) -> str:
    """Why no search is made."""
    return f"trial #{trial_id} is the optimum of the whole space, proven under the model: no search can gain"


def reviewed(events: Sequence[Event]) -> bool:
    """Whether a language model has summed up a round that began after the last sweep."""
    since = max((number for number, event in enumerate(events) if isinstance(event, Swept)), default=len(events))
    started = {event.index for event in events[since:] if isinstance(event, RoundStarted)}
    return any(isinstance(event, Round) and event.index in started and event.summary for event in events[since:])
