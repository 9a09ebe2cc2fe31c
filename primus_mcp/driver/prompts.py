"""Instructions of the planner and of rounds, from `prompts/`; `agent.prompt_extras` of the cluster file stand at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from primus_mcp.tools.prompt_blocks import without_marks
from primus_mcp.tools.prompt_files import prompt_text

Task = Literal["search", "review"]
"""What a round is for; the prompt of that name says it."""
SUMMARIES: dict[Task, str] = {
    "search": "what was tried, what helped and why, what to try next; at most 10 lines",
    "review": "which trial to run and why it wins, its risks, what to measure first and what would change the choice; at most 12 lines",
}
_METHODS = {
    "rlm": "You work in a Python REPL: the inputs are variables, the tools are functions that return dicts; print what you want to see. "
    "`llm_query`, `llm_query_batched` and `dspy` sub-agents are off and only raise.",
    "react": "You call one tool at a time and see what it returns; call `finish` where the text says SUBMIT.",
}


def _text(name: str) -> str:
    return without_marks(prompt_text(name))


def _extras(extras: Sequence[str]) -> str:
    return "\n\nFrom the user:\n" + "\n".join(f"- {extra}" for extra in extras) if extras else ""


def planner_instructions(extras: Sequence[str]) -> str:
    """The planner's text with the expert's guide."""
    return f"{_text('planner')}\n\n{_text('guide')}{_extras(extras)}"


def search_instructions(method: str, tools: Sequence[str], extras: Sequence[str], *, task: Task = "search") -> str:
    """What every round is told: the task, and how it is worked on here. Providers cache a text that begins alike."""
    off = "" if "evaluate_with_benchmark" in tools else "\nThis host cannot measure: there is no evaluate_with_benchmark."
    return f"{_text(task)}\n\n{_METHODS[method]}{off}{_extras(extras)}"


def where_it_stands(briefing: str) -> str:
    """What one round is told after that."""
    return f"Where the search stands\n{briefing}"
