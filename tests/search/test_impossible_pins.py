"""A pin that no legal configuration can have is refused at once, with the rule; one that some can have never is."""

from __future__ import annotations

import pytest
from sweep_cases import evaluator

from primus_mcp.search.impossible import impossible_pins
from primus_mcp.search.sweep import sweep
from primus_mcp.space.knobs import KnobValue


@pytest.mark.parametrize(
    ("nodes", "pins", "words"),
    [
        (3, {"tp": 3}, ("--pin tp=3 cannot be legal", "32 attention heads are not a multiple of TP 3")),
        (1, {"pp": 16}, ("8 GPUs are not a multiple of", "PP 16")),
        (1, {"ep": 2}, ("EP 2 needs experts",)),
        (1, {"pp_schedule": "dualpipe"}, ("no key in the Primus runtime",)),
        (1, {"fp8": "mxfp8"}, ("32-element block scales",)),
        (1, {"vpp": 9}, ("policy", "--allow-policy lifts it")),
        (1, {"vpp": 2, "tp": 3}, ("--pin tp=3 cannot",)),
        (1, {"pp_schedule": "zbv-formatted", "vpp": 3}, ("together", "needs VPP 2, VPP is 3")),
        (1, {"use_torch_fsdp2": True, "use_distributed_optimizer": True}, ("together", "excludes")),
    ],
    ids=str,
)
def test_an_impossible_pin_is_named_with_the_first_hard_rule(nodes: int, pins: dict[str, KnobValue], words: tuple[str, ...]) -> None:
    told = impossible_pins(evaluator("llama3.1_8B", nodes, "mi300x", **pins).rules)
    assert told is not None and "\n" not in told
    for word in words:
        assert word in told
    assert sweep(evaluator("llama3.1_8B", nodes, "mi300x", **pins), top=1).counts.legal == 0


@pytest.mark.parametrize(
    "pins",
    [{}, {"vpp": 2}, {"tp": 4}, {"pp_schedule": "zbv-formatted"}, {"enable_zero_bubble": True}, {"recompute_num_layers": 5}],
    ids=str,
)
def test_pins_that_some_configuration_can_have_are_not_refused(pins: dict[str, KnobValue]) -> None:
    assert impossible_pins(evaluator("llama3.1_8B", 1, "mi300x", **pins).rules) is None
