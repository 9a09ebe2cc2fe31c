"""primus-mcp: which Primus training configuration gives the most tokens/s/GPU and fits in memory.

`tune`, `evaluate`, `sweep`, `axes` and `Session` are imported when they are first used, so that `import primus_mcp` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from primus_mcp.api import Outcome, Problem, Session, SweepResult, axes, evaluate, problem, sweep, tune
    from primus_mcp.errors import PrimusMcpError

__all__ = ["Outcome", "PrimusMcpError", "Problem", "Session", "SweepResult", "axes", "evaluate", "problem", "sweep", "tune"]


def __getattr__(name: str) -> Any:
    """The public names, on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'primus_mcp' has no attribute {name!r}")
    from importlib import import_module

    module = "primus_mcp.errors" if name == "PrimusMcpError" else "primus_mcp.api"
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
