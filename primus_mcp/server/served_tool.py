"""A registry tool as MCP sees it: arguments checked, run off the event loop, errors as ToolError, long work as jobs."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool as McpTool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.types import CallToolResult, ContentBlock, ImageContent, TextContent, ToolAnnotations
from pydantic import BaseModel, PrivateAttr

from primus_mcp.errors import PrimusMcpError
from primus_mcp.server.application import Application, owner_of
from primus_mcp.server.host import status
from primus_mcp.server.jobs import Job
from primus_mcp.server.schemas import SESSION_ID, argument_model, check_arguments, input_schema, output_schema
from primus_mcp.server.sessions import OpenSession
from primus_mcp.server.wording import for_tools, result_for_tools
from primus_mcp.tools.registry import Tool, ToolContext
from primus_mcp.tools.results import Picture, Result
from primus_mcp.tools.text import MAX_RESULT_CHARACTERS, clean

MAX_ERROR = 2_000
POLL_S = 0.1
SLOW = (
    "open_session",
    "set_cluster",
    "evaluate_simulate",
    "evaluate_memory_only",
    "explain_trial",
    "plot_trials",
    "write_report",
    "export_best",
)
WAITING = ("get_job", "cancel_job", "query_llm")
_log = logging.getLogger(__name__)


def told(error: PrimusMcpError) -> str:
    """The text of an error in terms of tools instead of the command line."""
    return clean(for_tools(str(error)), MAX_ERROR)


def as_call_result(result: Result) -> CallToolResult:
    """Everything in structuredContent, the same as JSON text, and the picture of a plot."""
    structured = result_for_tools(result.model_dump(mode="json"))
    text = json.dumps(structured, ensure_ascii=False, separators=(",", ":"))
    if len(text) > 4 * MAX_RESULT_CHARACTERS:
        raise ToolError("the result is too large; ask for less (limit, detail)")
    content: list[ContentBlock] = [TextContent(type="text", text=text)]
    if isinstance(result, Picture):
        from base64 import b64encode

        content.insert(0, ImageContent(type="image", data=b64encode(result.png).decode(), mime_type="image/png"))
    return CallToolResult(content=content, structured_content=structured)


class ServedTool(McpTool):
    """Made by `served`."""

    _entry: Tool = PrivateAttr()
    _arguments: type[BaseModel] = PrivateAttr()
    _app: Application = PrivateAttr()

    def bound(self, entry: Tool, arguments: type[BaseModel], app: Application) -> ServedTool:
        """The same tool, told what it serves."""
        self._entry, self._arguments, self._app = entry, arguments, app
        return self

    async def run(self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False) -> Any:
        """Check, run, convert. Every failure is a ToolError; of one that is not ours only the fact is told."""
        try:
            values = check_arguments(self._entry, self._arguments, arguments)
            result = await self._call(values, context)
            return as_call_result(result) if convert_result else result
        except PrimusMcpError as error:
            raise ToolError(told(error)) from None
        except ToolError:
            raise
        except Exception as error:
            raise UnexpectedToolError(
                f"{self.name}: an internal error; nothing that was logged is lost. The server's log has the details"
            ) from error

    async def _call(self, values: dict[str, Any], context: Context[Any, Any]) -> Result:
        entry, app = self._entry, self._app
        owner = owner_of(context.request_context.request)
        if entry.scope == "none":
            return await self._in_thread(partial(entry.function, **values))
        if entry.scope == "host":
            result = await self._in_thread(partial(entry.function, app.host(owner), **values))
            if entry.name in ("open_session", "set_cluster"):
                await app.sessions_changed(context.session)
            return result
        opened = app.store.find(values.pop(SESSION_ID), owner)
        before = opened.tuning.resumed
        try:
            if entry.long:
                return await self._as_job(opened, values, context)
            return await self._in_thread(partial(entry.function, self._context(opened), **values))
        finally:
            if opened.tuning.resumed != before:
                with anyio.CancelScope(shield=True):
                    await app.trials_landed(opened)

    def _context(self, opened: OpenSession) -> ToolContext:
        elsewhere = partial(self._app.store.problem_on, opened)
        return ToolContext(session=opened.tuning, ask_llm=self._app.llm.ask if self._app.llm else None, elsewhere=elsewhere)

    async def _in_thread(self, function: Any) -> Result:
        """Off the event loop. A call that is cancelled leaves its thread to finish: a trial that was begun is logged."""
        kind = "wait" if self.name in WAITING else "work" if self.name in SLOW else "read"
        result: Result = await anyio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=self._app.limiter(kind))
        return result

    async def _as_job(self, opened: OpenSession, values: dict[str, Any], context: Context[Any, Any]) -> Result:
        """The result if it is there in time, with progress until then; else a handle. A cancelled call cancels the job."""
        tool_context, function = self._context(opened), self._entry.function

        def work(report: Any, should_stop: Any) -> Result:
            return function(replace(tool_context, progress=report, should_stop=should_stop), **values)

        job = self._app.jobs.start(self.name, opened.owner, work)
        try:
            await self._follow(job, context)
        except BaseException:
            self._app.jobs.cancel(job)
            raise
        if job.state == "running":
            return status(job)
        if job.result is None:
            raise ToolError(clean(job.error or "it was cancelled before it had a result", MAX_ERROR))
        return job.result

    async def _follow(self, job: Job, context: Context[Any, Any]) -> None:
        told_of = -1
        with anyio.move_on_after(self._app.options.answer_within_s):
            while not job.finished.is_set():
                if job.done != told_of:
                    told_of = job.done
                    await context.report_progress(job.done, job.total or None, job.text)
                await anyio.sleep(POLL_S)


def served(entry: Tool, app: Application) -> ServedTool:
    """One tool of the registry for one server."""
    session_required = app.options.http
    model = argument_model(entry, session_required=session_required)
    published = output_schema(entry.result_type) if entry.listed_result else None
    tool = ServedTool(
        fn=entry.function,
        name=entry.name,
        title=entry.title,
        description=entry.description,
        parameters=input_schema(model),
        fn_metadata=FuncMetadata(arg_model=ArgModelBase, output_schema=published),
        is_async=True,
        context_kwarg=None,
        annotations=ToolAnnotations(
            read_only_hint=entry.read_only,
            destructive_hint=None if entry.read_only else entry.destructive,
            idempotent_hint=None if entry.read_only else entry.idempotent,
            open_world_hint=entry.open_world,
        ),
    )
    return tool.bound(entry, model, app)
