"""report.html: one self-contained page. No network, no foreign script: a content policy admits only our own by its hash."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from primus_mcp.evaluation.rank import is_candidate
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.best import band_text
from primus_mcp.reports.charts.render import page_figures
from primus_mcp.reports.charts.theme import css_variables
from primus_mcp.reports.charts.words import known, plural, shown
from primus_mcp.reports.html_front import front_table, price_lines
from primus_mcp.reports.html_parts import Figures, copyable, folded, listed, paragraph, script_json, section, warnings_of
from primus_mcp.reports.html_source import ReportSource
from primus_mcp.reports.html_sweep import other_engine, sweep_section
from primus_mcp.reports.page_charts import FRONT, MEMORY, RANKS, SEARCH, TIME, TRIALS, page_charts
from primus_mcp.reports.part_words import part_text
from primus_mcp.reports.sweep_text import configuration_text
from primus_mcp.reports.tables import verdict
from primus_mcp.trials.log import TrialRecord
from primus_mcp.version import engine_version

REPORT_NAME = "report.html"
COLUMNS = ("trial", "tokens/s/GPU", "memory GB", "MFU %", "bubble %", "fits", "configuration", "origin", "label", "why not")
SHOWN_NOTES, MOST_TEXT, MOST_TITLE = 5, 1000, 200
"""Notes in sight; characters of a cell of the table, and of the title."""
_RATE = COLUMNS.index("tokens/s/GPU")


def page_style() -> str:
    """The page's style sheet: colours by name, in light and dark, and what uses them."""
    return css_variables() + _asset("html_page.css")


def _asset(name: str) -> str:
    return (files("primus_mcp.reports") / name).read_text(encoding="utf-8")


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
        return paragraph("No trial can be recommended; the table says why each was refused.", "bad") if source.records else ""
    result = record.result
    label = {"synthetic": "SYNTHETIC numbers", "heuristic": "HEURISTIC throughput"}.get(result.fidelity, "")
    overlay = source.overlay(record.trial_id) if result.fidelity != "synthetic" else None
    return section(
        f"Winner: trial {record.trial_id}",
        paragraph(label, "bad"),
        _cards(result, source.baseline.result if source.baseline else None),
        paragraph(configuration_text(result, record.trial)),
        paragraph(band_text(result)),
        paragraph(ranking.note or "", "bad"),
        paragraph(f"Accuracy: {result.confidence}" if result.confidence else "", "soft"),
        folded("workload file of the winner", copyable(overlay, "overlay", "the workload file") if overlay else ""),
        warnings_of(result),
    )


def _why(best: EvaluationResult | None, figures: Figures) -> str:
    """Time and memory of the winner against the baseline, its bottlenecks, and memory a rank."""
    if best is None:
        return ""
    largest = sorted((best.time_breakdown or {}).items(), key=lambda item: -item[1])[:5]
    total = best.iteration_ms or 1.0
    return section(
        "Why it wins",
        figures.get(TIME, ""),
        listed([f"{part_text(name)}: {value:,.1f} ms, {value / total:.1%} of the iteration" for name, value in largest]),
    ) + section("Memory", figures.get(MEMORY, ""), figures.get(RANKS, ""))


def table_row(record: TrialRecord) -> list[Any]:
    """One trial as COLUMNS: numbers stay numbers, what was not computed is null."""
    r = record.result
    share = [round(value * 100, 2) if known(value) else None for value in (r.mfu, r.bubble_ratio)]
    rate = r.tokens_per_s_per_gpu if is_candidate(r) else None
    what = configuration_text(r, record.trial) if r.resolved else json.dumps(record.trial)
    texts = (None if text is None else text[:MOST_TEXT] for text in (what, record.origin, record.label, r.reason))
    return [record.trial_id, rate, r.memory_per_gpu_gb, *share, verdict(r), *texts]


def _trials(source: ReportSource) -> str:
    if not source.records:
        return ""
    best = source.ranking.best
    data = {"rows": [table_row(record) for record in source.records], "best": best.trial_id if best else None, "rate": _RATE}
    head = "".join(f'<th scope="col"><button type="button">{escape(name)}</button></th>' for name in COLUMNS)
    return section(
        "Trials",
        '<p><label>filter <input id="filter" type="search" autocomplete="off"></label> <span id="count" role="status"></span></p>',
        f'<div class="scroll"><table id="table"><thead><tr>{head}</tr></thead><tbody></tbody></table></div>',
        '<p><button id="more" type="button" class="more">show more</button></p>',
        "<noscript><p>The table needs JavaScript; trials.jsonl beside this file holds the same.</p></noscript>",
        f'<script id="trials" type="application/json">{script_json(data)}</script>',
    )


def report_html(source: ReportSource) -> str:
    """The whole page."""
    script, style = _asset("html_page.js"), page_style()
    figures, sweeps = page_figures(page_charts(source)), source.sweeps
    names = [str(source.summary.get(name)) for name in ("workload", "cluster") if source.summary.get(name)]
    if not names and sweeps:
        names = [sweeps[0].workload, ", ".join(swept.cluster for swept in sweeps)]
    title = shown(" on ".join(names) or source.folder.resolve().name, MOST_TITLE)
    engine = source.records[-1].result.engine_version if source.records else engine_version()
    policy = (
        f"default-src 'none'; style-src 'sha256-{_hash(style)}'; script-src 'sha256-{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    body = [
        f"<h1>{escape(title)}</h1>",
        paragraph(_engine(source), "soft"),
        *(paragraph(line, "bad") for line in source.left_out),
        paragraph("There is no trial yet.") if not source.records and not sweeps else "",
        _winner(source),
        _why(source.ranking.best, figures),
        section("Search", figures.get(SEARCH, ""), figures.get(TRIALS, "")),
        *(sweep_section(place, swept, figures, engine, trials=bool(source.records)) for place, swept in enumerate(sweeps)),
        _front(source, figures, engine),
        _trials(source),
        section("Notes", _notes(source.summary.get("warnings"))),
    ]
    run = f"<script>{script}</script>" if source.records else ""
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy, quote=True)}"><title>{escape(title)}</title>'
        f"<style>{style}</style></head><body><main>{''.join(body)}</main>{run}</body></html>\n"
    )
    return page.encode("utf-8", "replace").decode("utf-8")  # a text of a JSON file may hold half a character


def _front(source: ReportSource, figures: Figures, engine: str) -> str:
    if not source.front:
        return ""
    told = other_engine([point.result for point in source.front], engine, trials=bool(source.records))
    table, prices = front_table(source.front), listed(price_lines(source.front))
    return section("Pareto front", paragraph(told, "bad"), figures.get(FRONT, ""), table, prices)


def _engine(source: ReportSource) -> str:
    engine, counts = (found if isinstance(found := source.summary.get(name), Mapping) else {} for name in ("engine", "counts"))
    parts = [f"{name} {engine[name]}" for name in ("version", "evaluator", "backend", "profile") if engine.get(name)]
    told = (("trials", "trials"), ("illegal", "illegal"), ("over_margin", "over the cap"))
    tried = ", ".join(f"{counts[name]} {words}" for name, words in told if name in counts) if counts.get("trials") else ""
    return "; ".join(part for part in (", ".join(parts), tried) if part)


def _notes(warnings: Any) -> str:
    """The warnings of the whole run."""
    lines = [str(line) for line in warnings] if isinstance(warnings, list) else []
    return listed(lines[:SHOWN_NOTES]) + folded(
        plural(len(lines[SHOWN_NOTES:]), "further note", "further notes"), listed(lines[SHOWN_NOTES:])
    )


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode("utf-8")).digest()).decode("ascii")
