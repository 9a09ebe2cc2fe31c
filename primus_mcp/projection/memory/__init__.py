"""Device memory of every pipeline rank at the moment of its peak."""

from primus_mcp.projection.memory.caveats import Caveat, memory_caveats
from primus_mcp.projection.memory.components import COMPONENTS, Component
from primus_mcp.projection.memory.imbalance import EXPERT_LOADS, memory_by_load
from primus_mcp.projection.memory.projection import MemoryProjection, RankMemory, project_memory
from primus_mcp.projection.memory.verdict import CACHE_NOTE, MEANINGS, WORDS, Fit, Word, cache_note, verdict, verdict_text, word

__all__ = [
    "CACHE_NOTE",
    "COMPONENTS",
    "EXPERT_LOADS",
    "MEANINGS",
    "WORDS",
    "Caveat",
    "Component",
    "Fit",
    "MemoryProjection",
    "RankMemory",
    "Word",
    "cache_note",
    "memory_by_load",
    "memory_caveats",
    "project_memory",
    "verdict",
    "verdict_text",
    "word",
]
