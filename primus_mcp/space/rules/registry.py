"""The rule books in the order in which their reasons are told."""

from __future__ import annotations

from primus_mcp.space.rules.attention import book as attention
from primus_mcp.space.rules.base import Rule
from primus_mcp.space.rules.batch import book as batch
from primus_mcp.space.rules.graphs import book as graphs
from primus_mcp.space.rules.hybrid import book as hybrid
from primus_mcp.space.rules.memory import book as memory
from primus_mcp.space.rules.moe import book as moe
from primus_mcp.space.rules.optimizer import book as optimizer
from primus_mcp.space.rules.parallelism import book as parallelism
from primus_mcp.space.rules.pipeline import book as pipeline
from primus_mcp.space.rules.precision import book as precision
from primus_mcp.space.rules.request import book as request
from primus_mcp.space.rules.router import book as router
from primus_mcp.space.rules.schedule import book as schedule

REQUEST_RULES: tuple[Rule, ...] = tuple(request.rules)
"""Rules on what a trial asks for, before it is resolved (their case carries the baseline)."""
CONFIG_RULES: tuple[Rule, ...] = tuple(
    rule
    for book in (parallelism, attention, hybrid, pipeline, schedule, batch, memory, optimizer, graphs, moe, router, precision)
    for rule in book.rules
)
"""Rules on the resolved configuration."""
RULES: tuple[Rule, ...] = REQUEST_RULES + CONFIG_RULES
"""Every rule."""
