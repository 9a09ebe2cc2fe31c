"""Seeds above TP 1 on AMD GPUs, where Primus leaves Primus-Turbo out."""

from __future__ import annotations

from itertools import islice

from primus_mcp.evaluation.evaluators import FullEvaluator, Rules
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.inputs.workload import workload_from_arguments
from primus_mcp.search.neighbours import neighbours
from primus_mcp.search.seeds import seed_plan
from primus_mcp.search.topologies import GridPoint, grid_knobs
from primus_mcp.space.adapted import adapt_baseline
from primus_mcp.space.knobs import TrialConfig

DEEPEP = {"enable_primus_turbo": True, "use_turbo_deepep": True, "moe_router_dtype": "fp32", "moe_shared_expert_overlap": False}


def test_a_workload_with_deepep_is_seeded_above_tp_1_without_it() -> None:
    plain, cluster = workload_from_model("grok2"), make_cluster("mi300x", num_nodes=2)
    workload = adapt_baseline(workload_from_arguments({**plain.arguments, **DEEPEP}, "grok2"), cluster).workload
    price = FullEvaluator(Rules(workload=workload, cluster=cluster, axes={}, pins={}), gemm_backend="roofline")
    results = [price.evaluate(seed.trial) for seed in islice(seed_plan(workload, cluster, fits=price.fits, axes={}), 40)]
    assert {result.resolved["tp"] for result in results if result.legal and result.resolved} >= {1, 2, 4, 8}
    assert not [result.reason for result in results if "Primus leaves Primus-Turbo out" in (result.reason or "")]


def test_a_point_above_tp_1_keeps_the_router_s_stage_and_on_nvidia_deepep() -> None:
    workload, levers = workload_from_model("grok2"), {"use_turbo_deepep": True, "sync_free_stage": 2}
    wide, narrow = (GridPoint(tp=tp, pp=1, ep=8, cp=1, mbs=1) for tp in (2, 1))
    exchange = {
        (gpu, point.tp): [grid_knobs(point, workload, make_cluster(gpu), levers)[name] for name in levers]
        for gpu in ("mi300x", "h100")
        for point in (wide, narrow)
    }
    assert exchange == {("mi300x", 2): [False, 1], ("mi300x", 1): [True, 2], ("h100", 2): [True, 2], ("h100", 1): [True, 2]}


def test_a_step_to_tp_2_leaves_deepep_behind_and_levers_there_are_those_that_run() -> None:
    plain, cluster = workload_from_model("grok2"), make_cluster("mi300x", num_nodes=2)
    workload = adapt_baseline(workload_from_arguments({**plain.arguments, **DEEPEP}, "grok2"), cluster).workload
    steps = dict(neighbours(workload, cluster, TrialConfig(tp=1, ep=8, use_turbo_deepep=True, sync_free_stage=1)))
    step = next(knobs for label, knobs in steps.items() if label.endswith("TP 2"))
    assert (step["tp"], step["use_turbo_deepep"], step["sync_free_stage"]) == (2, False, 1)
    stages = [
        knobs for label, knobs in neighbours(workload, cluster, TrialConfig(tp=2, ep=8, use_turbo_deepep=False)) if "sync-free" in label
    ]
    assert [(knobs["use_turbo_deepep"], knobs["sync_free_stage"]) for knobs in stages] == [(False, 1)]
