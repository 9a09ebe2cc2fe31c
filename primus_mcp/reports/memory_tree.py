"""Memory of every pipeline rank as a tree of components, each with the kind of evidence behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from primus_mcp.inputs.hardware import Cluster
from primus_mcp.projection.memory.components import COMPONENTS
from primus_mcp.projection.memory.projection import MemoryProjection, RankMemory
from primus_mcp.reports.part_words import part_text
from primus_mcp.units import bytes_to_gb

TREE: Mapping[str, tuple[str, ...]] = {
    "states": ("weights", "main_gradients", "optimizer_states", "fp8_weight_copies", "unsharded_layers"),
    "activations": (
        "saved_embedding",
        "saved_attention",
        "saved_mlp",
        "saved_moe",
        "saved_head",
        "saved_checkpoints",
        "pinned_for_weight_gradients",
        "transient",
        "optimizer_step",
    ),
    "buffers": ("pipeline_buffers", "placeholder_gradients", "gather_buffer", "pipeline_gradient", "workspaces"),
    "outside the allocator's count": ("fragmentation", "communicators", "deepep_buffers", "runtime"),
}
"""Branch -> components. What a branch does not name goes to `other`."""
OTHER = "other"


def branches(rank: RankMemory) -> Mapping[str, Mapping[str, int]]:
    """The rank's components by branch, in the order of the tree; their sum is the rank's device memory."""
    known = {name for names in TREE.values() for name in names}
    found = {branch: {name: rank.components[name] for name in names if name in rank.components} for branch, names in TREE.items()}
    found[OTHER] = {name: size for name, size in rank.components.items() if name not in known}
    return {branch: parts for branch, parts in found.items() if parts}


def rank_lines(rank: RankMemory) -> list[str]:
    """One rank: branches and components in GB, with what each figure rests on."""
    device, upper = bytes_to_gb(rank.device_bytes), bytes_to_gb(rank.upper_bytes)
    lines = [f"rank {rank.rank}   {device:7.2f} GB, at most {upper:.2f}; peak: {rank.peak_moment}"]
    found = branches(rank)
    for branch, parts in found.items():
        last_branch = branch == list(found)[-1]
        lines.append(f"{'└─' if last_branch else '├─'} {branch:34} {bytes_to_gb(sum(parts.values())):9.2f} GB")
        for name, size in parts.items():
            stem = f"{'  ' if last_branch else '│ '} {'└─' if name == list(parts)[-1] else '├─'}"
            component = COMPONENTS[name]
            lines.append(f"{stem} {part_text(name):31} {bytes_to_gb(size):9.2f} GB  [{component.evidence}] {component.text}")
    return lines


def memory_lines(memory: MemoryProjection, cluster: Cluster) -> list[str]:
    """Every rank, then the three counters of the worst one and the verdict."""
    worst = memory.worst
    lines = [line for rank in memory.ranks for line in (*rank_lines(rank), "")]
    counters = ", ".join(
        f"{name} {bytes_to_gb(size):.2f}"
        for name, size in (("allocated", worst.allocated_bytes), ("reserved", worst.reserved_bytes), ("device", worst.device_bytes))
    )
    lines.append(f"worst rank {worst.rank}: {counters} GB, at most {bytes_to_gb(memory.upper_bytes):.2f} GB")
    lines.append(f"{cluster.gpu.name}, {memory.verdict_text(cluster)}")
    return lines


def memory_document(memory: MemoryProjection, cluster: Cluster) -> dict[str, Any]:
    """The same as plain data, in GB of 2**30 bytes."""
    return {
        "memory_per_gpu_gb": bytes_to_gb(memory.device_bytes),
        "memory_upper_gb": bytes_to_gb(memory.upper_bytes),
        "hbm_gb": bytes_to_gb(cluster.hbm_bytes),
        "cap_gb": bytes_to_gb(cluster.memory_cap_bytes),
        "verdict": memory.verdict(cluster),
        "verdict_text": memory.verdict_text(cluster),
        "fits_physically": memory.fits(cluster.hbm_bytes),
        "within_margin": memory.device_bytes <= cluster.memory_cap_bytes,
        "worst_rank": memory.worst.rank,
        "ranks": [
            {
                "rank": rank.rank,
                "allocated_gb": bytes_to_gb(rank.allocated_bytes),
                "reserved_gb": bytes_to_gb(rank.reserved_bytes),
                "device_gb": bytes_to_gb(rank.device_bytes),
                "upper_gb": bytes_to_gb(rank.upper_bytes),
                "peak_moment": rank.peak_moment,
                "components": {
                    name: {"gb": bytes_to_gb(size), "evidence": COMPONENTS[name].evidence, "source": COMPONENTS[name].source}
                    for name, size in rank.components.items()
                },
            }
            for rank in memory.ranks
        ],
    }
