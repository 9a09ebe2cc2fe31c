"""Why a configuration needs the memory that it needs: the largest parts of the worst rank, uneven experts, and changes that make it fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from primus_mcp.evaluation.cheapest import Fitting
from primus_mcp.evaluation.convert import load_text
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.memory import COMPONENTS, MemoryProjection
from primus_mcp.reports.part_words import part_text
from primus_mcp.units import bytes_to_gb

LARGEST = 5
"""Parts of the worst rank that are named."""


def dominant(memory: MemoryProjection) -> list[tuple[str, int]]:
    """The largest components of the worst rank, with their bytes."""
    return sorted(memory.worst.components.items(), key=lambda item: -item[1])[:LARGEST]


def explain_lines(
    memory: MemoryProjection, config: TrainingConfig, cluster: Cluster, loads: Mapping[float, MemoryProjection], fitting: Sequence[Fitting]
) -> list[str]:
    """In words. `fitting`: changes that make it fit; looked for only where the estimate is over the cap."""
    worst = memory.worst
    parts = [f"{part_text(name)} {bytes_to_gb(size):.1f} GB ({size / worst.device_bytes:.0%})" for name, size in dominant(memory)]
    lines = [f"most of rank {worst.rank}, at its peak in {worst.peak_moment}: {', '.join(parts)}"]
    if loads:
        lines.append(load_text(config, loads, cluster))
    if memory.device_bytes <= cluster.memory_cap_bytes:
        return lines
    goal = "makes it fit" if memory.fits(cluster.hbm_bytes) == "does_not_fit" else "brings it under the cap"
    if not fitting:
        return [*lines, f"no change of one or two knobs {goal}"]
    lines.append(f"what {goal}, fastest first:")
    lines += [
        f"  {change.text:52} {change.result.memory_per_gpu_gb:7.1f} GB {change.result.tokens_per_s_per_gpu:10,.0f} tokens/s/GPU"
        for change in fitting
    ]
    return lines


def explain_document(memory: MemoryProjection, loads: Mapping[float, MemoryProjection], fitting: Sequence[Fitting]) -> dict[str, Any]:
    """The same as plain data, in GB of 2**30 bytes."""
    return {
        "dominant": [
            {
                "component": name,
                "gb": bytes_to_gb(size),
                "share": size / memory.worst.device_bytes,
                "rank": memory.worst.rank,
                "text": COMPONENTS[name].text,
            }
            for name, size in dominant(memory)
        ],
        "memory_at_expert_load_gb": {f"{load:g}": bytes_to_gb(found.device_bytes) for load, found in loads.items()} or None,
        "would_fit": [
            {
                "change": change.change,
                "memory_per_gpu_gb": change.result.memory_per_gpu_gb,
                "tokens_per_s_per_gpu": change.result.tokens_per_s_per_gpu,
            }
            for change in fitting
        ],
    }
