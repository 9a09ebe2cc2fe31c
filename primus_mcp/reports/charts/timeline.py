"""The pipeline of an iteration: a row a rank, a box a task, idle time empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from primus_mcp.reports.charts.chart import Chart, axis, colors, layer, layered, text_layer
from primus_mcp.reports.charts.theme import CHARACTER_PX, WIDTH, config, ink
from primus_mcp.reports.charts.words import known, plural, shown

Task = tuple[int, str, int, int, float, float]
"""(rank, kind, micro-batch, chunk, start in s, end in s)"""
KINDS = {"F": "forward", "B": "backward (input)", "D": "backward", "W": "backward (weights)"}
MOST_BOXES, MOST_A_RANK = 6000, 240
"""More tasks, or more a rank, are thinner than a pixel: the iteration is drawn as lines without tips, and its beginning as boxes below."""
_BEGINNING_A_RANK = 60
"""Tasks a rank of the beginning, on average."""
_INKS = {"F": "c0", "B": "c2", "D": "c2", "W": "c1"}
_LINE_LEGEND = {"symbolType": "stroke", "symbolStrokeWidth": 9, "symbolSize": 90}
_LABELLED = 0.6
"""Numbers stand in the boxes where more than this share has room for them."""
_PLOT_PX = 660
_STEPS, _LEAST_STEP, _LEAST_STEP_WITH_TEXT = ((8, 30), (16, 24), (32, 16)), 10, 14


def pipeline_timeline(name: str, title: str, tasks: Sequence[Task]) -> Chart:
    """Kinds told apart by colour, micro-batches by their number where a box has room for it."""
    kept = [task for task in tasks if known(task[4]) and known(task[5]) and task[1] in KINDS]
    lost = plural(len(tasks) - len(kept), "task has no time or kind and is not drawn", "tasks have no time or kind and are not drawn")
    ranks = sorted({task[0] for task in kept}) or [0]
    step = next((step for most, step in _STEPS if len(ranks) <= most), _LEAST_STEP)
    end = max((task[5] for task in kept), default=0.0)
    busiest = max(Counter(task[0] for task in kept).values(), default=0)
    gist = f"{len(kept):,} tasks on {plural(len(ranks), 'rank', 'ranks')} in {end * 1e3:,.0f} ms"
    if len(kept) <= MOST_BOXES and busiest <= MOST_A_RANK:
        return Chart(name=name, title=title, spec=layered(_boxes(kept, ranks, end, step), len(ranks) * step), note=lost, gist=gist)
    in_order = sorted(kept, key=lambda task: task[4])
    cut = in_order[min(MOST_BOXES, _BEGINNING_A_RANK * len(ranks), len(kept) - 1)][4] or end
    begun = [task for task in in_order if task[4] < cut] or in_order[:1]
    low = max(_LEAST_STEP, step // 2)
    panel = {"width": WIDTH - 90}
    spec = {
        "config": config(),
        "padding": {"left": 8, "right": 16, "top": 8, "bottom": 8},
        "spacing": 12,
        "vconcat": [
            {**panel, "height": len(ranks) * low, "layer": _lines(kept, ranks, end, low)},
            {**panel, "height": len(ranks) * step, "layer": _boxes(begun, ranks, cut, step, legend=False)},
        ],
        "resolve": {"scale": {"x": "independent", "y": "independent", "color": "independent"}},
    }
    note = f"above, all {len(kept):,} tasks of {end * 1e3:,.0f} ms; below, the first {len(begun):,}"
    return Chart(name=name, title=title, spec=spec, note="; ".join(filter(None, (note, lost))), gist=gist)


def _frame(tasks: Sequence[Task], ranks: Sequence[int], end: float, **legend: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Where and in which colour the tasks are drawn, and the ground on which idle time shows."""
    last = end * 1e3 or 1.0
    x = axis("start", 0.0, last, "ms", grid=False, tickCount=8)
    row: dict[str, Any] = {"field": "rank", "type": "ordinal", "title": "pipeline rank", "scale": {"domain": list(ranks), "padding": 0.12}}
    row["axis"] = {"ticks": False, "domain": False, "labelOverlap": True, "minExtent": 24}
    kinds = [kind for kind in KINDS if any(task[1] == kind for task in tasks)]
    color = {**colors("kind", [KINDS[kind] for kind in kinds], [_INKS[kind] for kind in kinds], legend=bool(kinds)), **legend}
    idle = [{"rank": rank, "start": 0.0, "end": last} for rank in ranks]
    return {"x": x, "y": row, "color": color}, layer(idle, "bar", {"x": x, "x2": {"field": "end"}, "y": row}, color=ink("card"))


def _boxes(tasks: Sequence[Task], ranks: Sequence[int], end: float, step: int, *, legend: bool = True) -> list[dict[str, Any]]:
    place, ground = _frame(tasks, ranks, end, **({} if legend else {"legend": None}))
    boxes = [_box(task, end) for task in tasks]
    gap = 0.5 if len(tasks) <= 150 * len(ranks) else 0.2
    look = {"stroke": ink("bg"), "strokeWidth": gap}
    marks = [ground, layer(boxes, "bar", {**place, "x2": {"field": "end"}}, tips=True, **look)]
    if step >= _LEAST_STEP_WITH_TEXT:
        wide = (end * 1e3 or 1.0) / _PLOT_PX
        texts = [box for box in boxes if (box["end"] - box["start"]) / wide > CHARACTER_PX * len(box["text"]) + 3]
        where = {"x": {**place["x"], "field": "middle"}, "y": place["y"]}
        if len(texts) > _LABELLED * len(boxes):
            marks.append(text_layer(texts, where, color=ink("bg"), fontSize=9))
    return marks


def _box(task: Task, cut: float) -> dict[str, Any]:
    """A task up to the end of the axis; its tip tells its own times."""
    rank, kind, number, chunk, start, stop = task
    text = f"{KINDS[kind]} of micro-batch {number}, chunk {chunk}, rank {rank}: {start * 1e3:,.1f} to {stop * 1e3:,.1f} ms"
    low, high = start * 1e3, min(stop, cut) * 1e3
    place = {"rank": rank, "kind": KINDS[kind], "start": low, "end": high, "middle": (low + high) / 2}
    return {**place, "text": shown(number, 8), "tip": text}


def _lines(tasks: Sequence[Task], ranks: Sequence[int], end: float, step: int) -> list[dict[str, Any]]:
    """A thick line a rank and kind, broken between tasks by a point without a place."""
    place, ground = _frame(tasks, ranks, end, legend=_LINE_LEGEND)
    points: list[dict[str, Any]] = []
    for number, (rank, kind, _, _, start, stop) in enumerate(sorted(tasks, key=lambda task: (task[0], task[1], task[4]))):
        shared = {"rank": rank, "kind": KINDS[kind]}
        times = (start * 1e3, stop * 1e3, None)
        points += [{**shared, "start": time, "order": 3 * number + turn} for turn, time in enumerate(times)]
    apart = {"detail": {"field": "rank", "type": "ordinal"}, "order": {"field": "order", "type": "quantitative"}}
    look: dict[str, Any] = {"strokeWidth": step * 0.8, "strokeCap": "butt", "invalid": "break-paths-show-domains"}
    return [ground, layer(points, "line", {**place, **apart}, **look)]
