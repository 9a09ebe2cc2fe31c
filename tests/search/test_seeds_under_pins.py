"""Whatever is pinned, the seed plan raises nothing but PrimusMcpError and finds what the sweep knows to be legal and to fit."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
from sweep_cases import evaluator

from primus_mcp.errors import PrimusMcpError
from primus_mcp.evaluation.evaluators import FullEvaluator
from primus_mcp.evaluation.rank import is_candidate
from primus_mcp.search.seeds import seed_plan
from primus_mcp.search.sweep import sweep
from primus_mcp.space.axes import legal_axes
from primus_mcp.space.knobs import KNOBS, KnobValue, TrialConfig
from primus_mcp.space.trainer_keys import resolve, trainer_keys

MODELS = (("llama3.1_8B", "mi300x"), ("deepseek_v2_lite", "mi300x"))
MOST_LAYERS = (0, 1, 2, 5)
"""Numbers of layers that stand for all of them."""


def first_that_fits(price: FullEvaluator, limit: int = 400) -> TrialConfig | None:
    """The first seed that is a candidate, as a session would find it."""
    scores: dict[TrialConfig, float | None] = {}
    rules = price.rules
    plan = seed_plan(
        rules.workload,
        rules.cluster,
        score=scores.get,
        fits=price.fits,
        axes=rules.axes,
        pins=rules.pins,
        allow_policy=rules.allow_policy,
    )
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
    axes_on = name in ("gbs", "overlap_grad_reduce", "overlap_param_gather")
    price = evaluator(model, 1, gpu, all_axes=axes_on, **{name: value})
    try:
        found = first_that_fits(price)
    except PrimusMcpError:
        found = None
    if found is None:
        swept = sweep(price, top=1, where="mbs <= 1" if name == "pp_schedule" else None)  # more tokens need more memory
        assert swept.best is None, f"the sweep finds {swept.best.trial if swept.best else None}"


@pytest.mark.parametrize("pin", [{"vpp": vpp} for vpp in (2, 3, 5, 8)], ids=str)
def test_pinned_virtual_stages_are_seeded_at_depths_that_can_have_them(pin: dict[str, KnobValue]) -> None:
    price = evaluator("llama3.1_8B", 1, "mi300x", **pin)
    found = first_that_fits(price)
    assert found is not None and found.vpp == pin["vpp"] and (found.pp or 1) > 1


def _with_own(model: str, knobs: dict[str, KnobValue], axes: dict[str, bool]) -> FullEvaluator:
    """A model whose file has these settings, on 8 GPUs."""
    base = evaluator(model, 1, "mi300x")
    trial = TrialConfig.model_validate(knobs)
    workload = replace(
        base.workload,
        baseline=resolve(base.workload, trial),
        arguments={**base.workload.arguments, **trainer_keys(trial, base.workload)},
    )
    return FullEvaluator(replace(base.rules, workload=workload, axes={**base.rules.axes, **axes}), gemm_backend="roofline")


@pytest.mark.parametrize("vpp", [2, 4])
def test_virtual_stages_of_a_workload_whose_axis_is_off_stay(vpp: int) -> None:
    price = _with_own("llama3.1_8B", {"pp": 4, "vpp": vpp}, {"vpp": False})
    seeds = list(islice(seed_plan(price.workload, price.cluster, fits=price.fits, axes=price.rules.axes), 60))
    assert any(seed.label.startswith("grid") for seed in seeds)
    for seed in seeds:
        config = resolve(price.workload, seed.trial)
        assert config.vpp == (vpp if config.pp > 1 else 1)


@pytest.mark.parametrize("own", [{}, {"fp8": "hybrid", "recompute_granularity": "full"}], ids=["bf16", "fp8 and full recompute"])
@pytest.mark.parametrize(
    "pin",
    [
        *({"pp_schedule": name} for name in ("zerobubble", "zbv-formatted", "zbv-greedy-half", "zbv-greedy-min")),
        {"enable_zero_bubble": True},
    ],
    ids=str,
)
def test_a_pinned_split_schedule_gets_the_stages_recompute_and_precision_that_it_needs(
    own: dict[str, KnobValue], pin: dict[str, KnobValue]
) -> None:
    plain = _with_own("llama3.1_8B", own, {})
    price = FullEvaluator(replace(plain.rules, pins=pin), gemm_backend="roofline")
    found = first_that_fits(price)
    assert found is not None
    config = resolve(price.workload, found)
    assert config.splits_weight_gradient and config.recompute.granularity == "none" and config.fp8 is None


def test_with_the_policy_lifted_a_pinned_split_schedule_may_keep_fp8() -> None:
    price = evaluator("llama3.1_8B", 1, "mi300x")
    rules = replace(price.rules, pins={"pp_schedule": "zbv-formatted", "fp8": "hybrid"}, allow_policy=True)
    lifted = FullEvaluator(rules, gemm_backend="roofline")
    found = first_that_fits(lifted)
    assert found is not None and found.fp8 == "hybrid"
    assert first_that_fits(FullEvaluator(replace(rules, allow_policy=False), gemm_backend="roofline")) is None
