"""Rounds: when they end, what they see, who wins."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from driver_cases import ScriptedAgent, open_session

from primus_mcp.driver.belt import SearchTool
from primus_mcp.driver.briefing import INPUTS, SHOWN_TRIALS, Briefings, history_text
from primus_mcp.driver.desk import Clock, Desk
from primus_mcp.driver.loop import Loop, SearchEnd
from primus_mcp.driver.stage import agent_summary
from primus_mcp.driver.stops import Stop, ToolFailedError
from primus_mcp.session import TuningSession
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.tools.prompt_blocks import search_tools
from primus_mcp.trials.journal import LlmCall, Round
from primus_mcp.trials.log import TrialRecord


class Searching(ScriptedAgent):
    """Plans by text, searches by a function."""

    def __init__(self, desk: Desk, round_: Callable[[Mapping[str, Any], Mapping[str, SearchTool]], str]) -> None:
        super().__init__(desk, lambda _: "the plan")
        self._round = round_

    def search(self, inputs: Mapping[str, Any], tools: Mapping[str, SearchTool], max_iterations: int) -> str:
        return self._round(inputs, tools)


def run(session: TuningSession, round_: Callable[[Mapping[str, Any], Mapping[str, SearchTool]], str], patience: int = 2) -> SearchEnd:
    desk = Desk(session, model="m", clock=Clock(sleep=lambda _: None))
    return Loop(session, desk, Searching(desk, round_), patience=patience).run()


def rounds(session: TuningSession) -> list[Round]:
    return [event for event in session.journal.events() if isinstance(event, Round)]


def test_the_search_ends_after_two_rounds_without_half_a_percent_and_says_so(tmp_path: Path) -> None:
    session = open_session(tmp_path, mode="dry")
    end = run(session, lambda _, tools: tools["evaluate_simulate"](config_json={}) and "the same again")
    assert [ended.improved for ended in rounds(session)] == [True, False, False]
    assert (end.ending, end.summaries) == ("agent finished", ("the same again",) * 3)
    assert "2 rounds without an improvement of 0.5%" in end.reason
    assert run(session, lambda *_: "never called").reason == end.reason, "a resumed run that has ended starts no round"


def test_a_lost_round_costs_a_round_and_a_lost_provider_ends_the_search_on_what_it_has(tmp_path: Path) -> None:
    session = open_session(tmp_path, mode="dry")
    seen: list[int] = []

    def round_(_: Mapping[str, Any], tools: Mapping[str, SearchTool]) -> str:
        seen.append(len(seen))
        tools["evaluate_simulate"](config_json={"mbs": 2 ** len(seen)})
        raise Stop("lost", scope="round" if len(seen) < 3 else "stage", cause="reply" if len(seen) < 3 else "provider")

    end = run(session, round_, patience=9)
    assert (len(rounds(session)), end.ending, end.reason, end.summaries) == (3, "agent finished", "lost", ())
    assert len(session.history()) == 3
    assert session.best().best is not None


@pytest.mark.parametrize("name", ["max_rounds", "max_proposals", "max_perf_calls", "max_rlm_iterations", "max_llm_calls"])
def test_a_limit_of_zero_switches_the_stage_off_in_one_line(tmp_path: Path, name: str) -> None:
    session = open_session(tmp_path, mode="dry", budget={name: 0})
    end = run(session, lambda *_: "never called")
    assert (rounds(session), end.ending) == ([], "budget exhausted")
    assert end.reason == f"budget {name} is 0: that stage is off; raise it with --budget {name}=N"


def test_tools_are_those_of_the_server_less_what_moves_limits_or_writes_artefacts(tmp_path: Path) -> None:
    session = open_session(tmp_path, mode="dry", budget={"max_rounds": 1})
    end = run(session, lambda _, tools: " ".join(tools))
    given = set(end.summaries[0].split())
    assert given == set(search_tools()) - {"query_llm", "evaluate_with_benchmark"}
    assert not {"set_budget", "seed_trials", "export_best", "plot_trials"} & given


def test_a_tool_takes_arguments_by_position_name_or_text_and_says_what_is_wrong_in_a_line(tmp_path: Path) -> None:
    session = open_session(tmp_path, mode="dry", budget={"max_rounds": 1})

    def round_(_: Mapping[str, Any], tools: Mapping[str, SearchTool]) -> str:
        price = tools["evaluate_simulate"]
        first = price({"mbs": 1})
        assert first["trial_id"] == price(config_json='```json\n{"mbs": 1}\n```')["trial_id"] == 0
        assert "tflops_per_s_per_gpu" not in first or first["tflops_per_s_per_gpu"] is not None
        assert first["left"]["max_proposals"] == 29
        faults: tuple[tuple[Callable[[], Any], str], ...] = (
            (lambda: price(config_json={"tq": 1}), "tq: unknown knob"),
            (lambda: price(config_json={"target_ep_size": 1}), "changes the estimate only, never the run"),
            (lambda: price(trial={"tp": 1}), "unexpected keyword argument 'trial'; give the arguments by name"),
            (lambda: tools["get_history"](limit=10**9), "less than or equal to 100"),
            (lambda: tools["get_trial"](trial_id=99), "there is no trial 99"),
        )
        for call, message in faults:
            with pytest.raises(ToolFailedError, match=message):
                call()
        return "s"

    assert run(session, round_).summaries == ("s",)


def test_a_round_sees_architecture_cluster_axes_history_notes_and_the_bottlenecks_of_the_incumbent(tmp_path: Path) -> None:
    session = open_session(tmp_path, budget={"max_rounds": 3})
    session.run_seeds()
    session.scratchpad.append("remember")
    inputs = Briefings(session).inputs(plan="the plan")
    assert tuple(inputs) == tuple(INPUTS)
    best = session.best().best
    assert best is not None
    assert inputs["architecture"]["architecture"]["num_layers"] == 32
    assert inputs["cluster"]["world_size"] == 16
    assert inputs["axes"]["knobs"]["tp"]["values"] == [1, 2, 4, 8]
    assert inputs["incumbent"]["trial_id"] == best.trial_id
    assert any(line.startswith("time: ") for line in inputs["incumbent"]["bottlenecks"])
    assert inputs["history"].startswith(f"#{best.trial_id} ")
    assert len(inputs["history"].splitlines()) == len(session.history())
    assert f"{best.tokens_per_s_per_gpu:,.0f} tokens/s/GPU" in inputs["briefing"]
    assert "proposals 30" in inputs["briefing"]
    assert inputs["scratchpad"] == "remember\n"
    assert json.loads(json.dumps(inputs)) == inputs


def copied(record: TrialRecord, number: int) -> TrialRecord:
    return record.model_copy(update={"trial_id": number, "result": record.result.model_copy(update={"trial_id": number})})


def test_a_long_history_keeps_the_best_and_says_what_is_left_out(tmp_path: Path) -> None:
    session = open_session(tmp_path, mode="dry")
    session.evaluate(TrialConfig(mbs=1))
    record = session.history()[0]
    lines = history_text([copied(record, number) for number in range(SHOWN_TRIALS + 5)]).splitlines()
    assert len(lines) == SHOWN_TRIALS + 1
    assert "5 more" in lines[-1]


def test_the_models_own_words_of_every_round_and_what_was_not_counted_stand_in_the_summary_also_after_a_resume(tmp_path: Path) -> None:
    session = open_session(tmp_path, mode="full", budget={"max_rounds": 3}, agent={"patience": 9})
    words = ["first", "", "third"]
    end = run(session, lambda _, tools: str(tools["evaluate_simulate"](config_json={"mbs": 1}) and words.pop(0)), patience=9)
    assert end.summaries == ("first", "third")
    again = open_session(tmp_path, mode="full")
    again.journal.append(LlmCall(purpose="rlm", model="m", key="k", reply="not counted"))
    summary = agent_summary(again, SearchEnd(ending="agent finished", reason="r"), strategy="llm", method="rlm", model="m")
    assert summary.own_summaries == ["first", "third"]
    assert (summary.uncounted_requests, summary.input_tokens) == (1, 100), "the plan's tokens, and one request without any"
    assert "(1 requests uncounted)" in summary.text
    finished = again.finish("agent finished", agent=summary)
    assert "nothing was run" in finished.caveat
