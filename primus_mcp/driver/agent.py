"""What the loop asks of a language model, whoever answers: the seam between the search and DSPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from primus_mcp.driver.belt import SearchTool
from primus_mcp.tools.registry import LlmReply


class Agent(Protocol):
    """Plans, searches and answers."""

    @property
    def name(self) -> str:
        """How rounds run."""

    @property
    def ask(self) -> Callable[[str, str], LlmReply] | None:
        """Answers query_llm; None: it cannot."""

    def plan(self, inputs: Mapping[str, Any]) -> str:
        """A plan for the search, as text. Raises Stop."""

    def search(self, inputs: Mapping[str, Any], tools: Mapping[str, SearchTool], max_iterations: int) -> str:
        """One round; returns the model's own summary of it, or nothing. Raises Stop."""
