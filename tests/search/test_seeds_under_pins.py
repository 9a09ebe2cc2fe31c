"""Whatever is pinned, the seed plan raises nothing but PrimusMcpError and finds what the sweep knows to be legal and to fit."""

from __future__ import annotations

import pytest
from sweep_cases import evaluator

from primus_mcp.errors import PrimusMcpError
from primus_mcp.evaluation.evaluators import FullEvaluator
from primus_mcp.evaluation.rank import is_candidate
from primus_mcp.search.seeds import seed_plan
from primus_mcp.search.sweep import sweep
from primus_mcp.space.axes import legal_axes
from primus_mcp.space.knobs import KNOBS, KnobValue, TrialConfig

MODELS = (("llama3.1_8B", "mi300x"), ("deepseek_v2_lite", "mi300x"))
MOST_LAYERS = (0, 1, 2, 5)
"""Numbers of layers that stand for all of them."""


def first_that_fits(price: FullEvaluator, limit: int = 400) -> TrialConfig | None:
    """The first seed that is a candidate, as a session would find it."""
    scores: dict[TrialConfig, float | None] = {}
    rules = price.rules
    plan = seed_plan(rules.workload, rules.cluster, score=scores.get, fits=price.fits, axes=rules.axes, pins=rules.pins)
    for number, seed in enumerate(plan):
        result = price.evaluate(seed.trial)
        if is_candidate(result):
            return seed.trial
        scores[seed.trial] = None
        if number > limit:
            break
    return None


def values_of(model: str, gpu: str, name: str) -> list[KnobValue]:
    """Every value that some configuration may take."""
    price = evaluator(model, 1, gpu, all_axes=True)
    found = legal_axes(price.workload, price.cluster)[name]
    return [value for value in found if value is not None and (name != "recompute_num_layers" or value in MOST_LAYERS)]


CASES = [(model, gpu, name, value) for model, gpu in MODELS for name in KNOBS for value in values_of(model, gpu, name)]


@pytest.mark.parametrize(("model", "gpu", "name", "value"), CASES, ids=lambda part: str(part))
def test_a_pin_never_breaks_the_plan_and_what_a_sweep_finds_the_plan_finds(model: str, gpu: str, name: str, value: KnobValue) -> None:
    price = evaluator(model, 1, gpu, all_axes=True, **{name: value})
    try:
        found = first_that_fits(price)
    except PrimusMcpError:
        found = None
    if found is None:
        swept = sweep(price, top=1)
        assert swept.best is None, f"the sweep finds {swept.best.trial if swept.best else None}"
