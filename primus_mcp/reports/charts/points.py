"""Points on two axes: throughput against memory, and fronts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from primus_mcp.reports.charts.chart import Chart, axis, colors, layer, layered, text_layer
from primus_mcp.reports.charts.theme import PARTS, ink
from primus_mcp.reports.charts.words import distinct, known, plural, shown

Point = tuple[float, float, str, str]
"""(x, y, group, tip)"""
Item = TypeVar("Item")
PLOT_PX = 660
"""Width of the frame inside the axes, about."""
_CELL_PX = 2.5
_STAR = "M0,-1L0.24,-0.32L0.95,-0.31L0.38,0.12L0.59,0.81L0,0.4L-0.59,0.81L-0.38,0.12L-0.95,-0.31L-0.24,-0.32Z"


def spread(values: Sequence[float], share: float = 0.05) -> tuple[float, float]:
    """The ends of an axis with some room around the values."""
    low, high = min(values), max(values)
    room = (high - low) * share or abs(high) * share or 1.0
    return low - room, high + room


def thinned(
    items: Sequence[Item], place: Callable[[Item], tuple[float, float]], x: tuple[float, float], y: tuple[float, float], height: float
) -> list[Item]:
    """The items without those that lie on one before them: one a square of _CELL_PX, on axes from `x[0]` to `x[1]` and `y[0]` to `y[1]`."""
    seen, kept = set(), []
    for item in items:
        at = place(item)
        cell = (int((at[0] - x[0]) / (x[1] - x[0]) * PLOT_PX / _CELL_PX), int((at[1] - y[0]) / (y[1] - y[0]) * height / _CELL_PX))
        if cell not in seen:
            seen.add(cell)
            kept.append(item)
    return kept


def hidden_text(count: int) -> str:
    """What a chart says of the points that `thinned` took out."""
    return plural(count, "point lies under another and is not drawn", "points lie under others and are not drawn")


def scatter(
    name: str,
    title: str,
    points: Sequence[Point],
    axes: tuple[str, str],
    *,
    best: tuple[float, float, str] | None = None,
    cap: float | None = None,
    height: float = 300,
) -> Chart:
    """Points in groups of a colour each (a legend where there are several); `best` is starred and labelled, `cap` a vertical line."""
    kept = [point for point in points if known(point[0]) and known(point[1])]
    places = [*((p[0], p[1]) for p in kept), *([best[:2]] if best else [])] or [(0.0, 0.0)]
    x_ends = spread([x for x, _ in places] + ([cap] if cap is not None else []))
    y_ends = spread([y for _, y in places], 0.08)
    drawn = thinned(kept, lambda p: (p[0], p[1]), x_ends, y_ends, height)
    groups = list(dict.fromkeys(point[2] for point in kept))
    names = distinct(groups[: len(PARTS)] if len(groups) <= len(PARTS) else [*groups[: len(PARTS) - 1], "others"])
    labels = {group: names[min(i, len(names) - 1)] for i, group in enumerate(groups)}
    x, y = axis("x", *x_ends, axes[0]), axis("y", *y_ends, axes[1])
    color = colors("group", names, PARTS[: len(names)], legend=len(names) > 1)
    rows = [{"x": p[0], "y": p[1], "group": labels[p[2]], "tip": shown(p[3])} for p in drawn]
    layers = [layer(rows, "circle", {"x": x, "y": y, "color": color}, tips=True, size=42, opacity=1, fillOpacity=0.65)]
    if cap is not None:
        layers += _cap_line(cap, x)
    if best is not None:
        layers += star(best, x, y)
    lost = plural(len(points) - len(kept), "point has no place and is not drawn", "points have no place and are not drawn")
    notes = [hidden_text(len(kept) - len(drawn)), lost]
    ends = (
        [f"{words} from {min(v):,.5g} to {max(v):,.5g}" for words, v in zip(axes, zip(*places, strict=True), strict=True)] if kept else []
    )
    gist = ", ".join([plural(len(kept), "point", "points"), *ends])
    return Chart(name=name, title=title, spec=layered(layers, height, top=22), note="; ".join(filter(None, notes)), gist=gist)


def _cap_line(cap: float, x: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [{"at": cap, "text": f"cap {cap:,.0f} GB", "tip": f"cap: {cap:,.1f} GB"}]
    at = {"x": {**x, "field": "at"}}
    return [
        layer(rows, "rule", at, tips=True, color=ink("bad"), strokeDash=[5, 3], strokeWidth=1.6),
        text_layer(rows, {**at, "y": {"value": -9}}, color=ink("bad"), align="right", dx=3),
    ]


def star(best: tuple[float, float, str], x: dict[str, Any], y: dict[str, Any]) -> list[dict[str, Any]]:
    """The best with its value, on the side that has room."""
    rows = [{"x": best[0], "y": best[1], "text": f"{best[1]:,.0f}", "tip": shown(best[2])}]
    low, high = x["scale"]["domain"]
    left = best[0] > (low + high) / 2
    look = {"shape": _STAR, "size": 220, "filled": True, "color": ink("c1"), "stroke": ink("bg"), "strokeWidth": 1.0, "opacity": 1}
    return [
        layer(rows, "point", {"x": x, "y": y}, tips=True, **look),
        text_layer(rows, {"x": x, "y": y}, align="right" if left else "left", dx=-11 if left else 11, dy=-7, fontWeight="bold"),
    ]
