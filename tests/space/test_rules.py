"""Each rule with a configuration that breaks it, the numbers that its message shows, and the change that satisfies it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rule_example import Example
from rule_examples_levers import EXAMPLES as LEVERS
from rule_examples_shape import EXAMPLES as SHAPE
from space_cases import make_workload, nodes

from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.legality import Legality, check_legality
from primus_mcp.space.rules import RULES

EXAMPLES = SHAPE + LEVERS


def _judge(example: Example, *, mended: bool) -> Legality:
    arguments = example.arguments | (example.mended_arguments if mended else {})
    trial = example.trial | (example.mended_trial if mended else {})
    cluster = nodes(example.nodes, example.mended_gpu if mended and example.mended_gpu else example.gpu)
    workload = make_workload(example.model, **arguments)
    workload = replace(workload, architecture=replace(workload.architecture, **example.architecture))
    return check_legality(workload, TrialConfig(**trial), cluster)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.rule)
def test_a_rule_refuses_with_its_numbers_and_lets_the_mended_trial_pass(example: Example) -> None:
    refused = _judge(example, mended=False)
    messages = {violation.rule: violation.message for violation in refused.violations}
    assert example.rule in messages, messages
    for words in example.told:
        assert words in messages[example.rule]
    assert example.rule not in {violation.rule for violation in _judge(example, mended=True).violations}


def test_every_rule_has_an_example() -> None:
    assert {example.rule for example in EXAMPLES} == {rule.id for rule in RULES}


def test_rules_are_told_apart_and_hard_ones_cite_a_line_of_the_trainer() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        if rule.kind == "hard":
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{8}:[\w/.-]+\.py:[\d,-]+", rule.source), rule
