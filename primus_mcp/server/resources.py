"""Resources: the guide, and of every open session the log, each trial, the best, notes, model, cluster, axes and the plot."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    EmptyResult,
    ListResourcesResult,
    PaginatedRequestParams,
    Resource,
    SubscribeRequestParams,
    UnsubscribeRequestParams,
)

from primus_mcp.errors import PrimusMcpError
from primus_mcp.inputs.regular_file import read_regular
from primus_mcp.server.application import Application, owner_of, session_uri
from primus_mcp.server.served_tool import told
from primus_mcp.server.wording import result_for_tools
from primus_mcp.tools import TOOLS, ToolContext
from primus_mcp.tools.prompt_files import prompt_text
from primus_mcp.tools.results import Picture, Reported

JSON, PNG, HTML, MARKDOWN = "application/json", "image/png", "text/html", "text/markdown"
GUIDE_URI = "primus://guide"
PAGE = 50
PARTS: dict[str, tuple[str, str, str]] = {
    "trials": ("get_history", "Trial log, newest first (first 100; ?cursor= for more)", JSON),
    "best": ("get_best", "Best trial so far", JSON),
    "scratchpad": ("read_scratchpad", "Notes of the run", JSON),
    "architecture": ("get_architecture", "The model that would run", JSON),
    "cluster": ("get_cluster", "The target cluster", JSON),
    "axes": ("get_legal_axes", "Every knob and its legal values", JSON),
    "budget": ("get_budget_status", "Limits and what was spent", JSON),
    "plot": ("plot_trials", "Throughput and memory by trial", PNG),
    "report": ("write_report", "Page with charts of everything tried and swept", HTML),
}
"""Part of a session's URI: the tool whose answer it is, its description and type."""


def _call(app: Application, name: str, session_id: str, owner: str, arguments: dict[str, Any]) -> str | bytes:
    entry = app.store.find(session_id, owner)
    if name == "get_best" and entry.tuning.best().best is None:
        return json.dumps({"trial_id": None, "reason": f"none of {entry.tuning.resumed} trials can be recommended"})
    result = TOOLS[name].function(ToolContext(session=entry.tuning), **arguments)
    if isinstance(result, Reported):
        return read_regular(Path(result.path)).decode("utf-8")
    if isinstance(result, Picture):
        return result.png
    return json.dumps(result_for_tools(result.model_dump(mode="json")), ensure_ascii=False, separators=(",", ":"))


async def _read(app: Application, name: str, session_id: str, context: Context[Any, Any], arguments: dict[str, Any]) -> str | bytes:
    owner = owner_of(context.request_context.request)
    try:
        return await anyio.to_thread.run_sync(
            partial(_call, app, name, session_id, owner, arguments), abandon_on_cancel=True, limiter=app.limiter("read")
        )
    except PrimusMcpError as error:
        missing = "session_id" in str(error) or "no trial" in str(error)
        raise (ResourceNotFoundError if missing else ResourceError)(told(error)) from None


def _part_reader(app: Application, tool_name: str) -> Callable[..., Any]:
    async def read(session_id: str, context: Context[Any, Any]) -> str | bytes:
        return await _read(app, tool_name, session_id, context, {})

    return read


def add_resources(server: MCPServer[Any], app: Application) -> None:
    """Register the guide and the templates."""

    @server.resource(GUIDE_URI, name="guide", title="How to tune", description="What an expert knows, with the reasons", mime_type=MARKDOWN)
    def guide() -> str:
        return prompt_text("guide")

    @server.resource(
        session_uri("{session_id}", "trials{?cursor}"),
        name="trials",
        title=PARTS["trials"][1],
        description=PARTS["trials"][1],
        mime_type=JSON,
    )
    async def trials(session_id: str, context: Context[Any, Any], cursor: str = "") -> str | bytes:
        return await _read(app, "get_history", session_id, context, {"limit": 100, "cursor": cursor})

    @server.resource(
        session_uri("{session_id}", "trials/{trial_id}"),
        name="trial",
        title="One trial",
        description="One trial with every number",
        mime_type=JSON,
    )
    async def trial(session_id: str, trial_id: str, context: Context[Any, Any]) -> str | bytes:
        if not (trial_id.isascii() and trial_id.isdigit() and len(trial_id) < 10):
            raise ResourceNotFoundError(f"no trial {trial_id[:20]!r}: it is a whole number")
        return await _read(app, "get_trial", session_id, context, {"trial_id": int(trial_id)})

    for part, (tool_name, text, mime_type) in PARTS.items():
        if part != "trials":
            register = server.resource(session_uri("{session_id}", part), name=part, title=text, description=text, mime_type=mime_type)
            register(_part_reader(app, tool_name))


def _of_session(session_id: str, label: str) -> list[Resource]:
    return [
        Resource(uri=session_uri(session_id, part), name=f"{label}: {part}", title=text, mime_type=mime_type)
        for part, (_, text, mime_type) in PARTS.items()
    ]


def resource_lister(server: MCPServer[Any], app: Application) -> Callable[..., Any]:
    """`resources/list` with the caller's own sessions, in pages."""

    async def handle(ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None) -> ListResourcesResult:
        listed = list(await server.list_resources())
        for entry in app.store.of(owner_of(ctx.request)):
            listed += _of_session(entry.session_id, f"{entry.tuning.workload.name} on {entry.tuning.target.cluster.name}")
        cursor = (params.cursor if params else None) or "0"
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10 and int(cursor) <= len(listed)):
            raise MCPError(code=INVALID_PARAMS, message="cursor: pass nextCursor of the page before")
        end = int(cursor) + PAGE
        return ListResourcesResult(resources=listed[int(cursor) : end], next_cursor=str(end) if end < len(listed) else None)

    return handle


def subscribe_handlers(app: Application) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`resources/subscribe` and `unsubscribe` of the handshake era; the modern era listens on the bus.

    The SDK makes a session object a request; what the client said of itself in the handshake is one object a connection.
    """

    async def subscribe(ctx: ServerRequestContext[Any, Any], params: SubscribeRequestParams) -> EmptyResult:
        app.subscribe(id(ctx.session.client_params), ctx.session, str(params.uri))
        return EmptyResult()

    async def unsubscribe(ctx: ServerRequestContext[Any, Any], params: UnsubscribeRequestParams) -> EmptyResult:
        app.unsubscribe(id(ctx.session.client_params), str(params.uri))
        return EmptyResult()

    return subscribe, unsubscribe
