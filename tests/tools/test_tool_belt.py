"""TOOLS as plain functions over a session: what the driver calls, and what the server wraps."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_mcp.api import resolve, resolve_cluster, resolve_workload
from primus_mcp.errors import InputError
from primus_mcp.session import TuningSession
from primus_mcp.tools import TOOLS, LlmReply, ToolContext, bind
from primus_mcp.tools.configuration import config_of, read_config
from primus_mcp.tools.prompt_files import prompt_file, prompt_text
from primus_mcp.tools.results import Result
from primus_mcp.tools.text import MAX_TEXT, clean, presentable
from primus_mcp.trials.budget import BudgetExhaustedError

Belt = dict[str, Callable[..., Any]]


@pytest.fixture
def session(tmp_path: Path) -> TuningSession:
    problem = resolve(resolve_workload("llama3.1_8B"), resolve_cluster("mi300x", nodes=1))
    return TuningSession.open(problem.workload, problem.target, problem.evaluator, tmp_path / "run")


@pytest.fixture
def belt(session: TuningSession) -> Belt:
    return bind(ToolContext(session=session))


def test_every_bound_tool_is_a_plain_function_with_a_real_signature(belt: Belt) -> None:
    assert set(belt) == set(TOOLS)
    for name, function in belt.items():
        parameters = inspect.signature(function).parameters
        assert function.__name__ == name
        assert function.__doc__
        assert "context" not in parameters
        assert "name" not in parameters, "DSPy's local interpreter cannot pass an argument called name"
        assert all(parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for parameter in parameters.values())
        hints = get_type_hints(function)
        assert set(hints) == {*parameters, "return"}
        assert issubclass(hints["return"], Result)


def test_the_origin_of_a_trial_is_who_asked(session: TuningSession) -> None:
    bind(ToolContext(session=session, origin="llm"))["evaluate_simulate"]({"mbs": 1})
    assert session.history()[0].origin == "llm"
    assert next(row for row in session.spending() if row.name == "max_proposals").spent == 1


def test_memory_only_says_the_same_as_the_full_price_and_logs_nothing(belt: Belt, session: TuningSession) -> None:
    for config in ({}, {"recompute_granularity": "full"}, {"tp": 3}):
        cheap = belt["evaluate_memory_only"](config)
        assert session.log.find(session.evaluator.key(read_config(config))) is None
        full = belt["evaluate_simulate"](config)
        assert (cheap.legal, cheap.memory_per_gpu_gb, cheap.verdict) == (full.legal, full.memory_per_gpu_gb, full.verdict)
        assert belt["evaluate_memory_only"](config).repeated is True


def test_the_echoed_configuration_is_what_was_priced(belt: Belt, session: TuningSession) -> None:
    shown = belt["evaluate_simulate"]({"tp": 2, "mbs": 1, "recompute_granularity": "full", "recompute_num_layers": 4}).resolved
    assert {name: shown[name] for name in ("tp", "mbs", "recompute_granularity", "recompute_num_layers")} == {
        "tp": 2,
        "mbs": 1,
        "recompute_granularity": "full",
        "recompute_num_layers": 4,
    }
    assert "use_turbo_deepep" not in shown, "a dense model has no expert knobs"
    again = belt["evaluate_simulate"](shown)
    assert again.repeated, "the echo, given back, is the same trial"


def test_a_resolved_configuration_reads_back_exactly(session: TuningSession) -> None:
    result = session.evaluate(read_config({"recompute_granularity": "full"}))
    assert result.resolved is not None
    assert config_of(result.resolved) == session.evaluator.rules.check(read_config({"recompute_granularity": "full"})).config


@pytest.mark.parametrize(
    "nothing", [None, "", "null", "inherit", "```json\n\n```", "```\ninherit\n```", {}, "{}", '{"tp": null, "pp": "inherit"}']
)
def test_nothing_given_inherits_everything(nothing: object) -> None:
    assert read_config(nothing).model_dump(exclude_none=True) == {}


@pytest.mark.parametrize(
    "wrong", [3, True, ["tp"], "[1]", "tp=8", '{"tp": 1, "tp": 2}', {"tp": 0}, {"tp": True}, {"tp": 1.5}, {"tp": "8"}, {"TP": 8}, {1: 2}]
)
def test_what_is_no_configuration_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(InputError) as caught:
        read_config(wrong)
    assert "\n" not in str(caught.value)


def test_explaining_logs_nothing_and_its_promise_holds(belt: Belt, session: TuningSession) -> None:
    first = belt["evaluate_simulate"]()
    explained = belt["explain_trial"](0)
    assert len(session.history()) == 1
    assert explained.neighbours_priced > 5
    options = explained.would_fit if first.verdict != "fits" else explained.faster
    assert options
    speeds = [option["tokens_per_s_per_gpu"] for option in options]
    assert speeds == sorted(speeds, reverse=True)
    tried = belt["evaluate_simulate"](options[0]["change"])
    assert tried.tokens_per_s_per_gpu == pytest.approx(options[0]["tokens_per_s_per_gpu"])


def test_parts_of_time_and_memory_sum_to_the_whole(belt: Belt) -> None:
    trial = belt["evaluate_simulate"]({"recompute_granularity": "full"})
    explained = belt["explain_trial"](trial.trial_id)
    assert sum(explained.memory_gb.values()) == pytest.approx(trial.memory_per_gpu_gb, rel=1e-4)
    assert sum(explained.time_ms.values()) == pytest.approx(trial.iteration_ms, rel=1e-4)


def test_pages_of_history_are_whole_and_stable_while_trials_land(belt: Belt) -> None:
    for mbs in (1, 2, 4, 8):
        belt["evaluate_simulate"]({"mbs": mbs, "recompute_granularity": "full"})
    for order in ("newest", "oldest", "best"):
        seen, cursor = [], ""
        while cursor is not None:
            page = belt["get_history"](limit=2, cursor=cursor, order=order)
            seen += [trial["trial_id"] for trial in page.trials]
            cursor = page.next_cursor
            belt["evaluate_simulate"](
                {
                    "mbs": 1,
                    "recompute_granularity": "full",
                    "recompute_num_layers": len(seen) + {"newest": 0, "oldest": 6, "best": 12}[order],
                }
            )
        assert len(seen) == len(set(seen))
        assert set(range(4)) <= set(seen)


def test_the_best_is_compared_with_a_baseline_of_its_own_class_only(belt: Belt) -> None:
    belt["evaluate_simulate"]()
    belt["evaluate_simulate"]({"recompute_granularity": "full"})
    best = belt["get_best"]()
    assert best.baseline_verdict == "too large"
    assert best.times_baseline is None
    assert best.baseline_tokens_per_s_per_gpu is None


def test_a_trial_that_does_not_fit_is_not_exported(belt: Belt) -> None:
    belt["evaluate_simulate"]()
    with pytest.raises(InputError, match="cannot be recommended"):
        belt["export_best"](0)


def test_a_question_to_a_model_is_counted_and_limited(session: TuningSession) -> None:
    asked = []

    def ask(prompt: str, system: str) -> LlmReply:
        asked.append((prompt, system))
        return LlmReply(model="x", text="42\x1b[2J\u202e", input_tokens=10, output_tokens=2)

    belt: Belt = bind(ToolContext(session=session, ask_llm=ask))
    belt["set_budget"]("max_llm_calls", 1)
    assert belt["query_llm"]("why?").reply == "42"
    with pytest.raises(BudgetExhaustedError):
        belt["query_llm"]("again?")
    assert asked == [("why?", "")]
    spent = belt["get_budget_status"]().budgets
    assert (spent["max_llm_calls"]["spent"], spent["max_tokens"]["spent"]) == (1, 12)


def test_an_expert_gets_its_own_text_before_the_callers(session: TuningSession) -> None:
    heard = []

    def ask(prompt: str, system: str) -> LlmReply:
        heard.append(system)
        return LlmReply(model="x", text="")

    belt: Belt = bind(ToolContext(session=session, ask_llm=ask))
    belt["query_llm"]("why?", "be brief", "moe")
    assert heard[0].startswith(prompt_text("experts/moe"))
    assert heard[0].endswith("\n\nbe brief")


def test_without_a_gpu_a_measurement_is_refused_with_the_remedy(belt: Belt) -> None:
    with pytest.raises(InputError, match="has_gpu: true"):
        belt["evaluate_with_benchmark"]()


def test_the_scratchpad_has_a_limit(belt: Belt, session: TuningSession) -> None:
    session.scratchpad.append("x" * 200_000)
    with pytest.raises(InputError, match="full"):
        belt["note_to_scratchpad"]("one more")
    shown = belt["read_scratchpad"]()
    assert shown.truncated is True
    assert len(shown.notes) <= 16_000


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=20,
)


@given(JSON)
def test_whatever_leaves_is_clean_json(value: object) -> None:
    def check(item: object) -> None:
        if isinstance(item, dict):
            for key, inner in item.items():
                check(key)
                check(inner)
        elif isinstance(item, list):
            for inner in item:
                check(inner)
        elif isinstance(item, float):
            assert math.isfinite(item)
        elif isinstance(item, str):
            assert not [c for c in item if ord(c) < 32 and c not in "\n\t"]
            item.encode("utf-8")

    check(presentable(value))


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=MAX_TEXT + 500))
def test_text_is_cut_and_cleaning_is_final(text: str) -> None:
    once = clean(text)
    assert len(once) <= MAX_TEXT
    assert clean(once) == once


def test_a_prompt_needs_its_arguments_and_takes_no_others() -> None:
    prompt = prompt_file("plan_cluster")
    text = prompt.render({"workload": "x {{gpu}}", "gpu": "mi355x"})
    assert "4, 8, 16" in text
    assert "x {{gpu}}" in text, "what a caller gives is not filled in again"
    for values in ({"workload": "x"}, {"workload": "x", "gpu": "y", "z": "1"}):
        with pytest.raises(InputError):
            prompt.render(values)


def test_the_guide_and_the_instructions_are_there() -> None:
    assert prompt_text("guide").startswith("# How to tune")
    assert "{{" not in prompt_text("instructions")


def test_where_nothing_fits_every_answer_says_how_many_nodes_are_enough(tmp_path: Path) -> None:
    problem = resolve(resolve_workload("mixtral_8x22B_v0.1"), resolve_cluster("mi300x", nodes=1))
    session = TuningSession.open(problem.workload, problem.target, problem.evaluator, tmp_path / "run")
    belt: Belt = bind(ToolContext(session=session))
    told = "2 nodes are enough: TP8 PP2"
    trial = belt["evaluate_simulate"]({"tp": 8, "recompute_granularity": "full", "mbs": 1})
    assert trial.verdict == "too large"
    bottlenecks = belt["explain_trial"](trial.trial_id).bottlenecks
    assert any(line.startswith("nodes: this configuration fits on ") for line in bottlenecks)
    assert told in belt["seed_trials"]().next
    assert told in belt["sweep"]().next
    with pytest.raises(InputError, match=told):
        belt["get_best"]()
