"""Device memory of every pipeline rank at the moment of its peak."""

from primus_mcp.projection.memory.caveats import Caveat, memory_caveats
from primus_mcp.projection.memory.components import COMPONENTS, Component
from primus_mcp.projection.memory.projection import MemoryProjection, RankMemory, project_memory
from primus_mcp.projection.memory.verdict import Fit, verdict

__all__ = [
    "COMPONENTS",
    "Caveat",
    "Component",
    "Fit",
    "MemoryProjection",
    "RankMemory",
    "memory_caveats",
    "project_memory",
    "verdict",
]
