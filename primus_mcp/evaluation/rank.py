"""Which trial is best: one fidelity class at a time, inside the memory margin, not at risk for a trifle, and the plainest of equals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from primus_mcp.evaluation.result import OUTSIDE_POLICY, EvaluationResult, Fidelity

FIDELITIES: tuple[Fidelity, ...] = ("synthetic", "heuristic", "simulate", "primus", "benchmark")
"""Lowest class first; throughputs of two classes are never compared."""

FP8_FORMATS = (None, "hybrid", "e4m3")
"""Of the trainer's key `fp8`, in the order in which they are preferred at one price; others come last."""
AT_RISK_TOLERANCE = 0.03
"""A configuration whose upper memory bound exceeds the GPU wins only over safe ones that are slower by more than this share."""


NEAR_TIE = 1e-3
"""Trials whose throughputs differ by no more than this share are as fast as each other: the model cannot tell them apart."""
_SHOWN_GB = 1
"""Digits after the point of GB, as they are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """`best` of the highest class that has a candidate; `runner_up` is the best of the class below it that has one; `note` says why a
    faster trial did not win, or that the winner is at risk.
    """

    best: EvaluationResult | None
    runner_up: EvaluationResult | None
    note: str | None


def is_what_if(result: EvaluationResult) -> bool:
    """Priced with the all-to-all of another EP than runs (`target_ep_size`): an estimate of something that no trainer key can ask for."""
    resolved = result.resolved or {}
    return resolved.get("a2a_ep_size") not in (None, resolved.get("ep"))


def is_outside_policy(result: EvaluationResult) -> bool:
    """Priced because somebody asked for it, although the bounds of the search leave it out."""
    return any(warning.code == OUTSIDE_POLICY for warning in result.warnings)


def is_candidate(result: EvaluationResult) -> bool:
    """Legal, inside the margin, with a throughput, runnable as priced, and within the bounds of the search."""
    priced = result.legal and result.within_margin is True and result.tokens_per_s_per_gpu is not None
    return priced and not is_what_if(result) and not is_outside_policy(result)


def _rate(result: EvaluationResult) -> float:
    return result.tokens_per_s_per_gpu or 0.0


def price_order(result: EvaluationResult) -> tuple[float, float, int]:
    """Fastest first; equal speed: less memory, then nearer to the workload, whose own FP8 format therefore comes first."""
    return (-_rate(result), result.memory_per_gpu_gb or 0.0, result.settings_changed or 0)


def format_order(result: EvaluationResult) -> int:
    """Where the FP8 format stands among formats at one price: none, hybrid (the trainer's usual one, with gradients in E5M2), e4m3."""
    fp8 = (result.resolved or {}).get("fp8")
    return FP8_FORMATS.index(fp8) if fp8 in FP8_FORMATS else len(FP8_FORMATS)


def _order(result: EvaluationResult) -> tuple[tuple[float, float, int], int, int]:
    """As `price_order` and `format_order`, then the earlier trial."""
    return (price_order(result), format_order(result), result.trial_id or 0)


def _plainest(candidates: Sequence[EvaluationResult], least: float = 0.0) -> EvaluationResult:
    """Of those as fast as the first, and at least `least`: a safe one, the least memory as shown, the nearest to the workload."""
    least = max(least, _rate(candidates[0]) * (1 - NEAR_TIE))

    def place(one: EvaluationResult) -> tuple[bool, float, int]:
        return (one.fits_physically == "at_risk", round(one.memory_per_gpu_gb or 0.0, _SHOWN_GB), one.settings_changed or 0)

    return min((one for one in candidates if _rate(one) >= least), key=place)


def ordered(results: Sequence[EvaluationResult], fidelity: Fidelity) -> list[EvaluationResult]:
    """Candidates of one class, fastest first."""
    return sorted((result for result in results if result.fidelity == fidelity and is_candidate(result)), key=_order)


def _tie_text(chosen: EvaluationResult, fastest: EvaluationResult) -> str | None:
    """Why another trial than the fastest was chosen among those as fast."""
    if chosen is fastest:
        return None
    why = "is at risk" if fastest.fits_physically == "at_risk" else "needs more memory or changes more settings"
    return f"trial #{fastest.trial_id} is as fast within {NEAR_TIE:.1%} but {why}"


def _winner(candidates: list[EvaluationResult]) -> tuple[EvaluationResult, str | None]:
    first = _plainest(candidates)
    if first.fits_physically != "at_risk":
        return first, _tie_text(first, candidates[0])
    upper = f"{first.memory_upper_gb:.1f} GB" if first.memory_upper_gb is not None else "its upper bound"
    safe = [result for result in candidates if result.fits_physically == "fits"]
    if not safe:
        return first, f"at risk: memory may reach {upper}, more than the GPU has; no trial is surely inside"
    tolerated = _rate(candidates[0]) * (1 - AT_RISK_TOLERANCE)
    if _rate(safe[0]) >= tolerated:
        chosen = _plainest(safe, tolerated)
        faster = _rate(first) / _rate(chosen) - 1
        return chosen, f"trial #{first.trial_id} is {faster:.1%} faster but at risk: its memory may reach {upper}"
    slower = f"the fastest safe trial, #{safe[0].trial_id}, is {1 - _rate(safe[0]) / _rate(first):.1%} slower"
    return first, f"at risk: memory may reach {upper}, more than the GPU has; {slower}"


def rank(results: Sequence[EvaluationResult]) -> Ranking:
    """The best trial and the runner-up of a lower class."""
    by_class = [found for fidelity in reversed(FIDELITIES) if (found := ordered(results, fidelity))]
    if not by_class:
        return Ranking(best=None, runner_up=None, note=None)
    best, note = _winner(by_class[0])
    runner_up = _winner(by_class[1])[0] if len(by_class) > 1 else None
    return Ranking(best=best, runner_up=runner_up, note=note)


def incumbents(results: Sequence[EvaluationResult]) -> list[float | None]:
    """Best throughput so far after each trial, in the class of the final best; None before its first candidate."""
    best = rank(results).best
    curve: list[float | None] = []
    so_far: float | None = None
    for result in results:
        value = result.tokens_per_s_per_gpu
        if best is not None and result.fidelity == best.fidelity and is_candidate(result) and value is not None:
            so_far = value if so_far is None else max(so_far, value)
        curve.append(so_far)
    return curve
