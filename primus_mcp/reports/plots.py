"""trials.png: the incumbent against the trial number, and memory against the cap."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from primus_mcp.evaluation.rank import incumbents, is_candidate, rank
from primus_mcp.evaluation.result import EvaluationResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLUE, _RED, _GREY, _DARK, _ORANGE = "#2563eb", "#dc2626", "#9ca3af", "#111827", "#ea580c"
_SIZE_INCHES, _DPI = (9.0, 6.2), 120
_HEADINGS = {"synthetic": "SYNTHETIC tokens/s/GPU", "heuristic": "HEURISTIC tokens/s/GPU"}


def _throughput_panel(axes: Axes, results: Sequence[EvaluationResult]) -> None:
    best = rank(results).best
    shown = [
        (number, result.tokens_per_s_per_gpu)
        for number, result in enumerate(results)
        if is_candidate(result) and best is not None and result.fidelity == best.fidelity and result.tokens_per_s_per_gpu is not None
    ]
    axes.scatter([n for n, _ in shown], [v for _, v in shown], s=26, color=_BLUE, alpha=0.55, linewidths=0, label="priced", zorder=3)
    curve = [(number, value) for number, value in enumerate(incumbents(results)) if value is not None]
    if curve:
        steps = [*curve, (len(results) - 0.5, curve[-1][1])]
        axes.step([n for n, _ in steps], [v for _, v in steps], where="post", color=_DARK, linewidth=1.6, label="best so far", zorder=2)
    if best is not None and best.trial_id is not None and best.tokens_per_s_per_gpu is not None:
        place = next((n for n, result in enumerate(results) if result.trial_id == best.trial_id), best.trial_id)
        axes.scatter([place], [best.tokens_per_s_per_gpu], s=190, marker="*", color=_ORANGE, zorder=4, label=f"best: #{best.trial_id}")
        axes.annotate(
            f"{best.tokens_per_s_per_gpu:,.0f}",
            (place, best.tokens_per_s_per_gpu),
            xytext=(-10, 5),
            textcoords="offset points",
            ha="right",
            color=_DARK,
        )
    floor = axes.get_xaxis_transform()
    for numbers, color, marker, label in (
        ([n for n, r in enumerate(results) if not r.legal], _GREY, "x", "illegal"),
        ([n for n, r in enumerate(results) if r.legal and r.within_margin is False], _RED, "v", "does not fit"),
    ):
        if numbers:
            axes.scatter(numbers, [0.03] * len(numbers), s=28, color=color, marker=marker, transform=floor, label=label, zorder=3)
    axes.margins(y=0.1)
    axes.set_ylabel(_HEADINGS.get(best.fidelity if best else "", "tokens/s/GPU"))


def _memory_panel(axes: Axes, results: Sequence[EvaluationResult], cap_gb: float, hbm_gb: float) -> None:
    rows = [(number, result) for number, result in enumerate(results) if result.memory_per_gpu_gb is not None]
    axes.bar(
        [number for number, _ in rows],
        [min(result.memory_per_gpu_gb or 0.0, 2 * hbm_gb) for _, result in rows],
        width=0.7,
        color=[_RED if result.within_margin is False else _BLUE for _, result in rows],
        alpha=0.7,
    )
    for number, result in rows:
        if (result.memory_per_gpu_gb or 0.0) > 2 * hbm_gb:
            axes.annotate("↑", (number, 2 * hbm_gb), ha="center", va="bottom", color=_RED)
    axes.axhline(cap_gb, color=_DARK, linewidth=1.2, linestyle="--", label=f"cap {cap_gb:.0f} GB")
    axes.axhline(hbm_gb, color=_GREY, linewidth=1.0, linestyle=":", label=f"HBM {hbm_gb:.0f} GB")
    axes.set_ylabel("memory/GPU, GB")
    axes.set_xlabel("trial")


def trials_png(results: Sequence[EvaluationResult], *, title: str, cap_gb: float, hbm_gb: float) -> bytes:
    """The picture as PNG bytes. Bars above twice the HBM are cut and marked with an arrow."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    figure = Figure(figsize=_SIZE_INCHES)
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[1.6, 1.0])
    figure.subplots_adjust(left=0.09, right=0.98, top=0.94, bottom=0.08, hspace=0.08)
    _throughput_panel(upper, results)
    _memory_panel(lower, results, cap_gb, hbm_gb)
    upper.set_title(title, loc="left", fontsize=11, color=_DARK)
    upper.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    lower.xaxis.set_major_locator(MaxNLocator(integer=True))
    lower.set_xlim(-0.7, max(len(results), 1) - 0.3)
    lower.set_ylim(bottom=0)
    for axes in (upper, lower):
        axes.grid(axis="y", color="#e5e7eb", linewidth=0.8)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8, ncols=3, loc="best")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()
