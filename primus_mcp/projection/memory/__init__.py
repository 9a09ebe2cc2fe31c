"""Device memory of every pipeline rank at the moment of its peak."""

from primus_mcp.projection.memory.projection import MemoryProjection, RankMemory, project_memory
from primus_mcp.projection.memory.verdict import Fit, verdict

__all__ = ["Fit", "MemoryProjection", "RankMemory", "project_memory", "verdict"]
