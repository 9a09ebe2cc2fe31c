"""report.html: one self-contained page. No network, no foreign script: a content policy admits only our own by its hash."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from primus_mcp.evaluation.rank import is_candidate
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.best import band_text
from primus_mcp.reports.charts.render import page_figures
from primus_mcp.reports.charts.theme import css_variables
from primus_mcp.reports.charts.words import plural
from primus_mcp.reports.html_front import front_table, price_lines
from primus_mcp.reports.html_source import ReportSource
from primus_mcp.reports.page_charts import FRONT, MEMORY, RANKS, SEARCH, TIME, TRIALS, page_charts, pipeline_name, sensitivity_name
from primus_mcp.reports.part_words import part_text, warning_lines
from primus_mcp.reports.rule_titles import rule_title
from primus_mcp.reports.sweep_text import configuration_text
from primus_mcp.trials.log import TrialRecord

REPORT_NAME = "report.html"
COLUMNS = ("trial", "tokens/s/GPU", "memory GB", "MFU %", "bubble %", "fits", "configuration", "origin", "label", "why not")
OTHER_ENGINE = "Priced by another version of the engine than the trials: do not compare the numbers; run the sweep again."
_RATE = COLUMNS.index("tokens/s/GPU")
Figures = Mapping[str, str]
"""Name of a chart to its HTML; what cannot be shown is not in it."""


def page_style() -> str:
    """The page's style sheet: colours by name, in light and dark, and what uses them."""
    return css_variables() + _asset("html_page.css")


def _asset(name: str) -> str:
    return (files("primus_mcp.reports") / name).read_text(encoding="utf-8")


def script_json(value: Any) -> str:
    """JSON that cannot end its script element, whatever text it holds."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _section(title: str, *parts: str) -> str:
    body = "".join(part for part in parts if part)
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def _paragraph(text: str, css: str = "") -> str:
    return f'<p class="{css}">{escape(text)}</p>' if text else ""


def _copyable(text: str, name: str) -> str:
    return f'<p><button class="copy" type="button" data-from="{name}">copy</button></p><pre id="{name}">{escape(text)}</pre>'


def _cards(result: EvaluationResult, baseline: EvaluationResult | None) -> str:
    shown = [("tokens/s/GPU", f"{result.tokens_per_s_per_gpu:,.0f}")] if result.tokens_per_s_per_gpu is not None else []
    if baseline is not None and baseline.tokens_per_s_per_gpu and result.tokens_per_s_per_gpu:
        shown.append(("times the baseline", f"{result.tokens_per_s_per_gpu / baseline.tokens_per_s_per_gpu:.2f}"))
    elif baseline is not None and baseline.within_margin is False and baseline.memory_per_gpu_gb is not None:
        shown.append(("the baseline needs, over the cap", f"{baseline.memory_per_gpu_gb:.0f} GB"))
    if result.memory_per_gpu_gb is not None:
        shown.append(("GB a GPU", f"{result.memory_per_gpu_gb:.1f}"))
    if result.mfu is not None:
        shown.append(("MFU", f"{result.mfu:.1%}"))
    if result.iteration_ms is not None:
        shown.append(("ms an iteration", f"{result.iteration_ms:,.0f}"))
    if result.bubble_ratio is not None:
        shown.append(("bubble", f"{result.bubble_ratio:.1%}"))
    return '<div class="cards">' + "".join(f'<div class="card"><b>{value}</b>{escape(name)}</div>' for name, value in shown) + "</div>"


def _winner(source: ReportSource) -> str:
    ranking = source.ranking
    record = source.record(ranking.best.trial_id) if ranking.best is not None else None
    if record is None:
        return _paragraph("No trial can be recommended; the table says why each was refused.", "bad") if source.records else ""
    result = record.result
    label = {"synthetic": "SYNTHETIC numbers", "heuristic": "HEURISTIC throughput"}.get(result.fidelity, "")
    overlay = source.overlay(record.trial_id) if result.fidelity != "synthetic" else None
    return _section(
        f"Winner: trial {record.trial_id}",
        _paragraph(label, "bad"),
        _cards(result, source.baseline.result if source.baseline else None),
        _paragraph(configuration_text(result, record.trial)),
        _paragraph(band_text(result)),
        _paragraph(ranking.note or "", "bad"),
        _paragraph(f"Accuracy: {result.confidence}" if result.confidence else "", "soft"),
        "<details><summary>workload file of the winner</summary>" + _copyable(overlay, "overlay") + "</details>" if overlay else "",
        _warnings(result),
    )


def _list(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>" if lines else ""


def _warnings(result: EvaluationResult) -> str:
    """What the numbers cannot show: the most important in sight, the others folded."""
    first, others = warning_lines(result.warnings)
    return _list(first) + _folded(plural(len(others), "further note", "further notes"), others)


def _folded(summary: str, lines: Sequence[str]) -> str:
    return f"<details><summary>{escape(summary)}</summary>{_list(lines)}</details>" if lines else ""


def _why(best: EvaluationResult | None, figures: Figures) -> str:
    """Time and memory of the winner against the baseline, its bottlenecks, and memory a rank."""
    if best is None:
        return ""
    largest = sorted((best.time_breakdown or {}).items(), key=lambda item: -item[1])[:5]
    total = best.iteration_ms or 1.0
    return _section(
        "Why it wins",
        figures.get(TIME, ""),
        _list([f"{part_text(name)}: {value:,.1f} ms, {value / total:.1%} of the iteration" for name, value in largest]),
    ) + _section("Memory", figures.get(MEMORY, ""), figures.get(RANKS, ""))


def table_row(record: TrialRecord) -> list[Any]:
    """One trial as COLUMNS: numbers stay numbers, what was not computed is null."""
    r = record.result
    share = [None if value is None else round(value * 100, 2) for value in (r.mfu, r.bubble_ratio)]
    rate = r.tokens_per_s_per_gpu if is_candidate(r) else None
    fits = "illegal" if not r.legal else (r.fits_physically or "").replace("_", " ")
    what = configuration_text(r, record.trial) if r.resolved else json.dumps(record.trial)
    return [record.trial_id, rate, r.memory_per_gpu_gb, *share, fits, what, record.origin, record.label, r.reason]


def _trials(source: ReportSource) -> str:
    if not source.records:
        return ""
    best = source.ranking.best
    data = {"rows": [table_row(record) for record in source.records], "best": best.trial_id if best else None, "rate": _RATE}
    head = "".join(f'<th scope="col"><button type="button">{escape(name)}</button></th>' for name in COLUMNS)
    return _section(
        "Trials",
        '<p><label>filter <input id="filter" type="search" autocomplete="off"></label> <span id="count" role="status"></span></p>',
        f'<div class="scroll"><table id="table"><thead><tr>{head}</tr></thead><tbody></tbody></table></div>',
        '<p><button id="more" type="button" class="more">show more</button></p>',
        "<noscript><p>The table needs JavaScript; trials.jsonl beside this file holds the same.</p></noscript>",
        f'<script id="trials" type="application/json">{script_json(data)}</script>',
    )


def _sweep(place: int, entry: Mapping[str, Any], figures: Figures, log_engine: str | None) -> str:
    counts = entry.get("counts", {})
    fallen = list(counts.get("fallen", {}).items())
    lines = [f"{count:,} refused: {rule_title(str(rule))}" for rule, count in fallen]
    proof = "proven under the model" if entry.get("proven") else "not proven"
    heading = f"Whole space: {entry.get('workload')} on {entry.get('cluster')}"
    rows, engines, first = [], set(), None
    for one in entry.get("top", []):
        result = EvaluationResult.model_validate(one["result"])
        first = first or result
        engines.add(result.engine_version)
        cells = (f"{result.tokens_per_s_per_gpu:,.0f}", f"{result.memory_per_gpu_gb:.1f}", configuration_text(result, one["trial"]))
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return _section(
        heading,
        _paragraph(OTHER_ENGINE, "bad") if log_engine is not None and engines - {log_engine} else "",
        _paragraph(f"{counts.get('size', 0):,} combinations, {counts.get('legal', 0):,} legal; the first is {proof}."),
        _folded("why the others fell", lines),
        '<div class="scroll"><table><thead><tr><th>tokens/s/GPU</th><th>GB</th><th>configuration</th></tr></thead><tbody>'
        + "".join(rows)
        + "</tbody></table></div>"
        if rows
        else "",
        _paragraph(f"The first: {band_text(first)}" if first is not None and first.throughput_band else ""),
        _paragraph(f"Accuracy: {first.confidence}" if first is not None and first.confidence else "", "soft"),
        _warnings(first) if first is not None else "",
        _headed("Pipeline", figures.get(pipeline_name(place), "")),
        _headed("How sure", figures.get(sensitivity_name(place), "")),
        _list(str((entry.get("sensitivity") or {}).get("text", "")).splitlines()),
    )


def _headed(title: str, figure: str) -> str:
    return f"<h3>{escape(title)}</h3>{figure}" if figure else ""


def report_html(source: ReportSource) -> str:
    """The whole page."""
    script, style = _asset("html_page.js"), page_style()
    figures, sweeps, front = page_figures(page_charts(source)), source.sweeps, source.front
    names = [str(source.summary.get(name)) for name in ("workload", "cluster") if source.summary.get(name)]
    if not names and sweeps:
        names = [str(sweeps[0].get("workload")), ", ".join(str(entry.get("cluster")) for entry in sweeps)]
    title = " on ".join(names) or source.folder.name
    engine = source.records[-1].result.engine_version if source.records else None
    policy = (
        f"default-src 'none'; style-src 'sha256-{_hash(style)}'; script-src 'sha256-{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    body = [
        f"<h1>{escape(title)}</h1>",
        _paragraph(_engine(source), "soft"),
        _paragraph(f"{source.unread} lines of the log could not be read and are left out.", "bad") if source.unread else "",
        _winner(source),
        _why(source.ranking.best, figures),
        _section("Search", figures.get(SEARCH, ""), figures.get(TRIALS, "")),
        *(_sweep(place, entry, figures, engine) for place, entry in enumerate(sweeps)),
        _section("Pareto front", figures.get(FRONT, ""), front_table(front), _list(price_lines(front))) if front else "",
        _trials(source),
        _section("Notes", _list([str(line) for line in source.summary.get("warnings", [])])),
    ]
    run = f"<script>{script}</script>" if source.records else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy, quote=True)}"><title>{escape(title)}</title>'
        f"<style>{style}</style></head><body><main>{''.join(body)}</main>{run}</body></html>\n"
    )


def _engine(source: ReportSource) -> str:
    engine = source.summary.get("engine") or {}
    parts = [f"{name} {engine[name]}" for name in ("version", "evaluator", "backend", "profile") if engine.get(name)]
    counts = source.summary.get("counts") or {}
    tried = f"{counts['trials']} trials, {counts['illegal']} illegal, {counts['over_margin']} over the cap" if counts.get("trials") else ""
    return "; ".join(part for part in (", ".join(parts), tried) if part)


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode("utf-8")).digest()).decode("ascii")
