"""The estimate that orders the grid of the seed plan: bubbles, recompute and links, without a calibrated rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice

import pytest
from seed_cases import DEFAULT_AXES, four_nodes, mixtral_workload, on

from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.workload import Workload
from primus_mcp.search.estimate import Estimate
from primus_mcp.search.seeds import seed_plan
from primus_mcp.search.topologies import GridPoint
from primus_mcp.space.adapted import adapt_baseline


@pytest.fixture(scope="module")
def mixtral() -> Workload:
    return mixtral_workload()


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return four_nodes()


def _estimate(model: str, gpu: str, nodes: int) -> Callable[..., float]:
    target = make_cluster(gpu, num_nodes=nodes)
    return Estimate(on(target, model), target).time_s


POINT = GridPoint(tp=1, pp=4, ep=8, cp=1, mbs=1)


def test_the_estimate_knows_bubbles_recompute_and_links() -> None:
    time_s = _estimate("mixtral_8x22B_v0.1", "mi355x", 4)
    assert time_s(replace(POINT, vpp=2)) < time_s(POINT) < time_s(POINT, recomputed=0.5) < time_s(POINT, recomputed=1.0)
    assert time_s(POINT, fp8=True) < time_s(POINT)
    assert time_s(replace(POINT, pp=1, ep=8)) < time_s(replace(POINT, pp=1, ep=32))


def test_the_estimate_takes_layers_as_uneven_layouts_share_them_out() -> None:
    """80 layers on 8 x 4 virtual stages leave the last rank fewer layers, beside the head, than 8 x 5 even ones do."""
    target = make_cluster("mi300x", num_nodes=4)
    time_s = Estimate(on(target, "qwen2.5_72B"), target).time_s
    point = GridPoint(tp=1, pp=8, ep=1, cp=1, mbs=1)
    assert time_s(replace(point, vpp=4)) < time_s(replace(point, vpp=5))


def test_two_gpus_of_a_mesh_share_one_link_so_that_small_tensor_groups_do_not_pay() -> None:
    """A pair of a mesh has one of seven links: TP 2 costs more exchange than TP 8 does, unlike behind a switch."""
    mesh, switch = (_estimate("llama3.1_405B", gpu, 64) for gpu in ("mi325x", "h100"))
    deep = GridPoint(tp=2, pp=32, ep=1, cp=1, mbs=1)
    wide = GridPoint(tp=8, pp=8, ep=1, cp=1, mbs=1)
    assert mesh(wide) / mesh(deep) < switch(wide) / switch(deep)


def test_the_estimate_reads_no_calibrated_rate(cluster: Cluster, mixtral: Workload) -> None:
    """What is tried first must not hang on rates that may be off."""
    slower = replace(cluster.profile, sustained_flops=dict.fromkeys(cluster.profile.sustained_flops, 1.0), nic_efficiency=0.01, figures={})
    other = replace(cluster, profile=slower)
    assert Estimate(mixtral, other).time_s(POINT) == Estimate(mixtral, cluster).time_s(POINT)


def test_a_pinned_batch_is_the_one_that_orders_the_grid(mixtral: Workload, cluster: Cluster) -> None:
    """A pin of the batch is the same as a workload with that batch: bubbles, and so the order of depths, hang on it."""
    small, large = 32, 1024
    for gbs in (small, large):
        own = adapt_baseline(mixtral, cluster, gbs=gbs).workload
        assert Estimate(mixtral, cluster, gbs=gbs).time_s(POINT) == Estimate(own, cluster).time_s(POINT)
        plans = (seed_plan(mixtral, cluster, axes=DEFAULT_AXES, pins={"gbs": gbs}), seed_plan(own, cluster, axes=DEFAULT_AXES))
        first = [next(seed.label for seed in islice(plan, 40) if seed.label.startswith("grid")) for plan in plans]
        assert first[0] == first[1]
    per_sequence = [Estimate(mixtral, cluster, gbs=gbs).time_s(POINT) / gbs for gbs in (small, large)]
    assert per_sequence[0] > per_sequence[1]


def test_recompute_needed_grows_with_the_micro_batch_and_is_a_share(mixtral: Workload, cluster: Cluster) -> None:
    estimate = Estimate(mixtral, cluster)
    shares = [estimate.recompute_needed(replace(POINT, mbs=mbs)) for mbs in (1, 2, 4, 8)]
    assert shares == sorted(shares)
    assert 0 <= shares[0] < shares[-1] <= 1
