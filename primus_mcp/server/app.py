"""The MCP server: the registry's tools, the server's own, resources and prompts, for both protocol eras."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.types import CompleteRequestParams, PaginatedRequestParams, SubscribeRequestParams, UnsubscribeRequestParams

from primus_mcp.server.application import Application
from primus_mcp.server.host import HOST_TOOLS
from primus_mcp.server.options import READ_ONLY_PREFIXES, ServeOptions
from primus_mcp.server.prompts import add_prompts, completer
from primus_mcp.server.resources import add_resources, resource_lister, subscribe_handlers
from primus_mcp.server.served_tool import served
from primus_mcp.server.sessions import SessionStore
from primus_mcp.tools import TOOLS, Tool
from primus_mcp.tools.llm import LlmClient, llm_client
from primus_mcp.tools.prompt_files import prompt_text
from primus_mcp.version import PACKAGE_VERSION

NAME, TITLE = "primus-mcp", "Primus tuning"
DESCRIPTION = "Finds the fastest Primus training configuration that fits in memory, by projection"
FIRST = ("open_session", "set_cluster")


def listed_tools(options: ServeOptions) -> list[Tool]:
    """The tools of a server: they depend on how it was started, never on a file's content."""
    everything = {**HOST_TOOLS, **TOOLS}
    order = [*FIRST, *TOOLS, *(name for name in HOST_TOOLS if name not in FIRST)]
    return [
        everything[name]
        for name in order
        if everything[name].toolset in (*options.toolsets, "session") and (not options.read_only or name.startswith(READ_ONLY_PREFIXES))
    ]


class PrimusServer(MCPServer[None]):
    """MCPServer with the requests that it leaves unserved: legacy subscriptions, lists and completions that know the caller."""

    def __init__(self, app: Application) -> None:
        self.app = app

        @asynccontextmanager
        async def lifespan(_: MCPServer[None]) -> AsyncIterator[None]:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(app.watch)
                yield
                tasks.cancel_scope.cancel()

        super().__init__(
            NAME,
            title=TITLE,
            description=DESCRIPTION,
            instructions=prompt_text("instructions"),
            version=PACKAGE_VERSION,
            lifespan=lifespan,
            log_level="WARNING",
            subscriptions=app.bus,
            tools=[served(tool, app) for tool in listed_tools(app.options)],
        )
        add_resources(self, app)
        add_prompts(self)
        subscribe, unsubscribe = subscribe_handlers(app)
        self._handle("resources/subscribe", SubscribeRequestParams, subscribe)
        self._handle("resources/unsubscribe", UnsubscribeRequestParams, unsubscribe)
        self._handle("resources/list", PaginatedRequestParams, resource_lister(self, app))
        self._handle("completion/complete", CompleteRequestParams, completer(app))

    def _handle(self, method: str, params: Any, handler: Callable[..., Any]) -> None:
        self._lowlevel_server.add_request_handler(method, params, handler)


def build_server(options: ServeOptions, *, llm: LlmClient | None = None) -> PrimusServer:
    """A server with the session that the command line names open. Raises InputError for what that names wrongly."""
    app = Application(options=options, store=SessionStore(options), llm=llm or llm_client())
    app.store.open_at_start()
    return PrimusServer(app)
