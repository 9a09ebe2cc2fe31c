"""The scores as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from primus_mcp.validation.constants import Audit, audit
from primus_mcp.validation.groups import Group, grouped, ladders
from primus_mcp.validation.refit import LeftOut, mean_of
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


def audit_line(found: Audit) -> str:
    """How many constants runs set."""
    engine = sum(constant.of_engine for constant in found.fitted)
    return (
        f"constants set against whole runs: {engine} of the engine, {len(found.fitted) - engine} rates of GPUs, "
        f"of {found.total} constants (catalogue, fitted_on)"
    )


def report(scored: Sequence[Scored], *, rows: bool = True) -> str:
    """The whole report."""
    lines = row_lines(scored) if rows else []
    lines += [*table_lines(scored), "", *skipped_lines(scored), *assumption_lines(scored)]
    lines.append(audit_line(audit()))
    return "\n".join(lines).strip()


def leave_out_report(found: Sequence[LeftOut]) -> str:
    """One line a family, the mean over families of each vendor, then the two halves of its families, each scored by the other."""
    lines = [f"{'left out':46} {'vendor':7} {'conf.':>5} {'others':>6} {'shipped':>8} {'bias':>7} {'blind':>7} {'bias':>7}   refitted"]

    def line(name: str, vendor: str, counts: str, own: Sequence[LeftOut], moved: str) -> str:
        figures = [mean_of(own, "shipped"), mean_of(own, "shipped_bias"), mean_of(own, "refitted"), mean_of(own, "refitted_bias")]
        texts = (f"{_percent(value, sign=bool(i % 2)):>7}" for i, value in enumerate(figures))
        return f"{name:46} {vendor:7} {counts}  {' '.join(texts)}   {moved}"

    for item in found:
        moved = f"{len(item.constants)} constants" if item.constants else "none saw it"
        lines.append(line(", ".join(item.families)[:46], item.vendor, f"{item.configurations:5} {item.fitted_on:6}", [item], moved))
    for vendor in sorted({item.vendor for item in found}):
        for title, own in (
            ("mean of families left out in turn", [item for item in found if item.vendor == vendor and len(item.families) == 1]),
            ("mean of halves, each blind of itself", [item for item in found if item.vendor == vendor and len(item.families) > 1]),
        ):
            if len(own) > 1:
                lines.append(line(title, vendor, f"{sum(item.configurations for item in own):5} {'':6}", own, ""))
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
    found_constants = audit()
    return {
        "rows": rows,
        "groups": groups,
        "ladders": [asdict(ladder) for ladder in ladders(scored)],
        "skipped": dict(Counter(item.skipped_reason for item in scored if item.skipped_reason)),
        "free_constants": [{"name": constant.name, "fitted_on": list(constant.families)} for constant in found_constants.fitted],
    }
