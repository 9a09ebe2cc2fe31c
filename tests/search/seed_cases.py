"""The workload, cluster and axes that tests of the seed plan and of its estimate share."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.inputs.workload import Workload, read_workload
from primus_mcp.space.adapted import adapt_baseline

WORKLOADS = Path(__file__).parents[2] / "examples/workloads"
DEFAULT_AXES = {"gbs": False, "overlap_grad_reduce": False}


@cache
def mixtral_workload() -> Workload:
    return read_workload(WORKLOADS / "mixtral_8x22B_v0.1-BF16-pretrain.yaml", environment={})


def on(target: Cluster, model: str) -> Workload:
    return adapt_baseline(workload_from_model(model), target).workload


@cache
def four_nodes() -> Cluster:
    return make_cluster("mi355x", num_nodes=4)
