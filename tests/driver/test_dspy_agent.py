"""DSPy's parts around the desk: ReAct without a sandbox, errors of providers, the watchdog, the doctor."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from driver_cases import LocalSandboxes, needs_deno, needs_dspy, open_session
from scripted_server import Broken, Failure, Item, ScriptedServer, answer, code, reply

from primus_mcp.driver.desk import Clock
from primus_mcp.driver.doctor import check_llm, check_sandbox
from primus_mcp.driver.sandbox import SandboxError, Sandboxes, timed_interpreter
from primus_mcp.driver.settings import LanguageModel
from primus_mcp.driver.stage import StageEnd, run_llm_stage
from primus_mcp.inputs.cluster_file import AgentSettings
from primus_mcp.session import TuningSession
from primus_mcp.trials.journal import LlmCall, Round

KEY = "sk-a-secret-of-the-test"


def run(session: TuningSession, url: str, engine: Any = "auto") -> tuple[StageEnd, list[str]]:
    told: list[str] = []
    model = LanguageModel(
        model="openai/scripted", base_url=url, api_key=KEY, engine=engine, sources={"model": "t", "base_url": "t", "api_key": "t"}
    )
    return run_llm_stage(session, model, clock=Clock(sleep=lambda _: None), tell=told.append), told


class NoSandbox(LocalSandboxes):
    """Deno is missing."""

    def probe(self) -> None:
        raise SandboxError("Deno could not be started")


def act(tool: str, **arguments: Any) -> str:
    return reply(next_thought="t", next_tool_name=tool, next_tool_args=json.dumps(arguments))


@needs_dspy
def test_without_a_sandbox_no_code_is_run_and_the_same_tools_and_budgets_are_used_one_call_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("primus_mcp.driver.stage.Sandboxes", NoSandbox)
    session = open_session(tmp_path, mode="dry", budget={"max_rounds": 1, "max_proposals": 2})
    script = [
        reply(reasoning="", plan="p"),
        act("evaluate_simulate", config_json={"mbs": 1}),
        "unreadable",
        act("evaluate_simulate", config_json={"mbs": 2, "tp": 2}),
        act("evaluate_simulate", config_json={"mbs": 4}),
        act("finish"),
    ]
    with ScriptedServer(script) as server:
        stage, told = run(session, server.url)
        assert server.script == []
    assert stage.summary.method == "react"
    assert len(session.history()) == stage.summary.proposals == 2
    assert any("ReAct" in line and "Deno could not be started" in line for line in told)
    assert "max_proposals is used up" in server.requests[-1]["messages"][-1]["content"], "the model is told"


@needs_dspy
@pytest.mark.parametrize(
    ("failures", "requests", "words"),
    [([Failure(401, "bad key")], 1, "LMAuthError"), ([Failure(503, "busy")] * 5, 5, r"did not answer \(5 requests\)")],
)
def test_a_provider_that_fails_ends_the_search_without_the_key_in_any_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: list[Failure], requests: int, words: str
) -> None:
    monkeypatch.setattr("primus_mcp.driver.stage.Sandboxes", LocalSandboxes)
    session = open_session(tmp_path, mode="dry")
    with ScriptedServer(failures) as server:
        stage, _ = run(session, server.url)
    assert len(server.requests) == requests
    assert re.search(words, stage.end.reason), stage.end.reason
    assert KEY not in stage.end.reason
    assert all(event.error and KEY not in event.error for event in session.journal.events() if isinstance(event, LlmCall))


NOT_AN_ANSWER: tuple[Item, ...] = (
    Failure(500, "boom"),
    Broken(reset=True),
    Broken(),
    Broken(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"),
    answer(b"<html>Bad gateway</html>", "text/html", "502 Bad Gateway"),
    answer(b"<html>please log in</html>", "text/html"),
    answer(b'data: {"choices": [{"index": 0, "delta": {"content": "hi"}}]}\n\ndata: [DONE]\n\n', "text/event-stream"),
    answer(b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "\xff\xfe"}}]}'),
    answer(b""),
    answer(b"[]"),
)
UNREADABLE = (
    b'{"choices": []}',
    b'{"choices": [{"index": 0, "finish_reason": "content_filter", "message": {"role": "assistant", "content": null}}]}',
    b'{"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null, "tool_calls": '
    b'[{"id": "1", "type": "function", "function": {"name": "evaluate_simulate", "arguments": "{}"}}]}}]}',
)


@needs_dspy
@pytest.mark.parametrize("engine", ["auto", "litellm"])
def test_what_is_no_answer_is_asked_again_and_an_answer_without_text_costs_one_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setattr("primus_mcp.driver.stage.Sandboxes", LocalSandboxes)
    session = open_session(tmp_path, mode="dry", budget={"max_rounds": 1, "max_rlm_iterations": 30})
    script: list[Item] = [reply(reasoning="", plan="p")]
    for number, broken in enumerate(NOT_AN_ANSWER):
        script += [broken, code(f"note_to_scratchpad(note='{number}')")]
    for body in UNREADABLE:
        script += [answer(body), code("evaluate_simulate(config_json={'mbs': 1})")]
    script.append(code("SUBMIT(summary='s')"))
    total = len(script)
    with ScriptedServer(script) as server:
        stage, _ = run(session, server.url, engine=engine)
        assert server.script == []
    assert stage.end.summaries == ("s",)
    assert len(server.requests) == stage.summary.llm_requests == total
    failed = [event for event in session.journal.events() if isinstance(event, LlmCall) and event.error]
    assert len(failed) == len(NOT_AN_ANSWER)
    assert session.scratchpad.read().split() == [str(number) for number in range(len(NOT_AN_ANSWER))]
    assert len(session.history()) == 1


@needs_dspy
def test_a_provider_that_hangs_is_asked_twice_and_one_that_runs_away_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("primus_mcp.driver.stage.Sandboxes", LocalSandboxes)
    monkeypatch.setattr("primus_mcp.driver.desk.REQUEST_LIMIT_S", 1.0)
    endless = Broken(silent_s=60.0)
    session = open_session(tmp_path, mode="dry", budget={"max_rounds": 2})
    with ScriptedServer([reply(reasoning="", plan="p"), code(f"x = '{'a' * 5_000_000}'"), endless, endless, "not asked"]) as server:
        stage, _ = run(session, server.url)
        assert server.script == ["not asked"]
    assert stage.end.reason == "the language model did not answer (2 requests): no answer within 1 s"
    assert max(len(json.dumps(request["messages"])) for request in server.requests) < 100_000
    assert sum(path.stat().st_size for path in session.folder.path.rglob("*") if path.is_file()) < 200_000


@needs_dspy
def test_a_full_context_window_costs_one_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("primus_mcp.driver.stage.Sandboxes", LocalSandboxes)
    session = open_session(tmp_path, mode="dry", budget={"max_rounds": 2}, agent={"patience": 9})
    full = Failure(400, "This model's maximum context length is 8192 tokens")
    with ScriptedServer([reply(reasoning="", plan="p"), full, code("SUBMIT(summary='s')")]) as server:
        stage, _ = run(session, server.url)
        assert server.script == []
    assert stage.end.summaries == ("s",)
    assert sum(isinstance(event, Round) for event in session.journal.events()) == 2


@needs_dspy
def test_code_in_a_fence_is_run_without_the_fields_and_replies_that_stay_unreadable_end_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("primus_mcp.driver.stage.Sandboxes", LocalSandboxes)
    session = open_session(tmp_path, mode="dry", budget={"max_rounds": 2}, agent={"patience": 9})
    script = [
        "no plan",
        "still no plan",
        "Here you go:\n```python\nevaluate_simulate(config_json={'mbs': 1})\nSUBMIT(summary='s')\n```\nDone.",
        *["chatter"] * 3,
    ]
    with ScriptedServer(script) as server:
        stage, _ = run(session, server.url)
        assert server.script == []
    assert stage.end.summaries == ("s",)
    assert len(session.history()) == 1


@needs_dspy
@pytest.mark.parametrize(("engine", "base", "lm15"), [("auto", False, True), ("litellm", False, False), ("auto", True, False)])
def test_litellm_carries_the_requests_where_it_is_asked_for_or_the_environment_names_an_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, base: bool, lm15: bool
) -> None:
    monkeypatch.setattr("primus_mcp.driver.stage.Sandboxes", LocalSandboxes)
    if base:
        monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:1/v1")
    session = open_session(tmp_path, mode="dry", budget={"max_rounds": 1})
    with ScriptedServer([reply(reasoning="", plan="p"), code("SUBMIT(summary='s')")]) as server:
        stage, _ = run(session, server.url, engine=engine)
        assert server.script == [], "the model's own endpoint is asked"
    assert stage.end.summaries == ("s",)
    assert all(("lm15" in request["agent"]) == lm15 for request in server.requests)


@needs_deno
def test_the_sandbox_shows_nothing_of_the_host_and_ends_code_that_never_returns(tmp_path: Path) -> None:
    from dspy.primitives.code_interpreter import CodeInterpreterError

    secret = tmp_path / "secret"
    secret.write_text("x")
    sandbox = timed_interpreter()
    code_of = {
        "files": f"open({str(secret)!r}).read()",
        "environment": "import os\nassert 'PATH' not in os.environ, os.environ\nraise ValueError",
        "network": "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:1')",
        "processes": "import subprocess\nsubprocess.run(['true'])",
    }
    for name, source in code_of.items():
        inner = source.replace("\n", "\n  ")
        answer = sandbox.execute(f"try:\n  {inner}\n  print('open')\nexcept BaseException:\n  print('shut')")
        assert answer.strip() == "shut", name
    sandbox.shutdown()
    sandbox = timed_interpreter(limit_s=1.0)
    with pytest.raises(CodeInterpreterError):
        sandbox.execute("while True: pass")
    sandbox.shutdown()


@needs_deno
def test_the_doctor_asks_once_and_says_what_it_cost_which_client_and_whether_the_sandbox_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ScriptedServer(["ok"]) as server:
        checks = check_llm(AgentSettings(), model="openai/tiny", base_url=server.url)
        assert len(server.requests) == 1
    assert [(check.name, check.ok) for check in checks] == [(n, True) for n in ("language model", "client", "request", "sandbox")]
    text = "\n".join(check.text for check in checks)
    assert KEY not in text
    assert "lm15" in text
    assert "tokens in" in text
    assert "price unknown" in text


def test_the_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL", "LLM_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("primus_mcp.driver.doctor.missing_dspy", lambda: "No module named 'dspy'; install primus-mcp[agent]")
    assert [check.text for check in check_llm()] == ["No module named 'dspy'; install primus-mcp[agent]"]
    assert not check_sandbox().ok
    monkeypatch.setattr("primus_mcp.driver.doctor.missing_dspy", lambda: None)
    monkeypatch.setattr("primus_mcp.driver.doctor.check_sandbox", lambda: None)
    assert "OPENAI_API_KEY is not set" in check_llm()[0].text


def test_a_sandbox_that_does_not_start_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: float) -> Any:
        raise OSError("no such\nfile")

    monkeypatch.setattr("primus_mcp.driver.sandbox.timed_interpreter", broken)
    sandboxes = Sandboxes()
    with pytest.raises(SandboxError, match="does not start: no such file"):
        sandboxes.probe()
    sandboxes.close()
