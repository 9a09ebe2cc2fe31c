"""The sweep, its front and its sensitivity as plain functions with checked arguments and short answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from primus_mcp.errors import InputError
from primus_mcp.evaluation.evaluators import Evaluator, FullEvaluator
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.inputs.cluster_file import StatedPrice
from primus_mcp.search.pareto import FrontPoint, front_point
from primus_mcp.search.prices import price_of
from primus_mcp.search.sensitivity import SWING, Allowed, Sensitivity, sensitivity
from primus_mcp.search.sweep import Progress, condition_values, sweep
from primus_mcp.search.sweep_choices import AT_REST
from primus_mcp.search.sweep_result import SweepResult
from primus_mcp.search.sweep_where import parse_where
from primus_mcp.space.knobs import KNOBS, TrialConfig, knob_values, set_knobs
from primus_mcp.space.parsing import suggest_knob

MAX_TOP = 20
RIVALS = 4
"""Configurations besides a winner that its sensitivity is told against."""
LEVELS = (0.9, 0.8, 0.7, 0.6, 0.5)
"""Shares of the memory cap under each of which the front looks for the fastest configuration."""


def analytic(evaluator: Evaluator) -> FullEvaluator:
    """The same evaluator. Raises InputError for one that measures, or that does not project time."""
    if not isinstance(evaluator, FullEvaluator) or evaluator.fidelity != "simulate":
        raise InputError(
            "only a simulated evaluator can be swept", where="sweep", remedy="start with --mode full, without --profiling-mode"
        )
    return evaluator


def check_axes(evaluator: FullEvaluator, axes: Sequence[str]) -> None:
    """A knob that cannot move would silently be held: it is refused with the reason."""
    rules = evaluator.rules
    for name in axes:
        if name not in KNOBS:
            raise InputError(f"there is no knob {name!r}", where="axes", remedy=suggest_knob(name))
        knob = KNOBS[name]
        reason = None
        if name in rules.pins:
            reason = "it is pinned"
        elif knob.axis is not None and not rules.axes.get(knob.axis, True):
            reason = f"its axis is off; `optimization: {{axes: {{{knob.axis}: true}}}}` in the cluster YAML switches it on"
        elif name in AT_REST:
            reason = "a sweep holds it"
        elif knob.moe_only and not evaluator.workload.architecture.is_moe:
            reason = "the model has no experts"
        if reason is not None:
            raise InputError(f"{name} cannot move: {reason}", where="axes", remedy="leave it out")


def sweep_space(
    evaluator: Evaluator,
    *,
    axes: Sequence[str] = (),
    where: str = "",
    top: int = 5,
    levels: Sequence[float] = (),
    progress: Progress | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> SweepResult:
    """The fastest configurations of the whole legal space. `axes`: knobs that may move; none named: all of the session.

    Raises InputError for a knob that is unknown or cannot move, a bad condition or an evaluator that measures.
    """
    full = analytic(evaluator)
    check_axes(full, axes)
    if not 1 <= top <= MAX_TOP:
        raise InputError(f"{top} is not between 1 and {MAX_TOP}", where="top")
    return sweep(full, only=axes or None, where=where or None, top=top, levels=levels, progress=progress, should_stop=should_stop)


def cluster_points(
    evaluator: Evaluator, result: SweepResult, *, price: StatedPrice | float | None = None, target_tokens: float | None = None
) -> list[FrontPoint]:
    """What a cluster offers: the fastest under each memory level that was swept for, else the fastest; with days and dollars.

    `price`: USD a GPU hour, else the catalogue's.
    """
    cluster = evaluator.cluster
    known = price_of(cluster.gpu.name, price)
    return [front_point(one, cluster, known, target_tokens) for one in (result.by_memory or result.top[:1])]


def asked_for(evaluator: FullEvaluator, axes: Sequence[str], where: str) -> Allowed:
    """Whether a priced configuration lies in what a sweep with these arguments looks at."""
    condition, own, pins = parse_where(where or None), knob_values(evaluator.workload.baseline), evaluator.rules.pins

    def allowed(trial: TrialConfig, result: EvaluationResult) -> bool:
        moved = {name for name, value in set_knobs(trial).items() if value != own.get(name)} - set(pins)
        return (not axes or moved <= set(axes)) and condition.holds(condition_values(trial, result, evaluator))

    return allowed


def sureness(
    evaluator: Evaluator,
    trial: TrialConfig,
    *,
    rivals: Sequence[TrialConfig] = (),
    axes: Sequence[str] = (),
    where: str = "",
    swing: float = SWING,
) -> Sensitivity:
    """See `sensitivity`; nothing outside of `axes` and `where` is recommended. Raises InputError where the configuration does not run."""
    full = analytic(evaluator)
    legality = full.rules.check(trial)
    if not legality.legal:
        raise InputError(f"this configuration is illegal: {legality.reason}", where="trial")
    return sensitivity(full, trial, rivals=rivals, allowed=asked_for(full, axes, where), swing=swing)


def sureness_answer(evaluator: Evaluator, found: Sensitivity, *, shown: int = 8) -> dict[str, Any]:
    """A sensitivity in one or two kilobytes: throughput relative to the configuration's own."""
    base, own = found.tokens_per_s_per_gpu, knob_values(evaluator.workload.baseline)
    centre = {**own, **found.trial}
    steps = [step for step in found.steps[:shown] if step.ratio is not None]
    changed = [{name: value for name, value in {**own, **step.trial}.items() if value != centre.get(name)} for step in steps]
    return {
        "summary": found.text.splitlines(),
        "one_step": [{"step": step.label, "change": change, "throughput": step.ratio} for step, change in zip(steps, changed, strict=True)],
        "rates": [{"rate": swing.what, "lower": swing.low / base, "higher": swing.high / base} for swing in found.swings[:shown]],
        "rates_moved_by": found.swing,
    }


def with_rivals(line: str, names: Sequence[str]) -> str:
    """A line of a sensitivity's words, its rivals called by these names and the centre `this one`."""
    named = re.sub(r"\brival (\d+)\b", lambda found: names[int(found[1]) - 1], line)
    return named.replace("the winner", "this one")
