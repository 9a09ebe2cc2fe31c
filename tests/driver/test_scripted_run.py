"""The whole search with real DSPy, real HTTP and the real Deno sandbox, against a scripted server on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from driver_cases import LocalSandboxes, needs_deno, needs_dspy, open_session
from scripted_server import Failure, Item, ScriptedServer, code, reply

from primus_mcp.driver.desk import Clock
from primus_mcp.driver.settings import LanguageModel
from primus_mcp.driver.stage import StageEnd, run_llm_stage
from primus_mcp.session import TuningSession
from primus_mcp.trials.journal import Done, LlmCall, Reserved, Round, ToolCall

KEY = "sk-a-secret-of-the-test"
INVENTED = "SUBMIT(summary='the best is mbs=64 with 99999 tokens/s/GPU')"


def scripted(url: str) -> LanguageModel:
    sources = {"model": "the test", "base_url": "the test", "api_key": "from the test"}
    return LanguageModel(model="openai/scripted", base_url=url, api_key=KEY, engine="auto", sources=sources)


def run(session: TuningSession, url: str, slept: list[float] | None = None) -> StageEnd:
    pauses = slept if slept is not None else []
    return run_llm_stage(session, scripted(url), clock=Clock(sleep=pauses.append), tell=lambda _: None)


def four_rounds() -> list[Item]:
    """Plan and four rounds with everything that goes wrong in practice: 12 requests, one of them refused by the provider."""
    deepep = "r = evaluate_simulate(config_json={'use_turbo_deepep': True, 'mbs': 1})\nprint(r['verdict'], r['left'])\n"
    illegal = "b = evaluate_simulate(config_json={'tp': 3})\nprint(b['legal'], b['reason'])\nnote_to_scratchpad(note='tp 3 is illegal')\n"
    two = (
        "for mbs in (1, 2):\n    r = evaluate_simulate(config_json={'mbs': mbs, 'recompute_granularity': 'full'})\n    print(r['verdict'])"
    )
    misspelt = "try:\n    evaluate_simulate(config_json={'tq': 3})\nexcept Exception as error:\n    print(error)\n"
    return [
        reply(reasoning="memory binds", plan="1. recompute\n2. DeepEP"),
        code("first = evaluate_simulate(config_json={})\nprint(first['verdict'], first.get('tokens_per_s_per_gpu'))"),
        code("print(undefined_name)"),
        code(deepep + INVENTED),
        "no fields at all, and no code",
        code("a = evaluate_simulate(config_json='{\"mbs\": 1, \"use_turbo_deepep\": true}')\nprint(a['repeated'])"),
        Failure(429, "rate_limit", {"Retry-After": "7"}),
        code(illegal + "SUBMIT(summary='s2')"),
        code(two),
        code("SUBMIT(summary='s3')"),
        code(misspelt + "print(get_best()['trial_id'])"),
        code(INVENTED),
    ]


@needs_deno
def test_whatever_the_model_says_the_result_is_the_true_best_every_request_is_counted_and_the_key_stays_secret(tmp_path: Path) -> None:
    session = open_session(tmp_path, budget={"max_rounds": 4}, agent={"patience": 9})
    slept: list[float] = []
    with ScriptedServer(four_rounds()) as server:
        stage = run(session, server.url, slept)
    summary = session.finish(stage.end.ending, agent=stage.summary)
    rates = {r.trial_id: r.result.tokens_per_s_per_gpu for r in session.history() if r.result.within_margin}
    assert summary.best is not None
    assert summary.best.trial_id == max(rates, key=lambda number: rates[number] or 0.0)
    assert (summary.best.result.tokens_per_s_per_gpu or 0.0) < 99_999
    assert (len(server.requests), server.script) == (12, [])
    assert summary.agent is not None
    assert (summary.agent.llm_requests, summary.agent.rounds, summary.agent.method) == (12, 4, "rlm")
    assert summary.agent.proposals == 6, "baseline, DeepEP, the same again, an illegal one, two with recompute; a misspelt knob is none"
    assert summary.stopped_because == "budget exhausted"
    assert "max_rounds" in summary.agent.stopped_because
    assert slept == [7.0], "what the provider asked for"
    assert summary.agent.own_summaries[0] == summary.agent.own_summaries[3] == "the best is mbs=64 with 99999 tokens/s/GPU"
    assert session.scratchpad.read() == "tp 3 is illegal\n"
    assert {request["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    assert not any(KEY in json.dumps(request["messages"]) for request in server.requests)
    assert not any(KEY.encode() in path.read_bytes() for path in session.folder.path.rglob("*") if path.is_file())


@needs_deno
def test_a_loop_that_ignores_an_exhausted_budget_is_stopped_and_code_that_never_ends_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session(tmp_path, budget={"max_rounds": 2, "max_proposals": 3}, agent={"patience": 9})
    monkeypatch.setattr("primus_mcp.driver.stage.EXECUTION_LIMIT_S", 2.0)
    greedy = (
        "for mbs in (1, 2, 4, 8, 16):\n  for cp in (1, 2):\n    try:\n"
        "      evaluate_simulate(config_json={'mbs': mbs, 'cp': cp})\n    except BaseException:\n      pass"
    )
    with ScriptedServer([reply(reasoning="", plan="p"), code("while True: pass"), code(greedy)]) as server:
        stage = run(session, server.url)
    rounds = [event for event in session.journal.events() if isinstance(event, Round)]
    assert len(rounds) == 2
    assert len(session.history()) == stage.summary.proposals == 3
    assert len(server.requests) == 3
    assert stage.end.ending == "budget exhausted"


CHILD = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from unittest import mock
from driver_cases import LocalSandboxes, open_session
from test_scripted_run import run
mock.patch("primus_mcp.driver.stage.Sandboxes", LocalSandboxes).start()
session = open_session(Path(sys.argv[1]), budget={{"max_rounds": 4}}, agent={{"patience": 9}})
run(session, sys.argv[2])
"""


@needs_dspy
def test_after_a_kill_in_round_three_one_request_and_only_the_evaluation_in_flight_are_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("primus_mcp.driver.stage.Sandboxes", LocalSandboxes)
    victim: list[subprocess.Popen[bytes]] = []

    def kill_and_answer(_: dict[str, Any]) -> str:
        os.kill(victim[0].pid, signal.SIGKILL)
        victim[0].wait()
        return ""

    script = four_rounds()
    script.insert(9, kill_and_answer)
    source = CHILD.format(path=[str(folder) for folder in Path(__file__).parents[:2]])
    with ScriptedServer(script) as server:
        victim.append(subprocess.Popen([sys.executable, "-c", source, str(tmp_path), server.url]))
        assert victim[0].wait(timeout=240) == -signal.SIGKILL
        time.sleep(0.2)
        asked, evaluated = len(server.requests), len(open_session(tmp_path).history())
        session = open_session(tmp_path, budget={"max_rounds": 4}, agent={"patience": 9})
        run(session, server.url)
        assert server.script == []
    events = session.journal.events()
    assert (asked, len(server.requests)) == (10, 13), "12 answers and the one that was lost"
    assert evaluated == 5
    assert sum(isinstance(event, Reserved) for event in events) == len(session.history()) == 5
    assert len({(event.round, event.tool, str(event.arguments)) for event in events if isinstance(event, ToolCall)}) == sum(
        isinstance(event, ToolCall) for event in events
    )
    assert sum(isinstance(event, Done) and event.origin == "llm" for event in events) == 6
    assert sum(isinstance(event, LlmCall) and event.reply is not None for event in events) == 11
