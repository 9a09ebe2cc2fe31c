"""The course of a search, trial by trial: throughput with the best so far, and both panels of trials.png."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from primus_mcp.evaluation.rank import incumbents, is_candidate, rank
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.charts.chart import Chart, axis, colors, layer, layered, text_layer
from primus_mcp.reports.charts.points import PLOT_PX, hidden_text, spread, star, thinned
from primus_mcp.reports.charts.theme import WIDTH, config, ink
from primus_mcp.reports.charts.words import known, plural, shown

HEADINGS = {"synthetic": "SYNTHETIC tokens/s/GPU", "heuristic": "HEURISTIC tokens/s/GPU"}
FITS, ILLEGAL, TOO_LARGE = "within the cap", "illegal", "over the cap"
_LOOKS = {FITS: ("c0", "circle"), ILLEGAL: ("c9", "cross"), TOO_LARGE: ("bad", "triangle-down")}
_FEET = {ILLEGAL: 8, TOO_LARGE: 20}
"""Pixels above the axis at which refused trials stand."""
_CURVE_PX, _MEMORY_PX = 250, 150
_BARS = 220
"""Trials up to which memory is drawn as bars; more are points."""
_LABELS_PX = 100
"""Room to the right of the panels of trials.png for the names of the lines."""


def search_curve(name: str, title: str, results: Sequence[EvaluationResult]) -> Chart:
    """Throughput of every trial with the best so far as a line; refused trials at the foot."""
    layers, hidden = _curve(results)
    return Chart(name=name, title=title, spec=layered(layers, _CURVE_PX, top=18), note=hidden_text(hidden), gist=_gist(results))


def trials_picture(name: str, title: str, results: Sequence[EvaluationResult], *, cap_gb: float, hbm_gb: float) -> Chart:
    """The search's course above the memory of the same trials. Memory above twice the HBM is cut and marked with an arrow."""
    upper, hidden = _curve(results)
    width = WIDTH - _LABELS_PX - 76
    spec = {
        "config": config(),
        "padding": {"left": 8, "right": 8, "top": 8, "bottom": 8},
        "spacing": 10,
        "vconcat": [
            {"width": width, "height": _CURVE_PX, "layer": upper},
            {"width": width, "height": _MEMORY_PX, "layer": _memory(results, cap_gb, hbm_gb)},
        ],
        "resolve": {"scale": {"color": "independent", "shape": "independent"}},
    }
    return Chart(name=name, title=title, spec=spec, note=hidden_text(hidden))


def _gist(results: Sequence[EvaluationResult]) -> str:
    best, count = rank(results).best, plural(len(results), "trial", "trials")
    rate = best.tokens_per_s_per_gpu if best is not None else None
    return f"{count}, the best number {best.trial_id} with {rate:,.0f} tokens/s/GPU" if best is not None and known(rate) else count


def _numbers(results: Sequence[EvaluationResult]) -> dict[str, Any]:
    """The axis of trials: whole numbers from 0."""
    last = max(len(results) - 1, 0)
    step = next(size * factor for size in (1, 10, 100, 1000, 10**4, 10**5) for factor in (1, 2, 5) if last / (size * factor) <= 10)
    return axis("x", -0.7, last + 0.7, "trial", grid=False, values=list(range(0, last + 1, step)))


def _refused(results: Sequence[EvaluationResult]) -> list[tuple[int, str, str]]:
    """(number, kind, tip) of the trials without a throughput to show."""
    kinds = [(n, ILLEGAL if not r.legal else TOO_LARGE, r) for n, r in enumerate(results) if not r.legal or r.within_margin is False]
    return [(n, kind, f"trial {n}, {kind}" + (f": {r.reason}" if r.reason else "")) for n, kind, r in kinds]


def _curve(results: Sequence[EvaluationResult]) -> tuple[list[dict[str, Any]], int]:
    """Layers of throughput against the number of the trial, and how many points lie under others."""
    best = rank(results).best
    rates = [
        (number, float(result.tokens_per_s_per_gpu or 0.0))
        for number, result in enumerate(results)
        if is_candidate(result) and best is not None and result.fidelity == best.fidelity and known(result.tokens_per_s_per_gpu)
    ]
    low, high = spread([rate for _, rate in rates] or [0.0, 1.0], 0.1)
    low -= (high - low) * 0.1
    x = _numbers(results)
    more: dict[str, Any] = {"minExtent": 52, **({} if rates else {"labels": False, "grid": False})}
    y = axis("y", low, high, HEADINGS.get(best.fidelity if best else "", "tokens/s/GPU"), **more)
    ends = tuple(x["scale"]["domain"])
    points = thinned(rates, lambda point: point, ends, (low, high), _CURVE_PX)
    refused = _refused(results)
    foot = [item for kind in _FEET for item in thinned([r for r in refused if r[1] == kind], lambda r: (r[0], low), ends, (low, high), 1)]
    used = [kind for kind in _LOOKS if (rates if kind == FITS else any(item[1] == kind for item in foot))]
    rows = [{"x": n, "y": rate, "kind": FITS, "tip": f"trial {n}: {rate:,.0f} tokens/s/GPU"} for n, rate in points]
    steps = _steps(incumbents(results), len(results) - 0.5)
    layers = [
        layer(steps, "line", {"x": x, "y": y}, interpolate="step-after", color=ink("fg"), strokeWidth=1.6),
        _points(rows, {"x": x, "y": y}, used),
    ]
    for kind, height in _FEET.items():
        rows = [{"x": n, "kind": kind, "tip": shown(tip)} for n, item, tip in foot if item == kind]
        layers += [_points(rows, {"x": x, "y": {"value": _CURVE_PX - height}}, used)] if rows else []
    if best is not None and known(best.tokens_per_s_per_gpu):
        place = next(number for number, result in enumerate(results) if result is best)
        tip = f"best, trial {best.trial_id}: {best.tokens_per_s_per_gpu:,.0f} tokens/s/GPU"
        layers += star((place, float(best.tokens_per_s_per_gpu or 0.0), tip), x, y)
    return layers, len(rates) - len(points) + len(refused) - len(foot)


def _points(rows: Sequence[dict[str, Any]], place: dict[str, Any], used: Sequence[str]) -> dict[str, Any]:
    """Trials told apart by colour and shape."""
    color = colors("kind", used, [_LOOKS[kind][0] for kind in used], legend=len(used) > 1)
    scale = {"domain": list(used), "range": [_LOOKS[kind][1] for kind in used]}
    shape: dict[str, Any] = {"field": "kind", "type": "nominal", "scale": scale}
    shape |= {} if len(used) > 1 else {"legend": None}
    return layer(rows, "point", {**place, "color": color, "shape": shape}, tips=True, filled=True, size=36, opacity=1, fillOpacity=0.65)


def _steps(values: Sequence[float | None], end: float) -> list[dict[str, Any]]:
    """The corners of the best so far."""
    found: list[dict[str, Any]] = []
    for number, value in enumerate(values):
        if known(value) and (not found or found[-1]["y"] != value):
            found.append({"x": number, "y": value})
    return [*found, {"x": end, "y": found[-1]["y"]}] if found else []


def _memory(results: Sequence[EvaluationResult], cap_gb: float, hbm_gb: float) -> list[dict[str, Any]]:
    """Layers of memory against the number of the trial, with the cap and the HBM."""
    most = 2 * hbm_gb
    sizes = [
        (
            n,
            min(float(r.memory_per_gpu_gb or 0.0), most),
            float(r.memory_per_gpu_gb or 0.0),
            TOO_LARGE if r.within_margin is False else FITS,
        )
        for n, r in enumerate(results)
        if known(r.memory_per_gpu_gb)
    ]
    top = max([size for _, size, _, _ in sizes] + [hbm_gb]) * 1.08
    x, y = _numbers(results), axis("y", 0.0, top, "memory/GPU, GB", minExtent=52, tickCount=4)
    bars = len(sizes) <= _BARS
    if not bars:
        sizes = thinned(sizes, lambda size: (size[0], size[1]), tuple(x["scale"]["domain"]), (0.0, top), _MEMORY_PX)
    rows = [
        {"x": n, "y": size, "low": 0, "kind": kind, "tip": f"trial {n}: {true:,.1f} GB, {kind}", "text": "↑" if true > most else ""}
        for n, size, true, kind in sizes
    ]
    encoding = {"x": x, "y": y, "color": colors("kind", (FITS, TOO_LARGE), ("c0", "bad"), legend=False)}
    width = max(1.5, min(28.0, 0.7 * PLOT_PX / max(len(results), 1)))
    look = {"width": width, "fillOpacity": 0.85} if bars else {"size": 14, "fillOpacity": 0.65}
    encoding |= {"y2": {"field": "low"}} if bars else {}
    layers = [layer(rows, "bar" if bars else "circle", encoding, tips=True, opacity=1, **look)]
    layers.append(text_layer([row for row in rows if row["text"]], {"x": x, "y": y}, dy=-6, color=ink("bad")))
    for name, size, color, below in (("cap", cap_gb, "bad", 6), ("HBM", hbm_gb, "soft", -6)):
        line, at = [{"at": size, "text": f"{name} {size:,.0f} GB", "tip": f"{name}: {size:,.1f} GB"}], {"y": {**y, "field": "at"}}
        layers.append(layer(line, "rule", at, tips=True, color=ink(color), strokeDash=[5, 3], strokeWidth=1.4))
        layers.append(text_layer(line, {**at, "x": {"value": "width"}}, align="left", baseline="middle", dx=6, dy=below, color=ink(color)))
    return layers
