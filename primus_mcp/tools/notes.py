"""Scratchpad, budgets and the language model."""

from __future__ import annotations

from functools import partial
from secrets import token_hex
from typing import Annotated, Literal

from pydantic import Field

from primus_mcp.errors import InputError, PrimusMcpError
from primus_mcp.tools.llm import NO_LLM, NO_LLM_REMEDY
from primus_mcp.tools.prompt_files import prompt_text
from primus_mcp.tools.registry import ToolContext, tool
from primus_mcp.tools.results import BudgetStatus, LlmAnswer, Noted, Scratchpad
from primus_mcp.tools.text import clean
from primus_mcp.trials.budget import LIMIT_NAMES
from primus_mcp.trials.journal import LlmCall, LlmReserved

MAX_NOTE = 4_000
MAX_SCRATCHPAD = 200_000
SHOWN_SCRATCHPAD = 16_000
MAX_PROMPT = 20_000
NO_LIMIT = -1
Expert = Literal["", "memory", "moe", "network", "schedule"]
"""Texts in prompts/experts."""


@tool("Note to the scratchpad", toolset="notes")
def note_to_scratchpad(context: ToolContext, note: Annotated[str, Field(min_length=1, max_length=MAX_NOTE)]) -> Noted:
    """Keep a finding or a plan with the run."""
    pad = context.session.scratchpad
    size = len(pad.read())
    text = clean(note, MAX_NOTE)
    if size + len(text) > MAX_SCRATCHPAD:
        raise InputError(f"the scratchpad is full ({size:,} characters)", where="note", remedy="read_scratchpad, and keep the rest in mind")
    pad.append(text)
    return Noted(characters=size + len(text) + 1)


@tool("Read the scratchpad", toolset="notes", read_only=True)
def read_scratchpad(context: ToolContext) -> Scratchpad:
    """Notes of this run, newest last; long pads are cut at the front."""
    text = context.session.scratchpad.read()
    return Scratchpad(notes=text[-SHOWN_SCRATCHPAD:], characters=len(text), truncated=len(text) > SHOWN_SCRATCHPAD)


@tool("State of the budgets", toolset="inspect", read_only=True)
def get_budget_status(context: ToolContext) -> BudgetStatus:
    """Every limit: what it counts, its value, what was spent and is left."""
    rows = context.session.spending()
    return BudgetStatus(
        budgets={row.name: {"limit": row.limit, "spent": row.spent, "left": row.left, "counts": row.counts} for row in rows},
        next="set_budget changes a limit for this session",
    )


@tool("Change a budget", toolset="notes", idempotent=True)
def set_budget(
    context: ToolContext,
    budget: Annotated[str, Field(max_length=100, description="of get_budget_status")],
    limit: Annotated[float, Field(ge=NO_LIMIT, le=1e12, description="-1: no limit")],
) -> BudgetStatus:
    """Change a limit for this session; 0 switches that stage off."""
    if budget not in LIMIT_NAMES:
        raise InputError(f"there is no budget {budget!r}", where="set_budget", remedy=f"budgets are {', '.join(LIMIT_NAMES)}")
    context.session.budget.limits[budget] = None if limit == NO_LIMIT else limit
    return get_budget_status(context)  # type: ignore[return-value]


@tool("Ask a language model", toolset="llm", open_world=True)
def query_llm(
    context: ToolContext,
    prompt: Annotated[str, Field(min_length=1, max_length=MAX_PROMPT)],
    system: Annotated[str, Field(max_length=MAX_PROMPT)] = "",
    expert: Annotated[Expert, Field(description="answers as this expert")] = "",
) -> LlmAnswer:
    """One question to the language model set up in this server's environment; counted in the budgets."""
    if context.ask_llm is None:
        raise InputError(NO_LLM, where="query_llm", remedy=NO_LLM_REMEDY)
    journal = context.session.journal
    key = f"query_llm {token_hex(8)}"
    reservation = LlmReserved(key=key, purpose="query_llm")
    journal.append(reservation, partial(context.session.budget.require_request, reservation=reservation))
    instructions = "\n\n".join(text for text in (prompt_text(f"experts/{expert}") if expert else "", system) if text)
    try:
        reply = context.ask_llm(prompt, instructions)
    except PrimusMcpError as error:
        journal.append(LlmCall(purpose="query_llm", model="", key=key, error=str(error)))
        raise
    journal.append(
        LlmCall(
            purpose="query_llm",
            model=reply.model,
            input_tokens=reply.input_tokens or 0,
            output_tokens=reply.output_tokens or 0,
            usd=reply.usd,
            key=key,
        )
    )
    return LlmAnswer(model=reply.model, reply=reply.text, input_tokens=reply.input_tokens, output_tokens=reply.output_tokens, usd=reply.usd)
