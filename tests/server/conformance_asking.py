"""Fixtures of the conformance suite whose answer is a question first (2026-07-28: InputRequiredResult)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mcp.types as types
from mcp.server.mcpserver import Context, UserMessage
from mcp.types import InputRequiredResult, TextContent

from primus_mcp.server.app import PrimusServer

Requests = dict[str, types.InputRequest]


def form(message: str, **kinds: str) -> types.ElicitRequest:
    properties: dict[str, Any] = {name: {"type": kind} for name, kind in kinds.items()}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": list(kinds)}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(text: str, max_tokens: int) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=TextContent(type="text", text=text))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens))


def roots() -> types.ListRootsRequest:
    return types.ListRootsRequest()


QUESTIONS: dict[str, tuple[Callable[[], Requests], str | None]] = {
    "test_input_required_result_elicitation": (lambda: {"user_name": form("What is your name?", name="string")}, None),
    "test_input_required_result_sampling": (lambda: {"capital_question": sample("What is the capital of France?", 100)}, None),
    "test_input_required_result_list_roots": (lambda: {"client_roots": roots()}, None),
    "test_input_required_result_request_state": (lambda: {"confirm": form("Please confirm", ok="boolean")}, "asked"),
    "test_input_required_result_tampered_state": (lambda: {"confirm": form("Please confirm", ok="boolean")}, "asked"),
    "test_input_required_result_multiple_inputs": (
        lambda: {
            "user_name": form("What is your name?", name="string"),
            "greeting": sample("Generate a greeting", 50),
            "client_roots": roots(),
        },
        "asked",
    ),
}


def _answered(ctx: Context[Any, Any], keys: Requests) -> bool:
    return bool(ctx.input_responses) and set(keys) <= set(ctx.input_responses or {})


def _told(ctx: Context[Any, Any]) -> str:
    answers = {name: answer.model_dump(mode="json") for name, answer in (ctx.input_responses or {}).items()}
    return f"Hello, {answers}! state-ok"


def _add(server: PrimusServer, name: str) -> None:
    questions, state = QUESTIONS[name]

    async def ask(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        wanted = questions()
        if not _answered(ctx, wanted) or (state is not None and ctx.request_state != state):
            return InputRequiredResult(input_requests=wanted, request_state=state)
        return _told(ctx)

    server.add_tool(ask, name=name, description="Asks before it answers.", structured_output=False)


def add_asking_fixtures(server: PrimusServer) -> None:
    """Mount them."""
    for name in QUESTIONS:
        _add(server, name)

    async def test_input_required_result_multi_round(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        """Asks twice."""
        if ctx.request_state == "two" and _answered(ctx, {"step2": roots()}):
            return _told(ctx)
        if ctx.request_state == "one" and _answered(ctx, {"step1": roots()}):
            return InputRequiredResult(
                input_requests={"step2": form("Step 2: What is your favorite color?", color="string")}, request_state="two"
            )
        return InputRequiredResult(input_requests={"step1": form("Step 1: What is your name?", name="string")}, request_state="one")

    async def test_input_required_result_capabilities(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        """Asks only what the client can answer."""
        can = ctx.client_capabilities
        wanted: Requests = {}
        if can is not None and can.sampling is not None:
            wanted["question"] = sample("Anything?", 10)
        if can is not None and can.elicitation is not None:
            wanted["form"] = form("Anything?", text="string")
        return _told(ctx) if not wanted or _answered(ctx, wanted) else InputRequiredResult(input_requests=wanted)

    for tool in (test_input_required_result_multi_round, test_input_required_result_capabilities):
        server.add_tool(tool, structured_output=False)

    @server.prompt()
    async def test_input_required_result_prompt(ctx: Context[Any, Any]) -> Any:
        """A prompt that asks first."""
        wanted: Requests = {"user_context": form("What context should the prompt use?", context="string")}
        return UserMessage(_told(ctx)) if _answered(ctx, wanted) else InputRequiredResult(input_requests=wanted)
