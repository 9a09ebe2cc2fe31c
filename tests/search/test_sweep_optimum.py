"""The sweep's optimum is the best of the whole space, and it says how it knows."""

from __future__ import annotations

from itertools import product

import pytest
from sweep_cases import evaluator

from primus_mcp.errors import UnknownFigureError
from primus_mcp.evaluation.evaluators import FullEvaluator
from primus_mcp.evaluation.rank import is_candidate
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.search.seeds import seed_plan
from primus_mcp.search.sweep import Sweep, sweep
from primus_mcp.search.sweep_choices import choices_of, trial_of
from primus_mcp.space.knobs import TrialConfig


def test_the_optimum_is_that_of_complete_enumeration_by_the_evaluator() -> None:
    price = evaluator("mixtral_8x7B_v0.1", 1)
    only = ["tp", "pp", "ep", "vpp", "mbs", "recompute_granularity", "use_turbo_deepep"]
    found = sweep(price, only=only, gemm_backend="roofline", top=5)
    choices = choices_of(price.rules.workload, price.rules.cluster, axes=price.rules.axes, pins={}, only=only)
    rates, legal = [], 0
    groups = [[choices.lever_knobs(index) for index in product(*(range(n) for n in choices.lever_shape))]]
    recompute = [choice.knobs for choice in choices.recompute]
    for parts in product(choices.topologies, choices.pipelines, choices.batches, *groups, recompute):
        result = price.evaluate(trial_of(*parts))
        legal += result.legal
        if is_candidate(result):
            rates.append(result.tokens_per_s_per_gpu or 0.0)
    assert found.proven and found.top_proven and found.counts.legal == legal
    rates.sort(reverse=True)
    assert found.top[0].result.tokens_per_s_per_gpu == pytest.approx(rates[0], rel=1e-12)
    c = found.counts
    assert c.legal == c.excluded + c.slower + c.over_memory + c.priced + c.open
    assert c.size == c.legal + sum(c.fallen.values())


def test_a_condition_that_nothing_meets_is_answered_by_the_bounds() -> None:
    price = evaluator("llama3.1_8B", 1)
    free = sweep(price, gemm_backend="roofline", top=1)
    best = free.top[0].result
    assert best.tokens_per_s_per_gpu is not None and best.memory_per_gpu_gb is not None
    for text in (f"tokens_per_s_per_gpu>{1.2 * best.tokens_per_s_per_gpu}", "memory_per_gpu_gb<5"):
        none = sweep(price, where=text, gemm_backend="roofline", top=1)
        c = none.counts
        assert not none.top and none.stopped is None and c.priced < 50
        assert c.legal == free.counts.legal == c.excluded + c.slower + c.over_memory + c.priced + c.open
    met = sweep(price, where=f"tokens_per_s_per_gpu>={best.tokens_per_s_per_gpu}", gemm_backend="roofline", top=1)
    assert met.proven and met.top[0].result.tokens_per_s_per_gpu == best.tokens_per_s_per_gpu


@pytest.mark.parametrize("model", ["llama3.1_8B", "deepseek_v2_lite"])
def test_no_seed_of_the_plan_is_faster_than_the_optimum(model: str) -> None:
    price = evaluator(model, 1)
    found = sweep(price, gemm_backend="roofline", top=3)
    assert found.proven and found.best is not None and not found.disagreements
    best = found.best.result.tokens_per_s_per_gpu or 0.0
    plan = seed_plan(price.rules.workload, price.rules.cluster, fits=price.fits, axes=price.rules.axes)
    for _, seed in zip(range(150), plan, strict=False):
        assert (price.evaluate(seed.trial).tokens_per_s_per_gpu or 0.0) <= best * (1 + 1e-12), seed.label


def test_a_condition_and_a_pin_hold_in_everything_that_is_shown() -> None:
    price = evaluator("llama3.1_8B", 1, tp=2)
    found = sweep(price, where="mbs<=2 and memory_per_gpu_gb<60", gemm_backend="roofline")
    assert found.top and found.counts.excluded > 0
    for one in found.top:
        assert one.result.resolved is not None and one.result.memory_per_gpu_gb is not None
        assert (one.result.resolved["tp"], one.result.resolved["mbs"] <= 2, one.result.memory_per_gpu_gb < 60) == (2, True, True)


def test_a_configuration_that_was_bounded_and_has_no_price_ends_the_sweep_instead_of_missing_in_a_proof() -> None:
    class Unpriced(FullEvaluator):
        def evaluate(self, trial: TrialConfig, *, single: bool = False) -> EvaluationResult:
            if trial.mbs == 4:
                raise UnknownFigureError("no rate")
            return super().evaluate(trial, single=single)

    price = Unpriced(evaluator("llama3.1_8B", 1).rules, gemm_backend="roofline")
    assert sweep(price, only=["mbs"], where="mbs<=2", gemm_backend="roofline").proven
    with pytest.raises(UnknownFigureError, match="no rate"):
        sweep(price, only=["mbs"], where="mbs==4", gemm_backend="roofline")


def test_a_sweep_that_is_stopped_claims_no_proof() -> None:
    stops = iter([False, True])
    result = Sweep(evaluator("llama3.1_8B", 1), gemm_backend="roofline").run(should_stop=lambda: next(stops, True))
    assert result.stopped == "cancelled" and not result.proven


def test_nothing_that_fits_is_an_answer_without_proof() -> None:
    result = sweep(evaluator("llama3.1_405B", 1), only=["tp", "mbs"], gemm_backend="roofline")
    assert (result.top, result.proven, result.recommended) == ([], False, None)
