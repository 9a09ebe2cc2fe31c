"""Coordinate search: one step at a time from the best trial, the knobs that relieve its bottleneck first. No language model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from primus_mcp.driver.loop import MIN_GAIN, Nobody, Observer, SearchEnd, stop_reason
from primus_mcp.errors import InputError, UnknownFigureError
from primus_mcp.evaluation.rank import is_candidate
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.search.neighbours import neighbours
from primus_mcp.session import TuningSession
from primus_mcp.space.axes import with_pins
from primus_mcp.space.knobs import KNOBS, TrialConfig
from primus_mcp.trials.budget import BudgetExhaustedError
from primus_mcp.trials.journal import Round, RoundStarted

Step = tuple[str, dict[str, Any]]


def _free(session: TuningSession, knobs: Mapping[str, Any]) -> TrialConfig:
    """Knobs that may move, with the pins."""
    axes = session.target.axes.model_dump()
    free = {
        name: value
        for name, value in knobs.items()
        if name not in session.pins and ((axis := KNOBS[name].axis) is None or axes.get(axis, True))
    }
    return with_pins(TrialConfig(**free), session.pins)


def _centre(session: TuningSession) -> tuple[TrialConfig, EvaluationResult | None]:
    """The best trial, or the workload as it is."""
    best = session.best().best
    if best is None:
        return with_pins(TrialConfig(), session.pins), None
    record = next(record for record in session.history() if record.trial_id == best.trial_id)
    return TrialConfig.model_validate(record.trial), best


def _steps(session: TuningSession, centre: TrialConfig) -> Iterator[Step]:
    yield from neighbours(session.workload, session.target.cluster, centre)


class _Search:
    def __init__(self, session: TuningSession, observer: Observer) -> None:
        self._session, self._watch = session, observer
        self._seen: set[str] = {record.key for record in session.history()}

    def _new(self, label: str, knobs: Mapping[str, Any]) -> tuple[str, TrialConfig] | None:
        """The step as a trial that was not tried, is legal and fits."""
        try:
            trial = _free(self._session, knobs)
            key = self._session.evaluator.key(trial)
            if key in self._seen or not self._session.evaluator.fits(trial):
                return None
        except (InputError, UnknownFigureError):
            return None
        self._seen.add(key)
        return label, trial

    def round(self, index: int) -> Round:
        """Steps around the centre until one is faster, or none is left."""
        began_s = time.monotonic()
        centre, best = _centre(self._session)
        before = best.tokens_per_s_per_gpu or 0.0 if best is not None else 0.0
        rate, tried = before, 0
        for step in _steps(self._session, centre):
            found = self._new(*step)
            if found is None:
                continue
            result = self._session.evaluate(found[1], origin="coordinate", label=found[0])
            tried += 1
            self._watch.trial(result.model_dump(mode="json"))
            if is_candidate(result) and (result.tokens_per_s_per_gpu or 0.0) > before:
                rate = result.tokens_per_s_per_gpu or 0.0
                break
        return Round(index=index, iterations=tried, duration_s=time.monotonic() - began_s, improved=rate > before * (1 + MIN_GAIN))


def coordinate_search(session: TuningSession, *, observer: Observer | None = None) -> SearchEnd:
    """Until a budget is used up or no step around the best is faster. Ctrl-C passes through."""
    watch = observer or Nobody()
    search = _Search(session, watch)
    while True:
        if (stop := stop_reason(session, patience=10**6)) is not None:
            return SearchEnd(ending=stop[0], reason=stop[1])
        index = max((event.index for event in session.journal.events() if isinstance(event, Round | RoundStarted)), default=0) + 1
        watch.round_started(index)
        try:
            ended = search.round(index)
        except BudgetExhaustedError as error:
            return SearchEnd(ending="budget exhausted", reason=str(error))
        session.journal.append(ended)
        watch.round_ended(ended, "")
        if ended.iterations == 0:
            return SearchEnd(ending="agent finished", reason="no step around the best trial is left to try")
