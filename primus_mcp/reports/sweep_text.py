"""A sweep's result as text for the terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any

from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.best import band_text
from primus_mcp.reports.part_words import deciding_warnings
from primus_mcp.reports.rule_titles import rule_title
from primus_mcp.search.pareto import FrontPoint
from primus_mcp.search.sensitivity import Sensitivity, Swing
from primus_mcp.search.sweep_result import SweepResult, SweptTrial
from primus_mcp.space.knobs import knob_text, schedule_text

SHOWN_RULES = 8
_STOPPED = {"cancelled": "ended by its time limit or cancelled"}
_PLACED = frozenset({"tp", "pp", "ep", "cp", "vpp", "mbs", "gbs", "pp_schedule", "recompute_granularity", "recompute_num_layers"})
_RESTING: Mapping[str, Any] = {"use_torch_fsdp2": False, "sync_free_stage": 0, "fp8": "none", "expert_tensor_parallel_size": 1}


def _words(result: EvaluationResult, trial: Mapping[str, Any]) -> dict[str, str]:
    """What is said of each part of a configuration."""
    c = result.resolved or {}
    layers = f"/{c['recompute_num_layers']}" if c.get("recompute_granularity") == "full" else ""
    words = {name: f"{name.upper()}{c.get(name)}" for name in ("tp", "pp", "ep", "cp", "vpp", "mbs", "gbs")}
    words["schedule"] = schedule_text(str(c.get("schedule")))
    words["recompute"] = f"recompute {c.get('recompute_granularity')}{layers}"
    return words | {name: f"{name}={knob_text(value)}" for name, value in trial.items() if name not in _PLACED}


def _is_at_rest(name: str, trial: Mapping[str, Any]) -> bool:
    return name in _RESTING and trial.get(name) == _RESTING[name]


def configuration_text(result: EvaluationResult, trial: Mapping[str, Any]) -> str:
    """`TP1 PP4 EP8 CP1 VPP5 MBS1 interleaved_1f1b recompute none; fp8 hybrid ...` on one line."""
    words = _words(result, trial)
    head = " ".join(word for name, word in words.items() if name not in trial or name in _PLACED)
    rest = " ".join(word for name, word in words.items() if name in trial and name not in _PLACED and not _is_at_rest(name, trial))
    return f"{head}; {rest}" if rest else head


def difference_text(point: FrontPoint, first: FrontPoint) -> str:
    """The parts of a configuration that are not the first's; a knob that only the first sets is the workload's own."""
    before, now = _words(first.result, first.trial), _words(point.result, point.trial)
    changed = [
        word for name, word in now.items() if before.get(name) != word and not (name not in before and _is_at_rest(name, point.trial))
    ]
    left = [f"{name} as the workload has it" for name in before if name not in now and not _is_at_rest(name, first.trial)]
    return " ".join([*changed, *left])


def proof_text(result: SweepResult) -> str:
    """What the sweep can say about its best."""
    if not result.top:
        return (
            f"not proven: nothing was found before the sweep was {_STOPPED.get(result.stopped, result.stopped)}"
            if result.stopped
            else "nothing legal fits" + (f" and meets --where {result.where!r}" if result.where else "")
        )
    if result.disagreements:
        return (
            f"NOT proven: {len(result.disagreements)} of {result.checked_points} random configurations are judged otherwise by the rules "
            f"themselves, for example {result.disagreements[0]}: please report it"
        )
    if result.proven:
        what = f"the first {len(result.top)} are" if result.top_proven and len(result.top) > 1 else "the first is"
        space = f"all {result.counts.legal:,} legal configurations" + (" of the knobs that moved" if result.only else "")
        space += f" that meet {result.where!r}" if result.where else ""
        return f"proven under the model: {what} the fastest of {space}"
    gap = f"; an open configuration could be up to {result.gap:.1%} faster" if result.gap else ""
    gap = "; what it did not look at could be any faster" if result.gap is None else gap
    stopped = result.stopped or "cut"
    return f"not proven: the sweep was {_STOPPED.get(stopped, stopped)}{gap}"


def counts_text(result: SweepResult) -> list[str]:
    """Where every configuration went."""
    c = result.counts
    lines = [f"{c.size:,} combinations, {c.legal:,} legal" + ("; refused by rule:" if c.fallen else "")]
    shown = list(c.fallen.items())[:SHOWN_RULES]
    lines += [f"  {count:>15,}  {rule_title(rule)}" for rule, count in shown]
    if len(c.fallen) > SHOWN_RULES:
        lines.append(f"  {sum(list(c.fallen.values())[SHOWN_RULES:]):>15,}  {len(c.fallen) - SHOWN_RULES} other rules")
    limit = "cap or that of --where" if "memory_per_gpu_gb" in (result.where or "") else "cap"
    parts = [f"{c.slower:,} slower by their bound", f"{c.over_memory:,} over the memory {limit}", f"{c.priced:,} priced one by one"]
    parts += [f"{c.excluded:,} excluded by --where"] if c.excluded else []
    parts += [f"{c.open:,} left open"] if c.open else []
    return [*lines, "of the legal: " + ", ".join(parts)]


def note_text(result: SweepResult) -> str:
    """The note of a recommendation with places counted from one, as lines are."""
    return re.sub(r"#(\d+)", lambda match: f"number {int(match[1]) + 1}", result.note or "")


def ties_text(result: SweepResult) -> str:
    """Empty where the first is faster than all others."""
    return f"{result.ties} configurations are equally fast; the one with the least memory stands first" if result.ties > 1 else ""


def lines_of(top: Sequence[SweptTrial]) -> list[list[int]]:
    """Places of the top by line: neighbours that are equal but for the FP8 format, at the same throughput and memory, share one."""
    lines: list[list[int]] = []
    for place, one in enumerate(top):
        first = top[lines[-1][0]] if lines else None
        if first is not None and "fp8" in first.trial and "fp8" in one.trial and _but_for_format(first) == _but_for_format(one):
            lines[-1].append(place)
        else:
            lines.append([place])
    return lines


def _but_for_format(one: SweptTrial) -> tuple[object, ...]:
    return one.result.tokens_per_s_per_gpu, one.result.memory_per_gpu_gb, {**one.trial, "fp8": None}


def line_words(result: SweepResult, places: Sequence[int]) -> tuple[str, str]:
    """(`1-2.`, the configuration) of a line, with a mark where one that is not the first is recommended."""
    first = result.top[places[0]]
    trial = dict(first.trial)
    if len(places) > 1:
        trial["fp8"] = " or ".join(str(result.top[place].trial["fp8"]) for place in places)
    mark = " <- recommended" if result.recommended in places and 0 not in places else ""
    number = f"{places[0] + 1}." if len(places) == 1 else f"{places[0] + 1}-{places[-1] + 1}."
    return number, configuration_text(first.result, trial) + mark


def sweep_text(result: SweepResult) -> str:
    """The whole answer."""
    lines = [f"=== SWEEP of {result.workload} on {result.cluster} ({result.gpus} GPUs) ===", *counts_text(result)]
    rate = result.counts.legal / result.cpu_s if result.cpu_s else 0.0
    lines.append(f"{result.wall_s:.1f} s ({result.cpu_s:.1f} s of CPU, {rate:,.0f} legal configurations a CPU second)")
    for places in lines_of(result.top):
        r, number, what = result.top[places[0]].result, *line_words(result, places)
        lines.append(f"{number:>6} {r.tokens_per_s_per_gpu:>8,.0f} tokens/s/GPU {r.memory_per_gpu_gb:>6.1f} GB  {what}")
    lines += [*filter(None, (ties_text(result), note_text(result))), proof_text(result)]
    lines += [result.more_nodes] if result.more_nodes else []
    return "\n".join([*lines, *_about_the_choice(result)]) + "\n"


def chosen_of(result: SweepResult) -> SweptTrial | None:
    """The configuration to run: the recommended one, else the first."""
    return result.top[result.recommended or 0] if result.top else None


def _about_the_choice(result: SweepResult) -> list[str]:
    """Band, accuracy, and what can turn the choice over, of the configuration to run."""
    chosen = chosen_of(result)
    if chosen is None:
        return []
    which = "the recommended" if result.recommended else "the first"
    band, confidence = band_text(chosen.result), chosen.result.confidence
    lines = [f"band of {which}: {band}"] if band else []
    lines += [f"accuracy: {confidence}"] if confidence else []
    return [*lines, *(f"note on {which}: {text}" for text in deciding_warnings(chosen.result))]


SHOWN_STEPS, SHOWN_REASON = 12, 110
LEAST_MOVE = 0.0005
"""Of the throughput: what an uncertain figure moves less is named without its +0.0%."""


def sensitivity_text(found: Sensitivity) -> str:
    """Steps, swings and the recommendation."""
    lines = [f"=== HOW SURE: {found.tokens_per_s_per_gpu:,.0f} tokens/s/GPU ===", "one step away:"]
    for step in found.steps[:SHOWN_STEPS]:
        rate = step.outcome if step.ratio is None else f"{step.ratio - 1:+.1%}"
        why = (
            f": {shorten(step.reason.removeprefix('policy: '), SHOWN_REASON)}"
            if step.outcome in ("policy", "illegal") and step.reason
            else ""
        )
        lines.append(f"  {rate:>13}  {step.label}{why}")
    if len(found.steps) > SHOWN_STEPS:
        lines.append(f"  {len(found.steps) - SHOWN_STEPS} more in --json")
    base = found.tokens_per_s_per_gpu
    rates = f"each uncertain rate at -{100 * found.swing:.3g}% and +{100 * found.swing:.3g}%:"
    for title, ranged in ((rates, False), ("constants over the range that the catalogue states:", True)):
        asked = [swing for swing in found.swings if swing.name.startswith("range ") == ranged]
        shown = [swing for swing in asked if _moves(swing, base)]
        lines += [title] if asked else []
        lines += [f"  {swing.low / base - 1:+8.1%} {swing.high / base - 1:+8.1%}  {swing.what}" for swing in shown]
        still = [swing.what for swing in asked if swing not in shown]
        lines += [f"  moved by less than {LEAST_MOVE:.2%}, or not used by this configuration: {', '.join(still)}"] if still else []
    return "\n".join([*lines, found.text])


def _moves(swing: Swing, base: float) -> bool:
    return max(abs(swing.low / base - 1), abs(swing.high / base - 1)) >= LEAST_MOVE


SHOWN_POINTS, SHOWN_DIFFERENCE = 12, 72
"""Rows of the front on a terminal, and characters of what differs; all of it stands in --json, sweep.json and the report."""
_FRONT_HEADS = ("nodes", "GPU", "tokens/s/GPU", "GB free", "MFU", "$/Mtoken", "days")


def front_text(front: Sequence[FrontPoint]) -> str:
    """The points that none other beats in every respect as a table: the first whole, of the others what differs from it. Where there are
    too many, the fastest of every cluster stay, then the fastest.
    """
    shown = _shown_points(front)
    rows = [_FRONT_HEADS, *(_front_cells(point) for point in shown)]
    kept = [place for place in range(len(_FRONT_HEADS)) if any(row[place] for row in rows[1:])]
    widths = {place: max(len(row[place]) for row in rows) for place in kept}
    words = ["configuration", *(_front_configuration(point, front[0]) for point in shown)]
    lines = ["=== PARETO FRONT: speed, memory headroom, MFU, $/Mtoken, GPUs ==="]
    for row, what in zip(rows, words, strict=True):
        lines.append("  " + "  ".join([*(f"{row[place]:>{widths[place]}}" for place in kept), what]))
    if len(shown) < len(front):
        lines.append(f"  {len(front) - len(shown)} more points in --json and in the report of --out-dir")
    sources = sorted({f"{point.gpu}: {point.price_source}" for point in front if point.price_source})
    return "\n".join([*lines, *(f"  price of {source}" for source in sources)])


def _shown_points(front: Sequence[FrontPoint]) -> list[FrontPoint]:
    first_of = {(point.gpu, point.nodes): point for point in reversed(front)}
    order = [*first_of.values(), *(point for point in front if point is not first_of[point.gpu, point.nodes])]
    room = max(SHOWN_POINTS, len(first_of))
    kept = {id(point) for point in order[:room]}
    return [point for point in front if id(point) in kept]


def _front_cells(point: FrontPoint) -> tuple[str, ...]:
    """A figure that is unknown is empty; a column without any is left out."""
    return (
        f"{point.nodes:,}",
        point.gpu,
        f"{point.tokens_per_s_per_gpu:,.0f}",
        f"{point.headroom_gb:.1f}",
        "" if point.mfu is None else f"{point.mfu:.1%}",
        "unknown" if point.usd_per_million_tokens is None else f"{point.usd_per_million_tokens:.3f}",
        "" if point.days is None else f"{point.days:,.1f}",
    )


def _front_configuration(point: FrontPoint, first: FrontPoint) -> str:
    if point is first:
        return configuration_text(point.result, point.trial)
    changed = difference_text(point, first)
    return f"with {shorten(changed, SHOWN_DIFFERENCE, placeholder=' ...')}" if changed else "the same"
