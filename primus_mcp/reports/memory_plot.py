"""Memory of every pipeline rank as stacked bars, with the GPU's capacity and the cap."""

from __future__ import annotations

import io

from primus_mcp.inputs.hardware import Cluster
from primus_mcp.projection.memory.projection import MemoryProjection
from primus_mcp.reports.memory_tree import OTHER, TREE, branches
from primus_mcp.units import bytes_to_gb

_COLORS = dict(zip((*TREE, OTHER), ("#2563eb", "#16a34a", "#ea580c", "#9ca3af", "#a855f7"), strict=True))
_DARK, _RED = "#111827", "#dc2626"
_DPI = 120
_INCHES_HIGH, _INCHES_A_RANK, _INCHES_LEAST, _INCHES_MOST = 5.2, 0.55, 6.0, 16.0


def memory_png(memory: MemoryProjection, cluster: Cluster, *, title: str) -> bytes:
    """PNG bytes: a bar a rank, its upper bound as a whisker, dashed the cap, solid the usable HBM."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    width = min(_INCHES_MOST, max(_INCHES_LEAST, _INCHES_A_RANK * len(memory.ranks)))
    figure = Figure(figsize=(width, _INCHES_HIGH), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    ranks = [rank.rank for rank in memory.ranks]
    below = [0.0] * len(ranks)
    for branch, color in _COLORS.items():
        sizes = [bytes_to_gb(sum(branches(rank).get(branch, {}).values())) for rank in memory.ranks]
        if any(sizes):
            axes.bar(ranks, sizes, bottom=below, color=color, width=0.7, label=branch)
            below = [base + size for base, size in zip(below, sizes, strict=True)]
    above = [bytes_to_gb(rank.upper_bytes - rank.device_bytes) for rank in memory.ranks]
    axes.errorbar(ranks, below, yerr=[[0.0] * len(ranks), above], fmt="none", ecolor=_DARK, capsize=3, linewidth=1.0, label="upper bound")
    hbm, cap = bytes_to_gb(cluster.hbm_bytes), bytes_to_gb(cluster.memory_cap_bytes)
    axes.axhline(hbm, color=_RED, linewidth=1.2, label=f"{cluster.gpu.name} {hbm:.0f} GB")
    axes.axhline(cap, color=_DARK, linewidth=1.2, linestyle="--", label=f"cap {cap:.0f} GB")
    axes.set_title(title.replace(": ", "\n", 1), loc="left", fontsize=10, color=_DARK)
    axes.set_xlabel("pipeline rank")
    axes.set_ylabel("GB of a GPU")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.margins(y=0.12)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()
