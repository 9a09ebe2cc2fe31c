"""TOOLS: one typed, documented function a verb over TuningSession; the MCP server and the DSPy driver get the same ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, get_type_hints

from primus_mcp.api import Problem
from primus_mcp.session import TuningSession
from primus_mcp.tools.results import Result
from primus_mcp.trials.log import Origin

Toolset = Literal["session", "evaluate", "search", "inspect", "notes", "benchmark", "llm"]
Scope = Literal["session", "none", "host"]
"""`session`: the first parameter is a ToolContext; `none`: plain function; `host`: the first parameter is the server's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmReply:
    """What a language model answered. None: the provider did not say."""

    model: str
    text: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool works on: a session, who asks, a language model if one is set up, and how long work reports and stops.

    `elsewhere(GPU or "", nodes or 0)`: the session's workload on another cluster; None: there is none but its own.
    """

    session: TuningSession
    origin: Origin = "user"
    ask_llm: Callable[[str, str], LlmReply] | None = None
    elsewhere: Callable[[str, int], Problem] | None = None
    progress: Callable[[int, int, str], None] = lambda _done, _total, _text: None
    should_stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A verb. `read_only`: changes nothing; `open_world`: reaches beyond this machine; `long`: may take minutes; `listed_result`: its
    result schema is worth its tokens.
    """

    name: str
    title: str
    function: Callable[..., Result]
    toolset: Toolset
    scope: Scope
    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool
    long: bool
    listed_result: bool

    @property
    def description(self) -> str:
        """The docstring, one paragraph."""
        return " ".join((inspect.getdoc(self.function) or "").split())

    @property
    def result_type(self) -> type[Result]:
        """Model of the result."""
        found: type[Result] = get_type_hints(self.function)["return"]
        return found

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """Parameters that a caller gives, annotations evaluated."""
        hints = get_type_hints(self.function, include_extras=True)
        given = list(inspect.signature(self.function).parameters.values())[0 if self.scope == "none" else 1 :]
        return {parameter.name: parameter.replace(annotation=hints[parameter.name]) for parameter in given}


TOOLS: dict[str, Tool] = {}
"""Every verb by name, in the order of `tools/__init__.py`."""


def tool(
    title: str,
    *,
    toolset: Toolset,
    scope: Scope = "session",
    read_only: bool = False,
    destructive: bool = False,
    idempotent: bool = False,
    open_world: bool = False,
    long: bool = False,
    listed_result: bool = False,
    into: dict[str, Tool] = TOOLS,
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Register a function under its own name."""

    def register(function: Callable[..., Result]) -> Callable[..., Result]:
        assert function.__name__ not in into, function.__name__
        into[function.__name__] = Tool(
            name=function.__name__,
            title=title,
            function=function,
            toolset=toolset,
            scope=scope,
            read_only=read_only,
            destructive=destructive,
            idempotent=idempotent or read_only,
            open_world=open_world,
            long=long,
            listed_result=listed_result,
        )
        return function

    return register


def bind(context: ToolContext, tools: Mapping[str, Tool] | None = None) -> dict[str, Callable[..., Result]]:
    """Plain functions with real signatures over one session, by name: what an agent in this process calls."""
    return {name: _bound(entry, context) for name, entry in (TOOLS if tools is None else tools).items() if entry.scope != "host"}


def _bound(entry: Tool, context: ToolContext) -> Callable[..., Result]:
    @wraps(entry.function)
    def call(*args: Any, **kwargs: Any) -> Result:
        return entry.function(*args, **kwargs) if entry.scope == "none" else entry.function(context, *args, **kwargs)

    del call.__wrapped__
    parameters = entry.parameters
    call.__dict__["__signature__"] = inspect.Signature(list(parameters.values()), return_annotation=entry.result_type)
    call.__annotations__ = {**{name: parameter.annotation for name, parameter in parameters.items()}, "return": entry.result_type}
    return call
