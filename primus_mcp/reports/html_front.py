"""The Pareto front of a sweep as a table of the report: every point over all clusters, with money and days where they are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.sweep_text import configuration_text

_HEADS = ("nodes", "GPU", "tokens/s/GPU", "GB free", "MFU", "$/Mtoken", "days", "$", "configuration")


def front_table(front: Sequence[Mapping[str, Any]]) -> str:
    """A row a point; a figure that is unknown or was not asked for in every row has no column."""
    rows = [_cells(point) for point in front]
    shown = [place for place in range(len(_HEADS)) if any(row[place] for row in rows)]
    head = "".join(f"<th>{escape(_HEADS[place])}</th>" for place in shown)
    body = "".join("<tr>" + "".join(f"<td>{escape(row[place])}</td>" for place in shown) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def price_lines(front: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where each GPU's price is from."""
    return sorted({f"price of {point['gpu']}: {point['price_source']}" for point in front if point.get("price_source")})


def _cells(point: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{point['nodes']}",
        str(point["gpu"]),
        f"{point['tokens_per_s_per_gpu']:,.0f}",
        f"{point['headroom_gb']:.1f}",
        _number(point.get("mfu"), "{:.1%}"),
        _number(point.get("usd_per_million_tokens"), "{:.3f}"),
        _number(point.get("days"), "{:,.1f}"),
        _number(point.get("usd"), "{:,.0f}"),
        configuration_text(EvaluationResult.model_validate(point["result"]), point["trial"]),
    )


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
