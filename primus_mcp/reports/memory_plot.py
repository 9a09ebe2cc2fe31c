"""Memory of every pipeline rank as stacked bars, with the GPU's capacity and the cap."""

from __future__ import annotations

from primus_mcp.inputs.hardware import Cluster
from primus_mcp.projection.memory.projection import MemoryProjection
from primus_mcp.reports.charts.bars import stacked_bars
from primus_mcp.reports.charts.chart import Chart
from primus_mcp.reports.memory_tree import branches
from primus_mcp.units import bytes_to_gb


def memory_chart(memory: MemoryProjection, cluster: Cluster, *, title: str) -> Chart:
    """A bar a rank made of the tree's branches, its upper bound as a whisker, the cap and the usable HBM as lines."""
    rows = [
        (f"rank {rank.rank}", {branch: bytes_to_gb(sum(parts.values())) for branch, parts in branches(rank).items()})
        for rank in memory.ranks
    ]
    limits = (("cap", bytes_to_gb(cluster.memory_cap_bytes)), (cluster.gpu.name, bytes_to_gb(cluster.hbm_bytes)))
    upper = [bytes_to_gb(rank.upper_bytes) for rank in memory.ranks]
    return stacked_bars("memory", title.replace(": ", "\n", 1), rows, "GB", limits=limits, upper=upper)
