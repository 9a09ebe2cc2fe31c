"""A small session, scripted agents and what the tests need to know of an environment."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from workload_cases import TWO_NODES, written_workload

from primus_mcp.driver.belt import SearchTool
from primus_mcp.driver.desk import Desk, Reply
from primus_mcp.driver.stops import ToolFailedError
from primus_mcp.evaluation.evaluators import Mode, Rules, make_evaluator
from primus_mcp.inputs.cluster import parse_cluster
from primus_mcp.session import TuningSession
from primus_mcp.tools.registry import LlmReply

HAS_DSPY = importlib.util.find_spec("dspy") is not None
needs_dspy = pytest.mark.skipif(not HAS_DSPY, reason="dspy is not installed: primus-mcp[agent]")
needs_deno = pytest.mark.skipif(
    not HAS_DSPY or importlib.util.find_spec("deno") is None, reason="dspy and Deno are not installed: primus-mcp[agent]"
)


def open_session(
    folder: Path, *, mode: Mode = "full", budget: Mapping[str, Any] | None = None, agent: Mapping[str, Any] | None = None
) -> TuningSession:
    """Mixtral 8x7B on two nodes of MI300X. `budget`: limits by name."""
    folder.mkdir(parents=True, exist_ok=True)
    degrees = {"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1, "expert_model_parallel_size": 8}
    workload = written_workload(folder, "mixtral_8x7B_v0.1", **degrees, micro_batch_size=2)
    target = parse_cluster({**TWO_NODES, "agent": dict(agent or {})}, where="cluster.yaml")
    rules = Rules(workload=workload, cluster=target.cluster, axes=target.axes.model_dump(), pins={})
    return TuningSession.open(workload, target, make_evaluator(rules, mode=mode), folder / "run", limits=dict(budget or {}))


class LocalSandboxes:
    """DSPy's interpreter without a boundary, which starts fast: for code that the tests wrote themselves."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s

    def probe(self) -> None:
        """It runs anywhere."""

    def take(self) -> Any:
        import dspy

        return dspy.LocalInterpreter(execution_timeout=self._limit_s)

    def close(self) -> None:
        """Nothing waits."""


class ScriptedAgent:
    """Answers over the desk from texts, and carries each text out as `tool {json}` lines: what an LLM and a sandbox do, without either."""

    name = "scripted"

    def __init__(self, desk: Desk, answer: Callable[[int], str]) -> None:
        self._desk, self._answer, self._asked = desk, answer, 0
        self.ask: Callable[[str, str], LlmReply] | None = None

    def _say(self, purpose: str, number: int) -> str:
        def send() -> Reply:
            self._asked += 1
            return Reply(text=self._answer(number), model="scripted", input_tokens=100, output_tokens=10, usd=0.001)

        return self._desk.ask(send, purpose=purpose)

    def plan(self, inputs: Mapping[str, Any]) -> str:
        return self._say("plan", 0)

    def search(self, inputs: Mapping[str, Any], tools: Mapping[str, SearchTool], max_iterations: int) -> str:
        for iteration in range(max_iterations):
            text = self._say("rlm", self._desk.round_index * 100 + iteration)
            for line in text.splitlines():
                name, _, arguments = line.partition(" ")
                if name == "SUBMIT":
                    return arguments
                try:
                    tools[name](**json.loads(arguments or "{}"))
                except ToolFailedError:
                    continue
        return "out of iterations"
