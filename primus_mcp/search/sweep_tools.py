"""The sweep, its front and its sensitivity as plain functions with short answers, for programs that pay by the token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from primus_mcp.errors import InputError
from primus_mcp.evaluation.evaluators import Evaluator, FullEvaluator
from primus_mcp.search.pareto import front_point, pareto_front
from primus_mcp.search.prices import price_of
from primus_mcp.search.sensitivity import sensitivity
from primus_mcp.search.sweep import Progress, sweep
from primus_mcp.search.sweep_result import SweepResult, SweptTrial
from primus_mcp.space.knobs import KNOBS, TrialConfig
from primus_mcp.space.parsing import suggest_knob

MAX_TOP = 20
SHOWN_RULES = 8
LEVELS = (0.9, 0.8, 0.7, 0.6, 0.5)


def _analytic(evaluator: Evaluator) -> FullEvaluator:
    if not isinstance(evaluator, FullEvaluator) or evaluator.fidelity != "simulate":
        raise InputError("only a simulated evaluator can be swept", where="sweep", remedy="open the session with mode full, simulate")
    return evaluator


def _row(one: SweptTrial) -> dict[str, Any]:
    r = one.result
    return {
        "trial": one.trial,
        "tokens_per_s_per_gpu": round(r.tokens_per_s_per_gpu or 0.0, 1),
        "memory_per_gpu_gb": round(r.memory_per_gpu_gb or 0.0, 1),
        "fits_physically": r.fits_physically,
        "mfu": None if r.mfu is None else round(r.mfu, 4),
    }


def sweep_answer(result: SweepResult) -> dict[str, Any]:
    """A sweep in about a kilobyte: the best, the proof and where the rest went."""
    fallen = dict(list(result.counts.fallen.items())[:SHOWN_RULES])
    return {
        "proven_under_the_model": result.proven,
        "gap": result.gap,
        "legal": result.counts.legal,
        "priced": result.counts.priced,
        "over_memory": result.counts.over_memory,
        "slower": result.counts.slower,
        "refused_by_rule": fallen,
        "ties": result.ties,
        "recommended": result.recommended,
        "note": result.note,
        "stopped": result.stopped,
        "top": [_row(one) for one in result.top],
    }


def sweep_space(
    evaluator: Evaluator,
    *,
    axes: Sequence[str] | None = None,
    where: str | None = None,
    top: int = 5,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[SweepResult, dict[str, Any]]:
    """The fastest configurations of the whole legal space and the short answer. `axes`: knobs that may move; null: all of the session.

    Raises InputError for an unknown knob, a bad condition or an evaluator that measures.
    """
    for name in axes or ():
        if name not in KNOBS:
            raise InputError(f"there is no knob {name!r}", where="axes", remedy=suggest_knob(name))
    if not 1 <= top <= MAX_TOP:
        raise InputError(f"{top} is not between 1 and {MAX_TOP}", where="top")
    result = sweep(_analytic(evaluator), only=axes, where=where, top=top, progress=progress, should_stop=should_stop)
    return result, sweep_answer(result)


def memory_front(
    evaluator: Evaluator,
    *,
    where: str | None = None,
    usd_per_gpu_hour: float | None = None,
    target_tokens: float | None = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[dict[str, Any]]:
    """What cannot be beaten in speed, memory headroom, MFU and price at once, with days and dollars for a target of tokens."""
    full = _analytic(evaluator)
    result = sweep(full, where=where, levels=LEVELS, progress=progress, should_stop=should_stop)
    price = price_of(full.cluster.gpu.name, usd_per_gpu_hour)
    points = pareto_front([front_point(one, full.cluster, price, target_tokens) for one in result.by_memory])
    return [
        {
            **point.model_dump(include={"trial", "headroom_gb", "mfu", "usd_per_million_tokens", "price_source", "days", "usd"}),
            "tokens_per_s_per_gpu": point.tokens_per_s_per_gpu,
        }
        for point in points
    ]


def how_sure(evaluator: Evaluator, trial: TrialConfig, *, shown: int = 8) -> dict[str, Any]:
    """One step along every knob and every uncertain rate +-20%, around a configuration. Raises InputError where it does not run."""
    full = _analytic(evaluator)
    legality = full.rules.check(trial)
    if not legality.legal:
        raise InputError(f"this configuration is illegal: {legality.reason}", where="trial")
    found = sensitivity(full, trial)
    return {
        "summary": found.text.splitlines(),
        "steps": [{"label": step.label, "ratio": None if step.ratio is None else round(step.ratio, 4)} for step in found.steps[:shown]],
        "swings": [{"what": swing.what, "low": round(swing.low, 1), "high": round(swing.high, 1)} for swing in found.swings[:shown]],
        "robust": found.rivals[found.robust].trial,
    }
