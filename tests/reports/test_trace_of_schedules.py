"""The trace of a pipeline ends when the projection says that its ranks end, whatever the schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.projection.performance import project_performance
from primus_mcp.reports.pipeline_trace import pipeline_trace

OVERLAP = {"overlap_moe_a2a": True, "vpp": 2, "schedule": "interleaved", "overlap_p2p": True}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"schedule": "zero-bubble"},
        {"schedule": "zero-bubble-heuristic", "pp_max_mem": (3.0,) * 4},
        {"schedule": "v-min", "vpp": 2},
        OVERLAP,
        {**OVERLAP, "schedule": "dualpipe"},
        {**OVERLAP, "schedule": "zbv-formatted"},
    ],
    ids=lambda changes: changes.get("schedule", "1f1b"),
)
def test_a_trace_ends_with_the_projection(changes: dict[str, Any]) -> None:
    workload, cluster = workload_from_model("qwen3_30B_A3B"), make_cluster("mi355x", num_nodes=4)
    config = replace(workload.baseline, pp=4, ep=8, mbs=4, gbs=4 * 8 * 12, pipeline_layout=None, **changes)
    found = pipeline_trace(workload.architecture, config, cluster, backend="roofline")
    assert found.micro_batches == found.all_micro_batches == 12
    projected = project_performance(workload.architecture, config, cluster, gemm_backend="roofline")
    ends = [max(task.end_s for task in tasks) for tasks in found.ranks]
    assert max(ends) == pytest.approx(max(projected.rank_end_s))
    # A rank that waits for its transfers ends one transfer after its last task.
    assert all(0 <= rank_end - end + 1e-9 < 0.01 for rank_end, end in zip(projected.rank_end_s, ends, strict=True))
