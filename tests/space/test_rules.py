"""Each rule with a configuration that breaks it, the numbers that its message shows, and the change that satisfies it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rule_example import Example
from rule_examples_exact import EXAMPLES as EXACT
from rule_examples_levers import EXAMPLES as LEVERS
from rule_examples_shape import EXAMPLES as SHAPE
from rule_examples_static import EXAMPLES as STATIC
from space_cases import make_workload, nodes

from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.legality import Legality, check_legality
from primus_mcp.space.rules import RULES, Case
from primus_mcp.space.rules.precision import linear_widths
from primus_mcp.space.trainer_keys import resolve

EXAMPLES = SHAPE + LEVERS + STATIC + EXACT


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


def test_the_widths_of_fp8_linears_by_hand() -> None:
    """Dense at TP 8: 32 heads and 8 groups of 128. Latent at TP 2, ETP 1: 16 heads of 128 + 64, values of 128, KV rank 512, 64 rotary."""
    assert dict(linear_widths(_case("dense", tp=8))) == {
        "hidden size": 4096,
        "QKV / TP": (4 + 2 * 1) * 128,
        "attention output / TP": 4 * 128,
        "FFN / TP": 14336 // 8,
    }
    assert dict(linear_widths(_case("latent", tp=2, expert_tensor_parallel_size=1))) == {
        "hidden size": 2048,
        "latent KV rank + rotary": 512 + 64,
        "latent KV rank": 512,
        "attention output / TP": 16 * 128 // 2,
        "query / TP": 16 * (128 + 64) // 2,
        "FFN / TP": 10944 // 2,
        "expert FFN / ETP": 1408,
        "shared-expert FFN / TP": 2816 // 2,
    }


def _case(model: str, **knobs: int) -> Case:
    workload, cluster, trial = make_workload(model), nodes(), TrialConfig.model_validate(knobs)
    config = resolve(workload, trial)
    return Case(
        workload=workload,
        arch=workload.architecture,
        trial=trial,
        config=config,
        arguments=workload.arguments,
        cluster=cluster,
        world=cluster.world_size,
        dp=1,
        micro_batches=1,
    )


def test_context_parallelism_of_a_dense_model_may_fill_a_node_and_no_more() -> None:
    workload = make_workload("dense", global_batch_size=64)
    for cp, refused in ((8, False), (16, True)):
        rules = {violation.rule for violation in check_legality(workload, TrialConfig(cp=cp), nodes()).violations}
        assert ("cp-within-node" in rules) == refused
