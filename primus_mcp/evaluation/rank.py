"""Which trial is best: one fidelity class at a time, inside the memory margin, and not at risk for a trifle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from primus_mcp.evaluation.result import EvaluationResult, Fidelity

FIDELITIES: tuple[Fidelity, ...] = ("synthetic", "heuristic", "simulate", "primus", "benchmark")
"""Lowest class first; throughputs of two classes are never compared."""

AT_RISK_TOLERANCE = 0.03
"""A configuration whose upper memory bound exceeds the GPU wins only over safe ones that are slower by more than this share."""


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


def is_candidate(result: EvaluationResult) -> bool:
    """Legal, inside the margin, with a throughput, and runnable as priced."""
    return result.legal and result.within_margin is True and result.tokens_per_s_per_gpu is not None and not is_what_if(result)


def _order(result: EvaluationResult) -> tuple[float, float, int]:
    """Fastest first; equal speed: less memory, then the earlier trial."""
    memory = result.memory_per_gpu_gb if result.memory_per_gpu_gb is not None else 0.0
    return (-(result.tokens_per_s_per_gpu or 0.0), memory, result.trial_id if result.trial_id is not None else 0)


def ordered(results: Sequence[EvaluationResult], fidelity: Fidelity) -> list[EvaluationResult]:
    """Candidates of one class, fastest first."""
    return sorted((result for result in results if result.fidelity == fidelity and is_candidate(result)), key=_order)


def _winner(candidates: list[EvaluationResult]) -> tuple[EvaluationResult, str | None]:
    fastest = candidates[0]
    if fastest.fits_physically != "at_risk":
        return fastest, None
    upper = f"{fastest.memory_upper_gb:.1f} GB" if fastest.memory_upper_gb is not None else "its upper bound"
    safe = next((result for result in candidates if result.fits_physically == "fits"), None)
    if safe is None:
        return fastest, f"at risk: memory may reach {upper}, more than the GPU has; no trial is surely inside"
    share = (safe.tokens_per_s_per_gpu or 0.0) / (fastest.tokens_per_s_per_gpu or 1.0)
    if share >= 1 - AT_RISK_TOLERANCE:
        return safe, f"trial #{fastest.trial_id} is {1 / share - 1:.1%} faster but at risk: its memory may reach {upper}"
    return (
        fastest,
        f"at risk: memory may reach {upper}, more than the GPU has; the fastest safe trial, #{safe.trial_id}, is {1 - share:.1%} slower",
    )


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
