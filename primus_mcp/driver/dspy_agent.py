"""The agent that DSPy runs: `ChainOfThought` plans, `RLM` searches with code in the sandbox, `ReAct` where there is no sandbox."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from primus_mcp.driver.belt import SearchTool
from primus_mcp.driver.briefing import INPUTS
from primus_mcp.driver.desk import Desk
from primus_mcp.driver.dspy_model import language_model, reply_of
from primus_mcp.driver.prompts import SUMMARIES, Task, planner_instructions, search_instructions, where_it_stands
from primus_mcp.driver.sandbox import SandboxError, Sandboxes
from primus_mcp.driver.settings import LanguageModel
from primus_mcp.driver.stops import Stop, ToolFailedError
from primus_mcp.errors import PrimusMcpError
from primus_mcp.tools.registry import LlmReply

MAX_BAD_REPLIES = 3
"""Unreadable replies in a row that end a round."""
MAX_OBSERVATION = 8_000
MAX_OUTPUT = 10_000
_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)
_NUDGE = "print('Your last reply could not be read: write the fields [[ ## reasoning ## ]] and [[ ## code ## ]], nothing else.')"
Method = Literal["rlm", "react"]


def _code_in(reply: str) -> str | None:
    """The only fenced Python block of a reply that lacks its fields."""
    blocks = _FENCE.findall(reply)
    return blocks[0].strip() if len(blocks) == 1 else None


class DspyAgent:
    """`method`: `rlm` with a sandbox, else `react`. Every request goes over the desk."""

    def __init__(
        self,
        model: LanguageModel,
        desk: Desk,
        *,
        extras: tuple[str, ...] = (),
        sandboxes: Sandboxes | None = None,
        task: Task = "search",
    ) -> None:
        self._model, self._desk, self._extras, self._sandboxes, self._task = model, desk, extras, sandboxes, task
        self._lm = language_model(model, desk=desk)
        self._sub_lm = language_model(model)
        self._rounds: _Rounds | None = None
        self._chat: Any = None
        self.method: Method = "rlm" if sandboxes is not None else "react"
        self.name = self.method
        self.ask: Callable[[str, str], LlmReply] | None = self._ask

    @contextmanager
    def _dspy(self, purpose: str) -> Any:
        """DSPy with this model and our chat format, and every failure turned into a Stop."""
        import dspy
        from dspy.primitives.code_interpreter import CodeInterpreterError
        from dspy.utils.exceptions import AdapterParseError

        self._lm.purpose = purpose
        quiet = logging.getLogger("dspy")
        level, quiet.level = quiet.level, logging.ERROR
        self._chat = self._chat or _system_text_once(dspy)
        try:
            with dspy.context(lm=self._lm, adapter=self._chat, disable_history=False, max_history_size=1, track_usage=False):
                yield dspy
        except AdapterParseError:
            raise Stop("the model's reply could not be read", scope="round", cause="reply") from None
        except (CodeInterpreterError, SandboxError) as error:
            raise Stop(f"the sandbox was lost: {_line(error)}", scope="round", cause="sandbox") from None
        except PrimusMcpError:
            raise
        except Exception as error:
            logging.getLogger(__name__).debug("a round failed", exc_info=True)
            raise Stop(f"the round failed: {_line(error)}", scope="round", cause="reply") from None
        finally:
            quiet.level = level

    def plan(self, inputs: Mapping[str, Any]) -> str:
        """One `ChainOfThought`; an unreadable reply is asked for once more."""
        with self._dspy("plan") as dspy:
            fields = {name: (_type_of(value), dspy.InputField(desc=INPUTS[name])) for name, value in inputs.items()}
            output = {"plan": (str, dspy.OutputField(desc="what to try, in order, each with its reason; at most 15 lines"))}
            planner = dspy.ChainOfThought(dspy.Signature({**fields, **output}, planner_instructions(self._extras)))
            from dspy.utils.exceptions import AdapterParseError

            with suppress(AdapterParseError):
                return str(planner(**inputs).plan)
            return str(planner(**inputs).plan)
        return ""

    def search(self, inputs: Mapping[str, Any], tools: Mapping[str, SearchTool], max_iterations: int) -> str:
        """One round by the method that works here."""
        with self._dspy("rlm") as dspy:
            if self._rounds is None or self._rounds.tools is not tools:
                self._rounds = self._built(dspy, inputs, tools)
            return str(self._rounds.run(inputs, max_iterations).summary)
        return ""

    def _built(self, dspy: Any, inputs: Mapping[str, Any], tools: Mapping[str, SearchTool]) -> _Rounds:
        """The module of all rounds: what DSPy derives from signatures and tools is the same in each of them."""
        fields = {name: (_type_of(value), dspy.InputField(desc=INPUTS[name])) for name, value in inputs.items()}
        output = {"summary": (str, dspy.OutputField(desc=SUMMARIES[self._task]))}
        signature = dspy.Signature({**fields, **output}, search_instructions(self.method, tuple(tools), self._extras, task=self._task))
        module, predictor = (_rlm if self.method == "rlm" else _react)(dspy, signature, tools, self._sandboxes)
        return _Rounds(tools=tools, module=module, predictor=predictor)

    def _ask(self, prompt: str, system: str) -> LlmReply:
        """For query_llm, which is budgeted and recorded as a tool call. Raises InputError."""
        from primus_mcp.driver.stops import ProviderError
        from primus_mcp.errors import InputError

        messages = [{"role": "system", "content": system}] if system else []
        try:
            reply = self._desk.in_time(
                lambda: reply_of(
                    self._sub_lm, lambda: _plain_call(self._sub_lm, [*messages, {"role": "user", "content": prompt}]), self._model.secret
                )
            )
        except ProviderError as error:
            raise InputError(str(error), where="query_llm", remedy="go on without it") from None
        return LlmReply(
            model=reply.model, text=reply.text, input_tokens=reply.input_tokens, output_tokens=reply.output_tokens, usd=reply.usd
        )


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _type_of(value: Any) -> Any:
    return str if isinstance(value, str) else dict


def _tolerant(dspy: Any, predict: Any, salvage: Callable[[str], Any]) -> Any:
    """A predictor that turns an unreadable reply into a harmless step, `MAX_BAD_REPLIES` times in a row."""
    from dspy.utils.exceptions import AdapterParseError

    class Tolerant(dspy.Module):  # type: ignore[misc]
        """`begin` puts what is true of this round at the end of instructions that stay the same."""

        def __init__(self) -> None:
            super().__init__()
            self.predict, self.signature, self.bad = predict, predict.signature, 0

        def begin(self, present: str) -> None:
            lasting = self.predict.signature
            self.signature, self.bad = lasting.with_instructions(f"{lasting.instructions}\n\n{present}"), 0

        def forward(self, **inputs: Any) -> Any:
            try:
                answer = self.predict(**{"signature": self.signature, **inputs})
            except AdapterParseError as error:
                self.bad += 1
                if self.bad >= MAX_BAD_REPLIES:
                    raise Stop(f"{self.bad} replies in a row could not be read", scope="round", cause="reply") from None
                return salvage(error.lm_response or "")
            self.bad = 0
            return answer

    return Tolerant()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rounds:
    """One DSPy module that runs every round with `tools`."""

    tools: Mapping[str, SearchTool]
    module: Any
    predictor: Any

    def run(self, inputs: Mapping[str, Any], max_iterations: int) -> Any:
        """A round from nothing but its inputs."""
        self.module.max_iters = max_iterations
        self.predictor.begin(where_it_stands(str(inputs["briefing"])))
        return self.module(**inputs)


def _checked_by_the_belt(dspy: Any, tool: SearchTool) -> Any:
    """DSPy's description of a tool, whose arguments the belt checks: DSPy would build a model and a JSON schema validator in every call."""

    class BeltTool(dspy.Tool):  # type: ignore[misc]
        def __call__(self, **arguments: Any) -> Any:
            return self.func(**arguments)

    return BeltTool(tool)


def _system_text_once(dspy: Any) -> Any:
    """DSPy's chat format, without a second try behind our back, that writes the system text of a round once."""

    class Chat(dspy.ChatAdapter):  # type: ignore[misc]
        written: tuple[Any, str] = (None, "")

        def format_system_message(self, signature: Any) -> str:
            if self.written[0] is not signature:
                self.written = signature, super().format_system_message(signature)
            return self.written[1]

    return Chat(use_json_adapter_fallback=False)


def _canned(dspy: Any) -> Any:
    """In place of the request with which DSPy extracts an answer when iterations are used up."""

    class Canned(dspy.Module):  # type: ignore[misc]
        def forward(self, **_: Any) -> Any:
            return dspy.Prediction(summary="")

    return Canned()


def _rlm(dspy: Any, signature: Any, tools: Mapping[str, SearchTool], sandboxes: Sandboxes | None) -> tuple[Any, Any]:
    """Code in the sandbox; its own sub-models are off (`max_llm_calls=0`): `query_llm` is budgeted, they are not."""
    assert sandboxes is not None

    def factory() -> Any:
        return sandboxes.take()

    factory.execution_instructions = dspy.PythonInterpreter.execution_instructions  # type: ignore[attr-defined]
    functions = [_checked_by_the_belt(dspy, tool) for tool in tools.values()]
    rlm = dspy.RLM(signature, max_llm_calls=0, max_output_chars=MAX_OUTPUT, tools=functions, interpreter_factory=factory)

    def salvage(reply: str) -> Any:
        code = _code_in(reply)
        return dspy.Prediction(reasoning="(the reply was not in the format)", code=code or _NUDGE)

    rlm.generate_action = _tolerant(dspy, rlm.generate_action, salvage)
    rlm.extract = _canned(dspy)
    return rlm, rlm.generate_action


def _react(dspy: Any, signature: Any, tools: Mapping[str, SearchTool], _: Sandboxes | None) -> tuple[Any, Any]:
    """The same tools, called one at a time; nothing that the model writes is run."""
    react = dspy.ReAct(signature, tools=[_observed(tool) for tool in tools.values()])

    def salvage(_: str) -> Any:
        return dspy.Prediction(next_thought="(the reply was not in the format)", next_tool_name="get_budget_status", next_tool_args={})

    react.react = _tolerant(dspy, react.react, salvage)
    react.extract = _canned(dspy)
    return react, react.react


def _observed(tool: SearchTool) -> SearchTool:
    """The tool with its result as short text, and its refusals as text."""

    def call(**arguments: Any) -> str:
        try:
            text = json.dumps(tool(**arguments), ensure_ascii=False)
        except ToolFailedError as error:
            return f"refused: {error}"
        return text if len(text) <= MAX_OBSERVATION else f"{text[:MAX_OBSERVATION]}... ({len(text) - MAX_OBSERVATION:,} more characters)"

    call.__name__, call.__doc__ = tool.__name__, tool.__doc__
    call.__dict__["__signature__"] = tool.__signature__  # type: ignore[attr-defined]
    call.__annotations__ = dict(tool.__annotations__) | {"return": str}
    return call


def _plain_call(lm: Any, messages: list[dict[str, str]]) -> list[Any]:
    """The request without the desk: the tool around it is recorded."""
    import dspy

    return list(dspy.LM.__call__(lm, messages=messages))
