"""The pipeline of an iteration: a row a rank, a box a task, idle time empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from primus_mcp.reports.charts.chart import Chart, axis, colors, layer, layered, text_layer
from primus_mcp.reports.charts.theme import CHARACTER_PX, ink
from primus_mcp.reports.charts.words import known, plural, shown

Task = tuple[int, str, int, int, float, float]
"""(rank, kind, micro-batch, chunk, start in s, end in s)"""
KINDS = {"F": "forward", "B": "backward (input)", "D": "backward", "W": "backward (weights)"}
MOST_WITH_TIPS = 6000
"""More tasks are drawn as one line a rank and kind: the same picture without a tip a box."""
_INKS = {"F": "c0", "B": "c2", "D": "c2", "W": "c1"}
_LINE_LEGEND = {"symbolType": "stroke", "symbolStrokeWidth": 9, "symbolSize": 90}
_PLOT_PX = 660
_STEPS = ((8, 30), (16, 24), (32, 16))


def pipeline_timeline(name: str, title: str, tasks: Sequence[Task]) -> Chart:
    """Kinds told apart by colour, micro-batches by their number where a box has room for it."""
    kept = [task for task in tasks if known(task[4]) and known(task[5]) and task[1] in KINDS]
    ranks = sorted({task[0] for task in kept}) or [0]
    end = max((task[5] for task in kept), default=0.0) * 1e3 or 1.0
    step = next((step for most, step in _STEPS if len(ranks) <= most), 10)
    x = axis("start", 0.0, end, "ms", grid=False, tickCount=8)
    row: dict[str, Any] = {"field": "rank", "type": "ordinal", "title": "pipeline rank", "scale": {"domain": ranks, "padding": 0.12}}
    row["axis"] = {"ticks": False, "domain": False, "labelOverlap": True}
    kinds = [kind for kind in KINDS if any(task[1] == kind for task in kept)]
    color = colors("kind", [KINDS[kind] for kind in kinds], [_INKS[kind] for kind in kinds], legend=bool(kinds))
    idle = [{"rank": rank, "start": 0.0, "end": end} for rank in ranks]
    band = layer(idle, "bar", {"x": x, "x2": {"field": "end"}, "y": row}, color=ink("card"))
    if len(kept) > MOST_WITH_TIPS:
        marks = [_lines(kept, x, row, {**color, "legend": _LINE_LEGEND}, step)]
        note = f"{len(kept):,} tasks, drawn without tips"
    else:
        boxes = [_box(task) for task in kept]
        placed = {"x": x, "x2": {"field": "end"}, "y": row, "color": color}
        texts = [box for box in boxes if (box["end"] - box["start"]) / end * _PLOT_PX > CHARACTER_PX * len(box["text"]) + 3]
        gap = 0.5 if len(kept) <= 150 * len(ranks) else 0.2
        marks = [layer(boxes, "bar", placed, tips=True, stroke=ink("bg"), strokeWidth=gap)]
        if step >= 14:
            marks.append(text_layer(texts, {"x": {**x, "field": "middle"}, "y": row}, color=ink("bg"), fontSize=9))
        note = ""
    lost = plural(len(tasks) - len(kept), "task has no time or kind and is not drawn", "tasks have no time or kind and are not drawn")
    spec = layered([band, *marks], max(1, len(ranks)) * step)
    return Chart(name=name, title=title, spec=spec, note="; ".join(filter(None, (note, lost))))


def _box(task: Task) -> dict[str, Any]:
    rank, kind, number, chunk, start, stop = task
    text = f"{KINDS[kind]} of micro-batch {number}, chunk {chunk}, rank {rank}: {start * 1e3:,.1f} to {stop * 1e3:,.1f} ms"
    low, high = start * 1e3, stop * 1e3
    place = {"rank": rank, "kind": KINDS[kind], "start": low, "end": high, "middle": (low + high) / 2}
    return {**place, "text": shown(number, 8), "tip": text}


def _lines(tasks: Sequence[Task], x: Any, row: Any, color: Any, step: int) -> dict[str, Any]:
    """A thick line a rank and kind, broken between tasks by a point without a place."""
    points: list[dict[str, Any]] = []
    for place, (rank, kind, _, _, start, stop) in enumerate(sorted(tasks, key=lambda task: (task[0], task[1], task[4]))):
        shared = {"rank": rank, "kind": KINDS[kind], "order": 3 * place}
        points += [{**shared, "start": start * 1e3}, {**shared, "start": stop * 1e3, "order": 3 * place + 1}]
        points.append({**shared, "start": None, "order": 3 * place + 2})
    order = {"field": "order", "type": "quantitative"}
    encoding = {"x": x, "y": row, "color": color, "detail": {"field": "rank", "type": "ordinal"}, "order": order}
    return layer(points, "line", encoding, strokeWidth=step * 0.8, strokeCap="butt", invalid="break-paths-show-domains")
