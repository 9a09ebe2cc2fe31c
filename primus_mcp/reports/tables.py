"""Tables for a terminal: the trials, fastest first, and why nothing was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from primus_mcp.evaluation.rank import FIDELITIES, is_candidate, is_outside_policy, ordered, rank
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.part_words import part_text
from primus_mcp.space.knobs import schedule_text
from primus_mcp.trials.log import TrialRecord

DEFAULT_ROWS = 12
SIZES = ("tp", "pp", "ep", "cp", "vpp", "mbs")
SIZES_HEADING = "TP/PP/EP/CP/VPP/MBS"


def plain(text: str) -> str:
    """One line that a terminal shows as it is, whoever wrote it."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _degrees(resolved: dict[str, Any]) -> str:
    text = f"TP{resolved['tp']} PP{resolved['pp']} EP{resolved['ep']} CP{resolved['cp']}"
    return text + (f" VPP{resolved['vpp']}" if resolved["vpp"] > 1 else "")


def _recompute(resolved: dict[str, Any]) -> str:
    number = resolved["recompute_num_layers"]
    return str(resolved["recompute_granularity"]) + (f" {number}" if number is not None else "")


def _levers(resolved: dict[str, Any]) -> str:
    """The precision and the expert exchange in a word each; BF16 and the library exchange are not named."""
    words = []
    if resolved["fp8"] is not None:
        words.append("MXFP8" if resolved["fp8_recipe"] == "mxfp8" else "FP8")
    if resolved["dispatcher"] == "deepep":
        words.append("DeepEP")
    if resolved["sync_free_stage"]:
        words.append(f"sync-free {resolved['sync_free_stage']}")
    if resolved["use_torch_fsdp2"]:
        words.append("FSDP2")
    return ", ".join(words) or "-"


def verdict(result: EvaluationResult) -> str:
    """One word or two on what became of a trial; empty: its memory is not known."""
    return result.verdict or ""


def ranked(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The best first, then the candidates by class and speed, then the rest by id."""
    by_id = {record.trial_id: record for record in records}
    results = [record.result for record in records]
    best = rank(results).best
    order = [result.trial_id for fidelity in reversed(FIDELITIES) for result in ordered(results, fidelity)]
    if best is not None:
        order = [best.trial_id, *(number for number in order if number != best.trial_id)]
    rest = [record.trial_id for record in records if not is_candidate(record.result)]
    return [by_id[number] for number in [*order, *rest] if number is not None]


def _cells(record: TrialRecord) -> tuple[str, ...]:
    """What the table shows of a trial between its number and its words."""
    result, resolved = record.result, record.result.resolved
    return (
        "-" if result.tokens_per_s_per_gpu is None else f"{result.tokens_per_s_per_gpu:,.0f}",
        "-" if result.memory_per_gpu_gb is None else f"{result.memory_per_gpu_gb:.1f}",
        f"{verdict(result)}, policy" if is_outside_policy(result) else verdict(result),
        "/".join(str(resolved[name]) for name in SIZES) if resolved else "-",
        *((_recompute(resolved), schedule_text(str(resolved["schedule"])), _levers(resolved)) if resolved else ("-", "-", "-")),
    )


def _folded(order: Sequence[TrialRecord]) -> list[tuple[tuple[str, ...], list[TrialRecord]]]:
    """Trials that run and that the table cannot tell apart share a row, at the place of the first."""
    rows: dict[object, tuple[tuple[str, ...], list[TrialRecord]]] = {}
    for record in order:
        cells = _cells(record)
        key = cells if record.result.resolved else record.trial_id
        rows.setdefault(key, (cells, []))[1].append(record)
    return list(rows.values())


def _differing(first: TrialRecord, other: TrialRecord) -> list[str]:
    """Knobs that both set otherwise, and fields of what they resolve to that are not equal."""
    knobs = [name for name, value in other.trial.items() if name in first.trial and first.trial[name] != value]
    own = first.result.resolved or {}
    return [*knobs, *(name for name, value in (other.result.resolved or {}).items() if name not in other.trial and own.get(name) != value)]


def _words(records: Sequence[TrialRecord]) -> str:
    """The first one's label; of others that share its row their numbers and the knobs in which they differ."""
    first, *others = records
    if not others:
        return plain(first.label)
    names = dict.fromkeys(name for other in others for name in _differing(first, other))
    differ = f" (other {', '.join(names)})" if names else ""
    return f"{plain(first.label)}; alike: {', '.join(f'#{other.trial_id}' for other in others)}{differ}"


def trials_table(records: Sequence[TrialRecord], rows: int = DEFAULT_ROWS) -> Table:
    """The first `rows` rows of the ranking; what the trials try stands last, and a narrow terminal cuts that."""
    found = _folded(ranked(records))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False, expand=True)
    for heading, right in (("#", True), ("tokens/s/GPU", True), ("GB/GPU", True), ("verdict", False), (SIZES_HEADING, False)):
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for heading in ("recompute", "schedule", "levers"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what", no_wrap=True, overflow="ellipsis", ratio=1)
    for cells, alike in found[:rows]:
        count = f", {len(alike)} alike" if len(alike) > 1 else ""
        table.add_row(str(alike[0].trial_id), *cells[:-1], cells[-1] + count, Text(_words(alike)))
    if more := sum(len(alike) for _, alike in found[rows:]):
        table.caption, table.caption_justify = f"{more} more in trials.jsonl", "left"
    return table


def refusals(results: Sequence[EvaluationResult]) -> list[tuple[str, int, str]]:
    """(rule, how many trials it refused, the reason of one that the fewest rules refused), the most frequent first."""
    counts: Counter[str] = Counter()
    example: dict[str, str] = {}
    for result in sorted((result for result in results if not result.legal), key=lambda result: len(result.refused_by)):
        for rule in result.refused_by:
            counts[rule] += 1
            example.setdefault(rule, result.reason or "")
    return [(rule, count, example[rule]) for rule, count in counts.most_common()]


def closest_to_fit(results: Sequence[EvaluationResult]) -> EvaluationResult | None:
    """The legal trial that needs the least memory, among those that do not fit."""
    over = [result for result in results if result.legal and result.within_margin is False and result.memory_per_gpu_gb is not None]
    return min(over, key=lambda result: result.memory_per_gpu_gb or 0.0, default=None)


def reasons_text(
    results: Sequence[EvaluationResult], cap_gb: float, hbm_gb: float, change: str | None = None, nodes: str | None = None
) -> str:
    """What to print when no trial can be recommended: counts a rule, how much the closest lacks, the `change` that makes it fit, and how
    many `nodes` are enough.
    """
    if not results:
        return "no legal trial found\n  0 tried\n  remedies: --seed-budget N above 0, or leave out --seed-only"
    illegal = sum(not result.legal for result in results)
    over = sum(result.legal and result.within_margin is False for result in results)
    lines = ["no legal trial found", f"  {len(results)} tried: {illegal} illegal, {over} need more memory than {cap_gb:.1f} GB/GPU"]
    lines += [f"  {count} x {rule}: {reason}" for rule, count, reason in refusals(results)]
    closest = closest_to_fit(results)
    if closest is not None and closest.memory_per_gpu_gb is not None and closest.resolved is not None:
        lacking = closest.memory_per_gpu_gb - cap_gb
        what = f"{_degrees(closest.resolved)} MBS{closest.resolved['mbs']} recompute {_recompute(closest.resolved)}"
        lines.append(f"  closest: trial #{closest.trial_id} ({what}) needs {closest.memory_per_gpu_gb:.1f} GB, {lacking:.1f} GB too much")
        largest = max((closest.memory_breakdown or {}).items(), key=lambda item: item[1], default=None)
        if largest is not None:
            lines.append(f"  its largest part is {part_text(largest[0])}: {largest[1]:.1f} GB")
        lines.append(f"  it would fit with {change}" if change else "  no single knob or pair of knobs that was checked makes it fit")
    lines += [f"  {nodes}"] if nodes else []
    return "\n".join([*lines, f"  remedies: {_remedies(closest, hbm_gb)}"])


def _remedies(closest: EvaluationResult | None, hbm_gb: float) -> str:
    """What a user can change; a lower margin only where it would be enough."""
    if closest is None or closest.memory_per_gpu_gb is None:
        return "another cluster size, more axes set to true, or --allow-policy where only a policy refuses"
    if closest.memory_per_gpu_gb <= hbm_gb:
        enough = int((1 - closest.memory_per_gpu_gb / hbm_gb) * 100) / 100
        return f"memory_safety_margin {enough:.2f} or lower, at the risk of running out of memory; more nodes"
    return "more nodes, more axes set to true, or hbm_capacity_gb if these GPUs have more"
