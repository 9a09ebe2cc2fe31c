"""FP8 formats that are priced alike: the workload's own first, then hybrid, in trials, sweeps and exports."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sweep_cases import evaluator

from primus_mcp.evaluation.evaluators import FullEvaluator, Rules
from primus_mcp.evaluation.rank import rank
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.inputs.workload import Workload
from primus_mcp.reports.sweep_text import sweep_text
from primus_mcp.search.seeds import seed_plan
from primus_mcp.search.sweep import sweep
from primus_mcp.search.sweep_found import Found
from primus_mcp.space.adapted import adapt_baseline
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.trainer_keys import resolve, trainer_keys

FORMATS = ("delayed", "e4m3", "hybrid")


def own_format(fp8: str | None) -> FullEvaluator:
    """Llama 8B on 8 MI300X whose file computes in a format."""
    cluster = evaluator("llama3.1_8B", 1, "mi300x").cluster
    workload: Workload = adapt_baseline(workload_from_model("llama3.1_8B"), cluster).workload
    trial = TrialConfig.model_validate({"fp8": fp8})
    workload = replace(workload, baseline=resolve(workload, trial), arguments={**workload.arguments, **trainer_keys(trial, workload)})
    return FullEvaluator(Rules(workload=workload, cluster=cluster, axes={}, pins={}), gemm_backend="roofline")


@pytest.mark.parametrize("order", [FORMATS, FORMATS[::-1]], ids=str)
@pytest.mark.parametrize(("own", "first"), [(None, "hybrid"), ("e4m3", "e4m3"), ("hybrid", "hybrid")])
def test_at_one_price_the_workloads_format_wins_then_hybrid_whatever_came_first(
    order: tuple[str, ...], own: str | None, first: str
) -> None:
    price = own_format(own)
    trials = [TrialConfig.model_validate({"fp8": fp8, "mbs": 1, "recompute_granularity": "none"}) for fp8 in order]
    results = [price.evaluate(trial).model_copy(update={"trial_id": i}) for i, trial in enumerate(trials)]
    assert len({(one.tokens_per_s_per_gpu, one.memory_per_gpu_gb) for one in results}) == 1
    best = rank(results).best
    assert best is not None and best.resolved is not None and best.resolved["fp8"] == first
    found = Found(3)
    for trial, result in zip(trials, results, strict=True):
        found.add(price.key(trial), trial, result, enumerated=True)
    assert (found.sorted()[0].result.resolved or {})["fp8"] == first


def test_a_sweep_prints_formats_at_one_price_on_one_line_in_the_fixed_order() -> None:
    result = sweep(evaluator("llama3.1_8B", 1, "mi300x", tp=1, pp=1), top=4)
    assert (result.top[0].result.resolved or {})["fp8"] == "hybrid"
    assert "hybrid or e4m3" in sweep_text(result)


def test_the_plan_does_not_swap_the_workloads_own_format_for_another_at_the_same_price() -> None:
    price = own_format("e4m3")
    plan = seed_plan(price.workload, price.cluster, fits=price.fits, axes={})
    labels = [next(plan).label for _ in range(5)]
    assert not any(label.startswith("FP8") for label in labels)
