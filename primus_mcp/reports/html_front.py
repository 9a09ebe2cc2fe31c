"""The Pareto front of a sweep as a table of the report: every point over all clusters, with money and days where they are known."""

from __future__ import annotations

from collections.abc import Sequence

from primus_mcp.reports.html_parts import number, table
from primus_mcp.reports.sweep_text import configuration_text
from primus_mcp.search.pareto import FrontPoint

_HEADS = ("nodes", "GPU", "tokens/s/GPU", "GB free", "MFU", "$/Mtoken", "days", "$", "configuration")


def front_table(front: Sequence[FrontPoint]) -> str:
    """A row a point; a figure that is unknown or was not asked for in every row has no column."""
    rows = [_cells(point) for point in front]
    shown = [place for place in range(len(_HEADS)) if any(row[place] for row in rows)]
    return table([_HEADS[place] for place in shown], [[row[place] for place in shown] for row in rows], "the Pareto front")


def price_lines(front: Sequence[FrontPoint]) -> list[str]:
    """Where each GPU's price is from."""
    return sorted({f"price of {point.gpu}: {point.price_source}" for point in front if point.price_source})


def _cells(point: FrontPoint) -> tuple[str, ...]:
    return (
        f"{point.nodes}",
        point.gpu,
        f"{point.tokens_per_s_per_gpu:,.0f}",
        f"{point.headroom_gb:.1f}",
        number(point.mfu, "{:.1%}"),
        number(point.usd_per_million_tokens, "{:.3f}"),
        number(point.days, "{:,.1f}"),
        number(point.usd, "{:,.0f}"),
        configuration_text(point.result, point.trial),
    )
