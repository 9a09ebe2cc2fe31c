"""Checked arguments and short answers."""

from __future__ import annotations

import json

import pytest
from sweep_cases import evaluator

from primus_mcp.errors import InputError
from primus_mcp.evaluation.evaluators import make_evaluator
from primus_mcp.search.sweep_tools import cluster_points, sureness, sureness_answer, sweep_space
from primus_mcp.space.knobs import TrialConfig


def test_the_best_of_a_sweep_evaluates_to_the_same_number() -> None:
    price = evaluator("llama3.1_8B", 1)
    result = sweep_space(price, axes=["tp", "pp", "mbs", "recompute_granularity"], top=3)
    assert result.proven and len(result.top) == 3
    best = result.top[0]
    assert price.evaluate(TrialConfig.model_validate(best.trial)).tokens_per_s_per_gpu == best.result.tokens_per_s_per_gpu


def test_points_price_a_target_and_follow_the_memory_levels() -> None:
    price = evaluator("llama3.1_8B", 1)
    result = sweep_space(price, axes=["tp", "mbs"], levels=(0.5,))
    points = cluster_points(price, result, price=3.6, target_tokens=1e9)
    first = points[0]
    assert len(points) == len(result.by_memory)
    assert first.usd_per_million_tokens == pytest.approx(3.6 / 3600 / first.tokens_per_s_per_gpu * 1e6)
    assert first.usd_per_million_tokens is not None
    assert first.usd == pytest.approx(first.usd_per_million_tokens * 1e3)


def test_sensitivity_answers_in_few_characters_and_refuses_what_is_illegal() -> None:
    price = evaluator("llama3.1_8B", 1)
    answer = sureness_answer(price, sureness(price, TrialConfig(tp=1, pp=1, mbs=1)))
    assert len(json.dumps(answer)) < 6000
    assert all(swing["lower"] > 0 for swing in answer["rates"])
    with pytest.raises(InputError, match="illegal"):
        sureness(price, TrialConfig(tp=3))


def test_knobs_that_cannot_move_and_made_up_numbers_are_refused() -> None:
    price = evaluator("llama3.1_8B", 1)
    for name, why in (("tpp", "tpp"), ("gbs", "axis is off"), ("use_turbo_deepep", "no experts"), ("enable_zero_bubble", "holds it")):
        with pytest.raises(InputError, match=why):
            sweep_space(price, axes=[name])
    with pytest.raises(InputError, match="pinned"):
        sweep_space(evaluator("llama3.1_8B", 1, tp=2), axes=["tp"])
    with pytest.raises(InputError, match="simulat"):
        sweep_space(make_evaluator(price.rules, mode="dry"))


def test_nothing_outside_of_what_was_asked_for_is_recommended() -> None:
    price = evaluator("mixtral_8x7B_v0.1", 1)
    wanted = "cp=2"
    best = sweep_space(price, axes=["ep", "cp", "mbs"], where=wanted, top=1).top[0]
    free = sureness(price, TrialConfig.model_validate(best.trial))
    held = sureness(price, TrialConfig.model_validate(best.trial), axes=["ep", "cp", "mbs"], where=wanted)
    assert any(step.ratio and step.ratio > 1 for step in free.steps), "a case in which leaving CP 2 is faster"
    assert all(rival.trial.get("cp") == 2 and set(rival.trial) <= {"ep", "cp", "mbs"} for rival in held.rivals)
