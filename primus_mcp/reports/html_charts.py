"""Charts of the report as inline SVG: text is escaped, colours come from the page's variables, every chart says in words what it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import floor, log10

WIDTH = 720
PALETTE = 10
"""Colours `--c0` to `--c9` of the style sheet."""
_LABEL = 170
OTHERS = "others"


def _svg(height: float, label: str, body: Sequence[str]) -> str:
    text = escape(label, quote=True)
    return (
        f'<svg role="img" aria-label="{text}" viewBox="0 0 {WIDTH} {height:.0f}" xmlns="http://www.w3.org/2000/svg"><title>{text}</title>'
        + "".join(body)
        + "</svg>"
    )


def _text(x: float, y: float, text: str, anchor: str = "start", css: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{css}">{escape(text)}</text>'


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round values that cover the range."""
    if high <= low:
        return [low]
    raw = (high - low) / wanted
    size = 10 ** floor(log10(raw))
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= raw)
    first = floor(low / step) * step
    count = int((high - first) / step + 1.5)
    return [first + i * step for i in range(count + 1) if low <= first + i * step <= high * (1 + 1e-9)]


def stacked_bars(rows: Sequence[tuple[str, Mapping[str, float]]], unit: str, label: str, cap: tuple[str, float] | None = None) -> str:
    """One bar a row, made of named parts, largest first; the smallest of more than PALETTE parts are joined. `cap` draws a line."""
    names = sorted({name for _, parts in rows for name in parts}, key=lambda name: -max(parts.get(name, 0.0) for _, parts in rows))
    if len(names) > PALETTE:
        kept = names[: PALETTE - 1]
        rows = [
            (title, {**{n: parts[n] for n in kept if n in parts}, OTHERS: sum(v for n, v in parts.items() if n not in kept)})
            for title, parts in rows
        ]
        names = [*kept, OTHERS]
    top = max([sum(max(0.0, v) for v in parts.values()) for _, parts in rows] + ([cap[1]] if cap else [])) or 1.0
    scale = (WIDTH - _LABEL - 90) / top
    body, totals, y = [], [], 12.0
    for title, parts in rows:
        x = float(_LABEL)
        body.append(_text(_LABEL - 8, y + 16, title, "end"))
        for i, name in enumerate(names):
            size = max(0.0, parts.get(name, 0.0)) * scale
            if size > 0:
                tip = escape(f"{name}: {parts[name]:,.1f} {unit}")
                body.append(
                    f'<rect class="c{i % PALETTE}" x="{x:.1f}" y="{y:.1f}" width="{size:.1f}" height="22"><title>{tip}</title></rect>'
                )
                x += size
        totals.append(_text(x + 6, y + 16, f"{sum(parts.values()):,.1f} {unit}", css="over"))
        y += 32
    if cap is not None:
        x = _LABEL + cap[1] * scale
        body.append(
            f'<line class="cap" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{y:.1f}"/>'
            + _text(x, y + 12, f"{cap[0]} {cap[1]:,.0f} {unit}", "middle")
        )
        y += 18
    body += totals
    for i, name in enumerate(names):
        column, row = i % 3, i // 3
        body.append(f'<rect class="c{i % PALETTE}" x="{10 + column * 236}" y="{y + 8 + row * 18:.1f}" width="11" height="11"/>')
        body.append(_text(26 + column * 236, y + 18 + row * 18, name, css="small"))
    return _svg(y + 14 + 18 * ((len(names) + 2) // 3), label, body)


def _axes(
    x_range: tuple[float, float], y_range: tuple[float, float], names: tuple[str, str], height: float
) -> tuple[list[str], tuple[float, ...]]:
    left, right, top, bottom = 80.0, WIDTH - 20.0, 12.0, height - 42.0
    sx = (right - left) / ((x_range[1] - x_range[0]) or 1.0)
    sy = (bottom - top) / ((y_range[1] - y_range[0]) or 1.0)
    body = []
    for value in ticks(*y_range):
        y = bottom - (value - y_range[0]) * sy
        body.append(
            f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            + _text(left - 6, y + 4, f"{value:,.6g}", "end", "small")
        )
    for value in ticks(*x_range):
        body.append(_text(left + (value - x_range[0]) * sx, bottom + 16, f"{value:,.6g}", "middle", "small"))
    body.append(_text((left + right) / 2, height - 6, names[0], "middle", "small"))
    body.append(
        f'<text class="small" text-anchor="middle" transform="translate(14 {(top + bottom) / 2:.0f}) rotate(-90)">{escape(names[1])}</text>'
    )
    return body, (left, bottom, sx, sy)


def scatter(
    points: Sequence[tuple[float, float, str, bool]], names: tuple[str, str], label: str, cap: float | None = None, height: float = 320
) -> str:
    """(x, y, tip, highlighted) each; `cap` is a vertical line."""
    xs, ys = [p[0] for p in points] + ([cap] if cap else []), [p[1] for p in points]
    pad_x, pad_y = (max(xs) - min(xs)) * 0.04 or 1.0, (max(ys) - min(ys)) * 0.06 or 1.0
    x_range, y_range = (min(xs) - pad_x, max(xs) + pad_x), (max(0.0, min(ys) - pad_y), max(ys) + pad_y)
    body, (left, bottom, sx, sy) = _axes(x_range, y_range, names, height)
    for x, y, tip, marked in sorted(points, key=lambda point: point[3]):
        kind = "mark" if marked else "dot"
        px, py = left + (x - x_range[0]) * sx, bottom - (y - y_range[0]) * sy
        body.append(f'<circle class="{kind}" cx="{px:.1f}" cy="{py:.1f}" r="{5 if marked else 3}"><title>{escape(tip)}</title></circle>')
    if cap is not None:
        x = left + (cap - x_range[0]) * sx
        body.append(f'<line class="cap" x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{bottom}"/>')
    return _svg(height, label, body)


def step_curve(values: Sequence[float | None], names: tuple[str, str], label: str, height: float = 240) -> str:
    """The best so far against the number of the trial."""
    known = [(i, value) for i, value in enumerate(values) if value is not None]
    if not known:
        return ""
    y_range = (min(v for _, v in known) * 0.97, max(v for _, v in known) * 1.03)
    body, (left, bottom, sx, sy) = _axes((0.0, float(max(1, len(values) - 1))), y_range, names, height)
    path, last = [], None
    for i, value in known:
        x, y = left + i * sx, bottom - (value - y_range[0]) * sy
        if value != last or i == known[-1][0]:
            path.append(f"M{x:.1f} {y:.1f}" if last is None else f"H{x:.1f}V{y:.1f}")
        last = value
    return _svg(height, label, [*body, f'<path class="curve" d="{"".join(path)}"/>'])


def tornado(rows: Sequence[tuple[str, float, float]], base: float, label: str) -> str:
    """(name, value at -20%, value at +20%) around a base, widest first."""
    low, high = min([base, *(min(a, b) for _, a, b in rows)]), max([base, *(max(a, b) for _, a, b in rows)])
    left = 290.0
    scale = (WIDTH - left - 110) / ((high - low) or 1.0)
    body, y = [], 8.0
    for name, down, up in rows:
        body.append(_text(left - 10, y + 15, name, "end", "small"))
        for value, css in ((down, "c3"), (up, "c0")):
            a, b = sorted((base, value))
            tip = escape(f"{name}: {value:,.0f} ({value / base - 1:+.1%})")
            start, width = left + (a - low) * scale, max((b - a) * scale, 0.5)
            body.append(f'<rect class="{css}" x="{start:.1f}" y="{y:.1f}" width="{width:.1f}" height="20"><title>{tip}</title></rect>')
        ends = " ".join(f"{round(value / base - 1, 3) + 0.0:+.1%}" for value in sorted((down, up)))
        body.append(_text(left + (high - low) * scale + 6, y + 15, ends, css="small"))
        y += 26
    middle = left + (base - low) * scale
    body.append(f'<line class="cap" x1="{middle:.1f}" x2="{middle:.1f}" y1="2" y2="{y:.1f}"/>')
    return _svg(y + 6, label, body)


def pipeline_timeline(tasks: Sequence[tuple[int, str, int, int, float, float]], label: str) -> str:
    """(rank, kind, micro-batch, chunk, start, end) as one row a rank; F, B and W told apart by colour and letter."""
    ranks, end = max(task[0] for task in tasks) + 1, max(task[5] for task in tasks) or 1.0
    scale, colours = (WIDTH - 70) / end, {"F": "c0", "B": "c2", "D": "c2", "W": "c4"}
    body = [_text(4, 22 + rank * 22, f"rank {rank}", css="small") for rank in range(ranks)]
    for rank, kind, number, chunk, start, stop in tasks:
        tip = escape(f"{kind} of micro-batch {number}, chunk {chunk}: {start * 1e3:,.1f} to {stop * 1e3:,.1f} ms")
        x, y, width = 60 + start * scale, 8 + rank * 22, max((stop - start) * scale - 0.4, 0.3)
        colour = colours.get(kind, "c5")
        body.append(f'<rect class="{colour}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="18"><title>{tip}</title></rect>')
    return _svg(14 + ranks * 22, label, body)
