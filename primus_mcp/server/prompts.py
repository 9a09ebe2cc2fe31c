"""MCP prompts from `prompts/*.md`, and completions of their arguments and of resource URIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.prompts.base import PromptArgument
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, CompleteRequestParams, CompleteResult, Completion

from primus_mcp.errors import PrimusMcpError
from primus_mcp.inputs.hardware_files import gpu_names
from primus_mcp.inputs.published import published_models
from primus_mcp.server.application import Application, owner_of
from primus_mcp.server.sessions import OpenSession
from primus_mcp.tools.prompt_files import PromptFile, prompt_file
from primus_mcp.tools.text import clean

PROMPTS = ("tune_workload", "explain_best", "will_it_fit", "plan_cluster")
MAX_COMPLETIONS = 100
MAX_ARGUMENT = 1_000
COMMON_NODES = ("1", "2", "4", "8", "16", "32", "64", "128")


def _renderer(prompt: PromptFile) -> Callable[..., str]:
    def render(**values: Any) -> str:
        try:
            return prompt.render({name: clean(str(value), MAX_ARGUMENT).replace("\n", " ") for name, value in values.items()})
        except PrimusMcpError as error:
            raise MCPError(code=INVALID_PARAMS, message=str(error)) from None

    return render


def add_prompts(server: MCPServer[Any]) -> None:
    """Register every prompt."""
    for name in PROMPTS:
        prompt = prompt_file(name)
        arguments = [PromptArgument(name=entry.name, description=entry.description, required=entry.required) for entry in prompt.arguments]
        server.add_prompt(
            Prompt(
                name=name, title=prompt.title, description=prompt.description, arguments=arguments, fn=_renderer(prompt), context_kwarg=None
            )
        )


def _candidates(argument: str, sessions: list[OpenSession]) -> list[str]:
    if argument == "workload":
        return list(published_models())
    if argument == "gpu":
        return list(gpu_names())
    if argument in ("nodes", "sizes"):
        return list(COMMON_NODES)
    if argument == "session_id":
        return [entry.session_id for entry in sessions]
    if argument == "trial_id":
        return [str(record.trial_id) for entry in sessions for record in entry.tuning.history()]
    return []


def completer(app: Application) -> Callable[..., Any]:
    """`completion/complete`: models, GPUs, and the caller's own sessions and trials."""

    async def handle(ctx: ServerRequestContext[Any, Any], params: CompleteRequestParams) -> CompleteResult:
        sessions = app.store.of(owner_of(ctx.request))
        given = params.context.arguments if params.context and params.context.arguments else {}
        if "session_id" in given:
            sessions = [entry for entry in sessions if entry.session_id == given["session_id"]]
        values = await anyio.to_thread.run_sync(_candidates, params.argument.name, sessions)
        wanted = params.argument.value.lower()
        starts = [value for value in values if value.lower().startswith(wanted)]
        found = list(dict.fromkeys([*starts, *(value for value in values if wanted in value.lower())]))
        return CompleteResult(
            completion=Completion(values=found[:MAX_COMPLETIONS], total=len(found), has_more=len(found) > MAX_COMPLETIONS)
        )

    return handle
