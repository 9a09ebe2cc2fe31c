"""Pieces of the page: text from files goes in as text only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.charts.words import plural
from primus_mcp.reports.part_words import warning_lines

Figures = Mapping[str, str]
"""Name of a chart to its HTML; what cannot be shown is not in it."""


def script_json(value: Any) -> str:
    """JSON that cannot end its script element, whatever text it holds."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def section(title: str, *parts: str) -> str:
    """A heading and what is below it; empty where nothing is."""
    body = "".join(part for part in parts if part)
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def headed(title: str, figure: str) -> str:
    """A figure below a heading of its own."""
    return f"<h3>{escape(title)}</h3>{figure}" if figure else ""


def paragraph(text: str, css: str = "") -> str:
    """Empty for no text."""
    return f'<p class="{css}">{escape(text)}</p>' if css and text else f"<p>{escape(text)}</p>" if text else ""


def copyable(text: str, name: str, what: str) -> str:
    """A text with a button that copies it; `what` names it to who cannot see where the button stands."""
    button = f'<button class="copy" type="button" data-from="{name}" aria-label="copy {escape(what, quote=True)}">copy</button>'
    return f'<p>{button}</p><pre id="{name}" tabindex="0">{escape(text)}</pre>'


def listed(lines: Sequence[str]) -> str:
    """A point a line."""
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>" if lines else ""


def folded(summary: str, body: str) -> str:
    """What is shown on demand; empty where nothing is."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>" if body else ""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> str:
    """A table of texts that scrolls inside its own frame."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    frame = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name, quote=True)}">'
    return f"{frame}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>" if rows else ""


def warnings_of(result: EvaluationResult) -> str:
    """What the numbers cannot show: the most important in sight, the others folded."""
    first, others = warning_lines(result.warnings)
    return listed(first) + folded(plural(len(others), "further note", "further notes"), listed(others))


def number(value: float | None, form: str) -> str:
    """Empty where it is unknown."""
    return "" if value is None else form.format(value)
