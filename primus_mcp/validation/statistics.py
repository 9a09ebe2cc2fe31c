"""Error statistics of a list of scored figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from statistics import mean, median

from primus_mcp.validation.score import Scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Fractions. `figures` counts configurations, `rows` the rows behind them; a configuration's error is the median of its rows'."""

    figures: int
    rows: int
    mape: float | None
    median: float | None
    p90: float | None
    bias: float | None
    worst: float | None
    verdicts_right: int
    verdicts_wrong: int
    at_risk: int


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def by_configuration(scored: Sequence[Scored]) -> Mapping[str, list[Scored]]:
    """Figures by the id of the first row of their configuration."""
    found: dict[str, list[Scored]] = defaultdict(list)
    for item in scored:
        if item.skipped_reason is None:
            found[item.same_as or item.row.id].append(item)
    return found


def statistics(scored: Sequence[Scored]) -> Statistics:
    """Statistics over distinct configurations; skipped rows are left out."""
    groups = by_configuration(scored)
    errors = []
    for items in groups.values():
        own = [item.error_fraction for item in items if item.error_fraction is not None]
        if own:
            errors.append(median(own))
    sizes = [abs(error) for error in errors]
    verdicts = [items[0] for items in groups.values() if items[0].verdict is not None]
    wrong = sum(bool(item.verdict_is_wrong) for item in verdicts)
    return Statistics(
        figures=len(groups),
        rows=sum(map(len, groups.values())),
        mape=mean(sizes) if sizes else None,
        median=median(sizes) if sizes else None,
        p90=percentile(sizes, 0.9) if sizes else None,
        bias=mean(errors) if errors else None,
        worst=max(errors, key=abs) if errors else None,
        verdicts_right=len(verdicts) - wrong,
        verdicts_wrong=wrong,
        at_risk=sum(item.verdict == "at_risk" for item in verdicts),
    )


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of their ranks."""
    ordered = sorted(values)
    return [(ordered.index(value) + 1 + len(ordered) - ordered[::-1].index(value)) / 2 for value in values]


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Rank correlation; None where one side is constant."""
    a, b = _ranks(first), _ranks(second)
    mean_a, mean_b = mean(a), mean(b)
    spread = sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))
    if spread == 0:
        return None
    return sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)) / spread
