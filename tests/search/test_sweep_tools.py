"""The short answers."""

from __future__ import annotations

import json

import pytest
from sweep_cases import evaluator

from primus_mcp.errors import InputError
from primus_mcp.evaluation.evaluators import make_evaluator
from primus_mcp.search.sweep_tools import how_sure, sweep_space
from primus_mcp.space.knobs import TrialConfig


def test_a_sweep_answers_in_few_characters_with_a_trial_that_can_be_evaluated() -> None:
    price = evaluator("llama3.1_8B", 1)
    result, answer = sweep_space(price, axes=["tp", "pp", "mbs", "recompute_granularity"], top=3)
    assert len(json.dumps(answer)) < 4000
    best = price.evaluate(TrialConfig(**answer["top"][0]["trial"]))
    assert round(best.tokens_per_s_per_gpu or 0.0, 1) == answer["top"][0]["tokens_per_s_per_gpu"] and result.proven


def test_sensitivity_answers_in_few_characters_and_refuses_what_is_illegal() -> None:
    price = evaluator("llama3.1_8B", 1)
    assert len(json.dumps(how_sure(price, TrialConfig(tp=1, pp=1, mbs=1)))) < 6000
    with pytest.raises(InputError, match="illegal"):
        how_sure(price, TrialConfig(tp=3))


def test_unknown_knobs_and_made_up_numbers_are_refused() -> None:
    price = evaluator("llama3.1_8B", 1)
    with pytest.raises(InputError, match="tpp"):
        sweep_space(price, axes=["tpp"])
    with pytest.raises(InputError, match="simulat"):
        sweep_space(make_evaluator(price.rules, mode="dry"))
