"""The tools that a model in the driver gets: TOOLS bound to the session, with budgets, the journal and plain JSON results around each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from primus_mcp.driver.desk import Desk
from primus_mcp.errors import InputError
from primus_mcp.session import TuningSession
from primus_mcp.tools import TOOLS, Result, Tool, ToolContext, bind
from primus_mcp.tools.configuration import ConfigJson, trial_of
from primus_mcp.tools.prompt_blocks import search_tools
from primus_mcp.tools.registry import LlmReply

EVALUATIONS = frozenset({"evaluate_simulate", "evaluate_with_benchmark"})
CONFIG = "config_json"
ESTIMATE_ONLY = ("target_ep_size",)
"""Knobs without a trainer key: a search that moved them would win by an assumption, not by a configuration."""
LEFT = "left"
TOLD = ("max_proposals", "max_perf_calls")
"""Budgets whose rest every evaluation tells."""
SearchTool = Callable[..., Any]
OnTrial = Callable[[Mapping[str, Any]], None]


def belt_tools(*, has_gpu: bool, has_llm: bool) -> dict[str, Tool]:
    """The verbs over one session that a model may use; measured runs only where this host can measure."""
    missing = {"benchmark": not has_gpu, "llm": not has_llm}
    return {name: TOOLS[name] for name in search_tools() if not missing.get(TOOLS[name].toolset, False)}


def _plain(annotation: Any) -> Any:
    """The type alone; a configuration may come as an object or as text."""
    if annotation == ConfigJson:
        return Any
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _adapters(entry: Tool) -> dict[str, TypeAdapter[Any]]:
    """What checks each argument; a configuration is checked where it is read."""
    annotations = {name: parameter.annotation for name, parameter in entry.parameters.items()}
    return {name: TypeAdapter(annotation) for name, annotation in annotations.items() if annotation != ConfigJson}


def _checked(entry: Tool, adapters: Mapping[str, TypeAdapter[Any]], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as the tool wants them. Raises InputError with the first fault."""
    checked: dict[str, Any] = {}
    for name, value in arguments.items():
        try:
            checked[name] = adapters[name].validate_python(value) if name in adapters else value
        except ValidationError as error:
            raise InputError(error.errors()[0]["msg"], where=f"{entry.name}({name}=...)") from None
    return checked


class Belt:
    """`functions`: by name, what the model calls. `on_trial` sees every evaluation, live or recorded."""

    def __init__(
        self,
        session: TuningSession,
        desk: Desk,
        *,
        ask_llm: Callable[[str, str], LlmReply] | None = None,
        on_trial: OnTrial = lambda _: None,
    ) -> None:
        self._session, self._desk, self._on_trial = session, desk, on_trial
        tools = belt_tools(has_gpu=session.target.benchmark_host.has_gpu, has_llm=ask_llm is not None)
        bound = bind(ToolContext(session=session, origin="llm", ask_llm=ask_llm), tools)
        self._get_trial = bound["get_trial"]
        self._adapters = {name: _adapters(entry) for name, entry in tools.items()}
        self.functions: dict[str, SearchTool] = {name: self._wrapped(entry, bound[name]) for name, entry in tools.items()}

    def _wrapped(self, entry: Tool, function: Callable[..., Result]) -> SearchTool:
        parameters = [parameter.replace(annotation=_plain(parameter.annotation)) for parameter in entry.parameters.values()]
        signature = inspect.Signature(parameters, return_annotation=dict)

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                arguments = dict(signature.bind(*args, **kwargs).arguments)
            except TypeError as error:
                problem = str(error)
                return self._desk.call(entry.name, {"args": list(args), **kwargs}, lambda: _refuse(entry.name, problem))
            outcome = self._desk.call(entry.name, arguments, lambda: self._work(entry, function, arguments))
            if entry.name in EVALUATIONS:
                self._on_trial(outcome)
            return outcome

        call.__name__ = call.__qualname__ = entry.name
        call.__doc__ = entry.description
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": dict}
        call.__dict__["__signature__"] = signature
        return call

    def _work(self, entry: Tool, function: Callable[..., Result], given: Mapping[str, Any]) -> dict[str, Any]:
        arguments = _checked(entry, self._adapters[entry.name], given)
        if entry.name not in EVALUATIONS:
            return _shown(function(**arguments))
        trial = trial_of(self._session, arguments.get(CONFIG))
        for name in ESTIMATE_ONLY:
            if getattr(trial, name) is not None and name not in self._session.pins:
                raise InputError("changes the estimate only, never the run", where=name, remedy="leave it out")
        key = self._session.evaluator.key(trial)
        known = self._session.log.find(key)
        if known is not None and key in self._desk.charged:
            self._desk.charged.discard(key)
            result = self._get_trial(trial_id=known.trial_id)
        else:
            if known is not None:
                self._session.budget.require("max_proposals", self._session.journal.events())
            result = function(**arguments)
        return _shown(result) | {LEFT: self._left()}

    def _left(self) -> dict[str, float | None]:
        rows = self._session.budget.status(self._session.journal.events(), TOLD)
        return {row.name: row.left for row in rows}


def _shown(result: Result) -> dict[str, Any]:
    """The result without its hint for chats, which names verbs that are not on the belt, and without unknown figures: the sandbox has an
    object of its own for null, which is not None.
    """
    shown: dict[str, Any] = _known(result.model_dump(mode="json", exclude={"next"}))
    return shown


def _known(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _known(item) for name, item in value.items() if item is not None}
    return [_known(item) for item in value] if isinstance(value, list) else value


def _refuse(name: str, problem: str) -> dict[str, Any]:
    raise InputError(problem, where=name, remedy="give the arguments by name")
