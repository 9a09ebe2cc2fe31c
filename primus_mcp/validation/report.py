"""The scores as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from primus_mcp.validation.constants import free_constants
from primus_mcp.validation.groups import Group, grouped, ladders
from primus_mcp.validation.refit import LeftOut
from primus_mcp.validation.score import Scored
from primus_mcp.validation.statistics import Statistics

UNITS = {"time": "tokens/s/GPU", "memory": "GB"}
_HEADER = f"{'':38} {'conf.':>5} {'rows':>5} {'MAPE':>7} {'median':>7} {'p90':>7} {'bias':>7} {'worst':>7}"


def _percent(value: float | None, *, sign: bool = False) -> str:
    if value is None:
        return "-"
    return f"{100 * value:{'+' if sign else ''}.1f}%" if abs(value) >= 0.001 or value == 0 else f"{100 * value:{'+' if sign else ''}.2f}%"


def group_line(group: Group, found: Statistics) -> str:
    """One line of the table."""
    figures = [_percent(found.mape), _percent(found.median), _percent(found.p90), _percent(found.bias, sign=True)]
    line = f"{group.name:38} {found.figures:5} {found.rows:5} " + " ".join(f"{text:>7}" for text in figures)
    line += f" {_percent(found.worst, sign=True):>7}"
    if found.verdicts_right + found.verdicts_wrong:
        line += f"   verdicts {found.verdicts_right} right, {found.verdicts_wrong} wrong, {found.at_risk} at risk"
    return line


def row_lines(scored: Sequence[Scored]) -> list[str]:
    """Every prediction, worst first, then runs out of memory."""
    compared = [item for item in scored if item.error_fraction is not None]
    lines = []
    for item in sorted(compared, key=lambda found: -abs(found.error_fraction or 0.0)):
        unit = f"{UNITS[item.what]}" + (f" {item.counter}" if item.counter else "")
        numbers = f"{item.predicted:10,.1f} against {item.measured:10,.1f} {unit}"
        verdict = f"  {item.verdict}" if item.verdict else ""
        same = f"  (as {item.same_as})" if item.same_as else ""
        lines.append(f"{_percent(item.error_fraction, sign=True):>7} {numbers}{verdict}  {item.row.id}{same}")
    for item in scored:
        if item.row.ran_out_of_memory and item.predicted is not None:
            lines.append(f"    OOM {item.predicted:10,.1f} GB predicted  {item.verdict}  {item.row.id}")
    return lines


def table_lines(scored: Sequence[Scored]) -> list[str]:
    """Groups of time, ladders, groups of memory."""
    lines: list[str] = []
    groups = grouped(scored)
    for what, title in (("time", "TIME, error of tokens/s/GPU (+ is too fast)"), ("memory", "MEMORY, error of GB of the worst rank")):
        own = [(group, found) for group, found in groups.items() if group.what == what]
        if not own:
            continue
        lines += ["", title, _HEADER, *(group_line(group, found) for group, found in own)]
        if what == "time" and (found_ladders := ladders(scored)):
            lines += [f"order of {ladder.name}: Spearman {ladder.spearman:.2f} over {ladder.rows} runs" for ladder in found_ladders]
    return lines


def skipped_lines(scored: Sequence[Scored]) -> list[str]:
    """Reasons, most frequent first."""
    reasons = Counter((item.what, item.skipped_reason) for item in scored if item.skipped_reason)
    return [f"skipped {count:3} ({what}): {reason}" for (what, reason), count in reasons.most_common()]


def assumption_lines(scored: Sequence[Scored]) -> list[str]:
    """What was assumed, with the number of figures that rest on it."""
    counts = Counter(text for item in scored if item.skipped_reason is None for text in item.assumptions)
    return [f"assumed in {count:3}: {text}" for text, count in counts.most_common()]


def report(scored: Sequence[Scored], *, rows: bool = True) -> str:
    """The whole report."""
    free = free_constants()
    lines = row_lines(scored) if rows else []
    lines += [*table_lines(scored), "", *skipped_lines(scored), *assumption_lines(scored)]
    lines.append(f"constants set against whole runs: {len(free.engine)} of the engine, {len(free.hardware)} rates of GPUs")
    return "\n".join(lines).strip()


def leave_out_report(found: Sequence[LeftOut]) -> str:
    """One line a family, then the mean over configurations of each vendor."""
    lines = [f"{'family left out':24} {'vendor':8} {'conf.':>5} {'fitted on':>9} {'shipped':>8} {'refitted':>9}   scales of the refit"]
    for item in found:
        scales = ", ".join(f"{name} {value:.2f}" for name, value in item.scales.items() if value != 1.0) or "none moved"
        numbers = f"{item.configurations:5} {item.fitted_on:9} {_percent(item.shipped):>8} {_percent(item.refitted):>9}"
        lines.append(f"{item.family:24} {item.vendor:8} {numbers}   {scales}")
    for vendor in sorted({item.vendor for item in found}):
        own = [item for item in found if item.vendor == vendor]
        total = sum(item.configurations for item in own)
        shipped, refitted = (sum(getattr(item, name) * item.configurations for item in own) / total for name in ("shipped", "refitted"))
        lines.append(f"{'all of them':24} {vendor:8} {total:5} {'':9} {_percent(shipped):>8} {_percent(refitted):>9}")
    return "\n".join(lines)


def document(scored: Sequence[Scored]) -> dict[str, Any]:
    """`rows` and `groups`, for JSON. Time in tokens/s/GPU, memory in GB of 2**30 bytes."""
    rows: list[Mapping[str, Any]] = [
        {
            "id": item.row.id,
            "what": item.what,
            "measured": item.measured,
            "predicted": item.predicted,
            "error_fraction": item.error_fraction,
            "verdict": item.verdict,
            "skipped_reason": item.skipped_reason,
            "assumptions": list(item.assumptions),
        }
        for item in scored
    ]
    groups = {f"{group.what}: {group.name}": asdict(found) for group, found in grouped(scored).items()}
    free = free_constants()
    return {
        "rows": rows,
        "groups": groups,
        "ladders": [asdict(ladder) for ladder in ladders(scored)],
        "skipped": dict(Counter(item.skipped_reason for item in scored if item.skipped_reason)),
        "free_constants": asdict(free),
    }
