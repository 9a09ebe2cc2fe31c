"""Expert exchange hides beside other work of a pair, never beside nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from time_cases import FOUR_NODES, ONE_NODE, cluster_of, moe

from primus_mcp.inputs.constants import TIME
from primus_mcp.inputs.training import GroupedGemm
from primus_mcp.projection.performance.stages import StageCost, within_window


def cost(forward_s: float, backward_s: float, exposed_s: float) -> StageCost:
    shares = (("gemm", forward_s + backward_s - exposed_s), ("a2a", exposed_s))
    return StageCost(
        forward_s=forward_s,
        backward_s=backward_s,
        weight_s=0.0,
        shares=shares,
        transfers=(("a2a", 10.0),),
        exposed=(("a2a", exposed_s),),
        host_ratio=0.1,
        once_s=0.0,
    )


def test_a_short_exchange_hides_by_the_constant_and_a_long_one_as_far_as_there_is_work() -> None:
    # 1 s forward and 2 s backward beside an exchange of 1 s in each direction, then of 5 s.
    short_hiding, short = cost(1.2, 2.2, 0.4), cost(2.0, 3.0, 2.0)
    assert within_window(short_hiding, short) == short_hiding
    found = within_window(cost(2.0, 3.0, 2.0), cost(6.0, 7.0, 10.0))
    assert found.total_s == pytest.approx(13.0 - 0.8 * 3.0)
    assert dict(found.exposed)["a2a"] == pytest.approx(10.0 - 0.8 * 3.0)
    assert sum(share for _, share in found.shares) == pytest.approx(found.total_s)


def test_no_pair_is_faster_than_its_exchange_however_slow_the_links() -> None:
    plain = moe(mbs=16, gbs=16 * 8 * 32)
    for slower in (1, 4, 16, 64):
        network = replace(ONE_NODE.network, node_bandwidth_bytes_per_s=ONE_NODE.network.node_bandwidth_bytes_per_s / slower)
        cluster = replace(ONE_NODE, network=network)
        found = moe(cluster, mbs=16, gbs=16 * 8 * 32, overlap_moe_a2a=True)
        exchange_s, exposed_s = found.communication_s["a2a"], found.exposed_s["a2a"]
        assert exchange_s == pytest.approx(slower * plain.communication_s["a2a"], rel=0.1)
        rest_s = found.iteration_s - exposed_s
        assert exchange_s - exposed_s <= TIME["moe_a2a_overlap"] * rest_s
        assert found.iteration_s >= exchange_s
        assert sum(found.time_breakdown_s.values()) == pytest.approx(found.iteration_s)


def test_experts_across_eight_nodes_expose_what_the_network_takes_longer_than_the_work() -> None:
    sizes = {"ep": 64, "mbs": 8, "gbs": 8 * 64 * 32}
    found = moe(cluster_of(8), **sizes, overlap_moe_a2a=True)
    plain = moe(cluster_of(8), **sizes)
    rest_s = plain.iteration_s - plain.exposed_s["a2a"]
    assert found.exposed_s["a2a"] > found.communication_s["a2a"] - rest_s


def test_only_orders_that_pair_forwards_with_backwards_hide_anything() -> None:
    # A rank of zbv-formatted that holds the last stage pairs one chunk of two; v-half and v-min pair none.
    sizes = {"pp": 4, "vpp": 2, "mbs": 16, "gbs": 16 * 8 * 128, "overlap_grad_reduce": False, "overlap_param_gather": False}
    felt = {}
    for schedule in ("interleaved", "zbv-formatted", "v-half", "v-min"):
        found = moe(FOUR_NODES, **sizes, schedule=schedule, overlap_moe_a2a=True)
        felt[schedule] = found.exposed_s["a2a"] / found.communication_s["a2a"]
        assert sum(found.time_breakdown_s.values()) == pytest.approx(found.iteration_s)
    assert felt["v-half"] == felt["v-min"] == pytest.approx(1)
    assert 0.2 < felt["interleaved"] < 0.25 < 0.6 < felt["zbv-formatted"] < 0.64


@pytest.mark.parametrize("kernel", ["legacy", "te"])
@pytest.mark.parametrize("gpu", ["mi355x", "gb200"])
def test_a_split_pair_hides_no_more_than_the_constant_where_the_host_is_slower_than_the_gpu(gpu: str, kernel: GroupedGemm) -> None:
    # Without its exchange the GPU waits longer for the host, which the weight gradient outside the pair must not gain from.
    sizes = {"pp": 4, "vpp": 2, "mbs": 1, "gbs": 8 * 128, "overlap_grad_reduce": False, "overlap_param_gather": False}
    found = moe(cluster_of(4, gpu), **sizes, schedule="zbv-formatted", overlap_moe_a2a=True, grouped_gemm=kernel)
    assert found.time_breakdown_s["host"] > 0.3 * found.iteration_s
    assert found.exposed_s["a2a"] >= (1 - TIME["moe_a2a_overlap"]) * found.communication_s["a2a"]
