"""Bars made of parts beside the limits that they must stay under, and the tornado of what an answer hangs on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from primus_mcp.reports.charts.chart import Chart, axis, colors, layer, layered, text_layer
from primus_mcp.reports.charts.theme import CHARACTER_PX, PARTS, ink
from primus_mcp.reports.charts.words import distinct, known, plural, shown

OTHERS = "others"
MOST_ROWS, GIST = 128, 8
"""Rows that are drawn, and that are spoken."""
_FLAT = 0.0005
"""Rows of a tornado that move the base by a smaller share have no bar that can be seen."""
_WIDER_FONT = 0.12
"""What labels may be longer on a screen without the font that they were measured in, as a share of their width."""
_PLOT_PX = 470
"""Width of a bar that reaches the end of the axis, about; it decides which parts have room for their value."""
_STEPS = ((8, 34), (24, 24), (MOST_ROWS, 15))
"""(rows, pixels a row)"""


def _step(rows: int) -> int:
    return next(step for most, step in _STEPS if rows <= most)


def joined(rows: Sequence[Mapping[str, float]]) -> tuple[list[str], list[dict[str, float]]]:
    """Names of parts, largest first, and the rows by them; where there are more than colours, the small ones are one part."""
    names = sorted({name for parts in rows for name in parts}, key=lambda name: -max(parts.get(name, 0.0) for parts in rows))
    if len(names) <= len(PARTS):
        return names, [dict(parts) for parts in rows]
    kept = names[: len(PARTS) - 1]
    rest = [sum(value for name, value in parts.items() if name not in kept) for parts in rows]
    found = [{**{n: parts[n] for n in kept if n in parts}, OTHERS: other} for parts, other in zip(rows, rest, strict=True)]
    return [*kept, OTHERS], found


def stacked_bars(
    name: str,
    title: str,
    rows: Sequence[tuple[str, Mapping[str, float]]],
    unit: str,
    *,
    limits: Sequence[tuple[str, float]] = (),
    upper: Sequence[float] | None = None,
) -> Chart:
    """One bar a row, its parts in the same order everywhere, its sum beside it.

    `limits` are lines with a name, the lowest first; `upper` is a bound of each row, drawn as a whisker. Parts that are negative or no
    number are left out of the drawing, the sum counts what is a number. Of more than MOST_ROWS rows the largest are shown.
    """
    sums = [sum(value for value in parts.values() if known(value)) for _, parts in rows]
    places = sorted(sorted(range(len(rows)), key=lambda i: -sums[i])[:MOST_ROWS])
    clean = [{part: value for part, value in rows[i][1].items() if known(value)} for i in places]
    names, clean = joined(clean)
    labels, parts = distinct([rows[i][0] for i in places]), distinct(names)
    bounds = [upper[i] for i in places] if upper is not None else []
    drawn = [sum(max(0.0, value) for value in row.values()) for row in clean]
    top = max([*drawn, *filter(known, bounds), *(value for _, value in limits)], default=0.0) or 1.0
    segments = _segments(labels, names, parts, clean, unit, top)
    row = {"field": "row", "type": "nominal", "sort": None, "title": None, "scale": {"domain": labels, "padding": 0.25}}
    row["axis"] = {"ticks": False, "domain": False, "labelLimit": 170, "labelColor": ink("fg"), "labelOverlap": True}
    x, inks = axis("start", 0.0, top, unit), [PARTS[-1] if part == OTHERS else PARTS[i] for i, part in enumerate(names)]
    color = colors("part", parts, inks, legend=len(parts) > 1)
    layers = [
        layer(segments, "bar", {"x": x, "x2": {"field": "end"}, "y": row, "color": color}, tips=True, stroke=ink("bg"), strokeWidth=0.8),
        text_layer([s for s in segments if s["text"]], {"x": {**x, "field": "middle"}, "y": row}, color=ink("bg"), fontSize=10),
        *_whiskers(labels, drawn, bounds, unit, x, row),
        *_limits(limits, unit, x),
        text_layer(
            [{"row": label, "text": _sum_text(sums[i], unit)} for label, i in zip(labels, places, strict=True)],
            {"x": {"value": "width"}, "y": row},
            align="left",
            dx=8,
        ),
    ]
    left_out = sum(not known(value) or value < 0 for i in places for value in rows[i][1].values())
    notes = [plural(left_out, "part that is negative or no number is not drawn", "parts that are negative or no number are not drawn")]
    notes.append(f"the {len(places)} largest of {len(rows):,} rows" if len(places) < len(rows) else "")
    spec = layered(layers, max(1, len(labels)) * _step(len(labels)), right=96, top=24 if limits else 8)
    told = [f"{label} {_sum_text(sums[i], unit)}" for label, i in zip(labels[:GIST], places, strict=False)]
    told += [f"{shown(limit, 40)} {value:,.0f} {unit}" for limit, value in limits]
    return Chart(name=name, title=title, spec=spec, note="; ".join(filter(None, notes)), gist=", ".join(told))


def _sum_text(value: float, unit: str) -> str:
    return f"{value:,.1f} {unit}"


def _segments(
    labels: Sequence[str], names: Sequence[str], parts: Sequence[str], rows: Sequence[Mapping[str, float]], unit: str, top: float
) -> list[dict[str, Any]]:
    """The parts with their ends on the axis, each with a value inside where there is room."""
    found = []
    for label, row in zip(labels, rows, strict=True):
        start = 0.0
        for name, part in zip(names, parts, strict=True):
            value = row.get(name, 0.0)
            if value <= 0:
                continue
            text = f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"
            fits = value / top * _PLOT_PX > CHARACTER_PX * len(text) + 6
            place = {"row": label, "part": part, "start": start, "end": start + value, "middle": start + value / 2}
            found.append({**place, "tip": f"{label}, {part}: {value:,.1f} {unit}", "text": text if fits else ""})
            start += value
    return found


def _whiskers(
    labels: Sequence[str], drawn: Sequence[float], bounds: Sequence[float], unit: str, x: Mapping[str, Any], row: Mapping[str, Any]
) -> list[dict[str, Any]]:
    rows = [
        {"row": label, "start": low, "end": high, "tip": f"{label}: at most {high:,.1f} {unit}"}
        for label, low, high in zip(labels, drawn, bounds, strict=False)
        if known(high) and high > low
    ]
    if not rows:
        return []
    return [
        layer(rows, "rule", {"x": x, "x2": {"field": "end"}, "y": row}, tips=True, color=ink("fg"), strokeWidth=1.2),
        layer(rows, "tick", {"x": {**x, "field": "end"}, "y": row}, color=ink("fg"), thickness=1.2, size=8),
    ]


def _limits(limits: Sequence[tuple[str, float]], unit: str, x: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Dashed lines; the text of the last stands to the right of its line, of the others to the left, so that neighbours do not meet."""
    layers = []
    for place, (name, value) in enumerate(limits):
        rows = [{"at": value, "tip": f"{shown(name, 40)}: {value:,.1f} {unit}", "text": f"{shown(name, 40)} {value:,.0f} {unit}"}]
        at, color = {"x": {**x, "field": "at"}}, ink("bad" if place == 0 else "soft")
        layers.append(layer(rows, "rule", at, tips=True, color=color, strokeDash=[5, 3], strokeWidth=1.6))
        right = place == len(limits) - 1 and place > 0
        layers.append(text_layer(rows, {**at, "y": {"value": -9}}, align="left" if right else "right", dx=-3 if right else 3, color=color))
    return layers


def tornado(name: str, title: str, rows: Sequence[tuple[str, float, float]], base: float) -> Chart:
    """(name, value at the low end, value at the high end) around a base, in the order given; both ends in percent beside it."""
    moved = [
        row for row in rows if not (known(row[1]) and known(row[2])) or max(abs(row[1] - base), abs(row[2] - base)) > _FLAT * abs(base)
    ]
    kept = [row for row in moved if known(row[1]) and known(row[2])][:MOST_ROWS]
    labels = distinct([row[0] for row in kept])
    ends = [base, *(value for row in kept for value in row[1:])]
    spread = (max(ends) - min(ends)) or abs(base) * 0.01 or 1.0
    x = axis("start", min(ends) - spread * 0.02, max(ends) + spread * 0.02, "tokens/s/GPU")
    row = {"field": "row", "type": "nominal", "sort": None, "title": None, "scale": {"domain": labels, "padding": 0.2}}
    row["axis"] = {"ticks": False, "domain": False, "labelLimit": 340, "labelColor": ink("fg"), "labelOverlap": True}
    sides = ("at the low end", "at the high end")
    bars, texts = [], []
    for label, (_, low, high) in zip(labels, kept, strict=True):
        for side, value in sorted(zip(sides, (low, high), strict=True), key=lambda end: -abs(end[1] - base)):
            tip = f"{label} {side}: {value:,.0f} tokens/s/GPU ({_percent(value, base)})"
            bars.append({"row": label, "side": side, "start": base, "end": value, "tip": tip})
        texts.append({"row": label, "text": " ".join(_percent(value, base) for value in sorted((low, high)))})
    middle = [{"at": base, "text": f"{base:,.0f}", "tip": f"as it is: {base:,.0f} tokens/s/GPU"}]
    at = {"x": {**x, "field": "at"}}
    layers = [
        layer(bars, "bar", {"x": x, "x2": {"field": "end"}, "y": row, "color": colors("side", sides, ("c1", "c0"))}, tips=True),
        layer(middle, "rule", at, tips=True, color=ink("fg"), strokeWidth=1.2),
        text_layer(middle, {**at, "y": {"value": -9}}),
        text_layer(texts, {"x": {"value": "width"}, "y": row}, align="left", dx=8, color=ink("soft")),
    ]
    flat = plural(len(rows) - len(moved), f"row of less than {_FLAT:.2%} is left out", f"rows of less than {_FLAT:.2%} are left out")
    note = "; ".join(filter(None, (flat, plural(len(moved) - len(kept), "row is not drawn", "rows are not drawn"))))
    room = max((len(label) for label in labels), default=0) * CHARACTER_PX * _WIDER_FONT
    spec = layered(layers, max(1, len(labels)) * 26, left=8 + room, right=112, top=24)
    told = ", ".join([f"{base:,.0f} tokens/s/GPU", *(f"{row['row']} {row['text']}" for row in texts[:GIST])])
    return Chart(name=name, title=title, spec=spec, note=note, gist=told)


def _percent(value: float, base: float) -> str:
    return f"{round(value / base - 1, 3) + 0.0:+.1%}" if base else "0"
