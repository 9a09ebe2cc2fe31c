"""Memory when the hottest expert rank gets more than its share of the tokens.

Expert tensors grow with the rows that a rank receives; real routing was seen at about twice the mean on the hottest rank of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.memory.projection import MemoryProjection, project_memory

EXPERT_LOADS = (1.5, 2.0)
"""Load of the hottest expert rank, as multiples of the mean, at which memory is reported beside the answer."""


def memory_by_load(arch: Architecture, config: TrainingConfig, cluster: Cluster) -> Mapping[float, MemoryProjection]:
    """Load -> memory at that load; empty without routed experts, and at EP 1, where no rank can be hotter than another."""
    if not arch.is_moe or config.ep == 1:
        return {}
    return {load: project_memory(arch, replace(config, expert_load_imbalance=load), cluster) for load in EXPERT_LOADS}
