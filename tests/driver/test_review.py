"""After a sweep that proved its best: one round about what the model does not price, and no search."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from driver_cases import LocalSandboxes, ScriptedAgent, needs_dspy, open_session
from scripted_server import ScriptedServer, code

from primus_mcp.driver.belt import SearchTool
from primus_mcp.driver.desk import Clock, Desk
from primus_mcp.driver.loop import Loop, SearchEnd
from primus_mcp.driver.prompts import search_instructions
from primus_mcp.driver.review import proven_optimum, to_review
from primus_mcp.driver.settings import LanguageModel
from primus_mcp.driver.stage import run_coordinate_stage, run_llm_stage
from primus_mcp.inputs.cluster_file import BenchmarkHost
from primus_mcp.session import TuningSession
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.trials.journal import LlmCall, Round, Swept


def swept_session(folder: Path, **settings: Any) -> TuningSession:
    session = open_session(folder, **settings)
    trial_id = session.evaluate(TrialConfig(mbs=1), origin="sweep").trial_id
    assert trial_id is not None
    session.journal.append(Swept(trial_id=trial_id, proven=True, legal=9, digests=session.digests))
    return session


class Reviewer(ScriptedAgent):
    """Says its words after one question."""

    def __init__(self, desk: Desk, words: str) -> None:
        super().__init__(desk, lambda _: "text")
        self._words = words

    def search(self, inputs: Mapping[str, Any], tools: Mapping[str, SearchTool], max_iterations: int) -> str:
        self._say("rlm", 1)
        return self._words


def run(session: TuningSession, words: str) -> SearchEnd:
    desk = Desk(session, model="m", clock=Clock(sleep=lambda _: None))
    return Loop(session, desk, Reviewer(desk, words), patience=2, review=to_review(session)).run()


def asked(session: TuningSession) -> list[str]:
    return [event.purpose for event in session.journal.events() if isinstance(event, LlmCall)]


def test_a_proven_optimum_gets_one_round_without_a_plan_and_a_resumed_run_none(tmp_path: Path) -> None:
    session = swept_session(tmp_path)
    end = run(session, "run trial 0; measure trial 1 first")
    assert (asked(session), end.ending, end.summaries) == (["rlm"], "agent finished", ("run trial 0; measure trial 1 first",))
    assert "trial #0 is the optimum of the whole space, proven under the model" in end.reason
    assert "had its round" in run(session, "never said").reason
    assert asked(session) == ["rlm"]


def test_a_round_that_said_nothing_ends_the_run_and_a_resumed_one_asks_once_more(tmp_path: Path) -> None:
    session = swept_session(tmp_path)
    assert run(session, "").summaries == ()
    assert run(session, "said").summaries == ("said",)
    assert asked(session) == ["rlm"] * 2


def test_rounds_before_the_sweep_are_not_the_round_about_its_optimum(tmp_path: Path) -> None:
    session = open_session(tmp_path, budget={"max_rounds": 5})
    desk = Desk(session, model="m")
    for _ in range(2):
        desk.begin_round(dict)
        desk.end_round(improved=False, summary="searched")
    session.evaluate(TrialConfig(mbs=1), origin="sweep")
    session.journal.append(Swept(trial_id=0, proven=True, legal=9, digests=session.digests))
    assert run(session, "now about it").summaries == ("now about it",)
    assert sum(isinstance(event, Round) for event in session.journal.events()) == 3


def test_budgets_hold_for_that_round_too(tmp_path: Path) -> None:
    end = run(swept_session(tmp_path, budget={"max_llm_calls": 0}), "never said")
    assert (end.ending, end.summaries) == ("budget exhausted", ())


@pytest.mark.parametrize("why", ["not proven", "another engine", "its line is gone", "swept again, not proven", "no times"])
def test_what_is_not_proven_here_and_now_is_searched(why: str, tmp_path: Path) -> None:
    session = swept_session(tmp_path, mode="dry" if why == "no times" else "full")
    assert why == "no times" or proven_optimum(session) == 0
    digests = session.digests.model_copy(update={"engine": "another"}) if why == "another engine" else session.digests
    known = Swept(trial_id=7 if why == "its line is gone" else 0, proven="not proven" not in why, legal=9, digests=digests)
    if why in ("not proven", "another engine", "its line is gone"):
        session = open_session(tmp_path / "b")
        session.evaluate(TrialConfig(mbs=1), origin="sweep")
    session.journal.append(known)
    assert proven_optimum(session) is to_review(session) is None


def test_where_this_host_can_measure_rounds_go_on_because_the_proof_says_nothing_about_measured_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = swept_session(tmp_path, budget={"max_benchmark_calls": 2})
    monkeypatch.setattr(type(session.target), "benchmark_host", BenchmarkHost(has_gpu=True, benchmark_gpus=8))
    assert (proven_optimum(session), to_review(session)) == (0, None)
    session.budget.limits["max_benchmark_calls"] = 0
    assert to_review(session) == 0


def test_coordinate_search_is_not_begun_where_the_optimum_is_proven(tmp_path: Path) -> None:
    session = swept_session(tmp_path)
    stage = run_coordinate_stage(session)
    assert (len(session.history()), stage.summary.proposals, stage.summary.rounds) == (1, 0, 0)
    assert "no search can gain" in stage.end.reason


@needs_dspy
def test_the_models_prompt_asks_for_risks_a_runner_up_to_measure_and_the_reason_and_its_words_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("primus_mcp.driver.stage.Sandboxes", LocalSandboxes)
    session, told = swept_session(tmp_path), list[str]()
    with ScriptedServer([code("print(get_best()['trial_id'])"), code("SUBMIT(summary='run trial 0, measure it first')")]) as server:
        sources = {"model": "t", "base_url": "t", "api_key": "t"}
        model = LanguageModel(model="openai/scripted", base_url=server.url, api_key="none", engine="auto", sources=sources)
        stage = run_llm_stage(session, model, clock=Clock(sleep=lambda _: None), tell=told.append)
        system = str(server.requests[0]["messages"][0]["content"])
    assert len(server.requests) == 2
    lines = [line for line in search_instructions("rlm", (), (), task="review").splitlines() if line.strip()]
    assert all(line.strip() in system for line in lines[:4])
    assert "You search for the training configuration" not in system
    assert stage.summary.own_summaries == ["run trial 0, measure it first"]
    assert told == ["about trial #0, in the language model's own words (unchecked):\nrun trial 0, measure it first"]
