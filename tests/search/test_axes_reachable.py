"""What `legal_axes` offers agrees with the verdicts: every value belongs to some legal configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sweep_cases import evaluator

from primus_mcp.search.impossible import impossible_pins
from primus_mcp.space.axes import legal_axes


@pytest.mark.parametrize("model", ["llama3.1_8B", "mixtral_8x7B_v0.1", "gpt_oss_20B", "deepseek_v2_lite"])
def test_some_legal_configuration_has_each_value_that_an_axis_offers(model: str) -> None:
    rules = evaluator(model, 1).rules
    for name, values in legal_axes(rules.workload, rules.cluster).items():
        ends = values if len(values) <= 16 else (values[0], values[1], values[-1])
        for value in ends:
            if value is not None:
                assert impossible_pins(replace(rules, pins={name: value})) is None, (name, value)
