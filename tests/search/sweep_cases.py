"""Problems that the sweep's tests share."""

from __future__ import annotations

from functools import cache

from primus_mcp.evaluation.evaluators import FullEvaluator, Rules
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.space.adapted import adapt_baseline
from primus_mcp.space.knobs import KnobValue

ALL_AXES = {"overlap_grad_reduce": True, "gbs": True}
TODAY = {"overlap_grad_reduce": False, "gbs": False}


@cache
def evaluator(model: str, nodes: int = 1, gpu: str = "mi355x", *, all_axes: bool = False, **pins: KnobValue) -> FullEvaluator:
    """A full evaluator of a catalogue model on nodes of 8 GPUs, by roofline."""
    cluster = make_cluster(gpu, num_nodes=nodes)
    workload = adapt_baseline(workload_from_model(model), cluster).workload
    return FullEvaluator(
        Rules(workload=workload, cluster=cluster, axes=ALL_AXES if all_axes else TODAY, pins=pins), gemm_backend="roofline"
    )
