"""Collectives: group placement, links, and every field of the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.projection.ops.collectives import (
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    distinct_destinations,
    expert_exchange_s,
    point_to_point_s,
    reduce_scatter_s,
)
from primus_mcp.projection.ops.network import domain_size, egress_bytes_per_s, group_links, nic_bytes_per_s, ranks_in_domain

MIB, GIB = 2**20, 2**30
ONE, FOUR, MANY = make_cluster("mi300x"), make_cluster("mi355x", num_nodes=4), make_cluster("mi355x", num_nodes=256)
COLLECTIVES: dict[str, Callable[[Cluster, float, int, int], float]] = {
    "all_gather": all_gather_s,
    "reduce_scatter": reduce_scatter_s,
    "all_reduce": all_reduce_s,
    "all_to_all": all_to_all_s,
    "point_to_point": lambda cluster, num_bytes, size, stride: point_to_point_s(cluster, num_bytes, stride, size) if size > 1 else 0.0,
}


def _exchange(cluster: Cluster, ep: int, *, deepep: bool, forced: bool = False, tokens: float = 8192) -> float:
    return expert_exchange_s(
        cluster, tokens=tokens, token_bytes=7168 * 2, topk=8, num_experts=256, ep=ep, deepep=deepep, forced_balance=forced
    )


def _busbw(cluster: Cluster, num_bytes: float, ranks: int) -> float:
    return 2 * num_bytes * (ranks - 1) / ranks / all_reduce_s(cluster, num_bytes, ranks) / 1e9


# ---- placement
def test_ranks_share_a_node_by_size_and_stride() -> None:
    assert [ranks_in_domain(FOUR, 8, stride) for stride in (1, 2, 4, 8, 16)] == [8, 4, 2, 1, 1]
    assert ranks_in_domain(FOUR, 32, 1) == 8
    assert group_links(FOUR, 32, 1).domains == 4
    assert group_links(FOUR, 4, 8).domains == 4


def test_a_node_that_is_not_fully_used_has_smaller_domains() -> None:
    assert domain_size(make_cluster("mi355x", num_nodes=2, gpus_per_node=4)) == 4
    assert domain_size(make_cluster("mi355x", gpus_per_node=16)) == 8


def test_an_nvl72_rack_is_one_domain_whatever_its_trays_hold() -> None:
    rack = make_cluster("gb200", num_nodes=16, gpus_per_node=4)
    assert domain_size(rack) == 64
    assert group_links(rack, 64, 1).domains == 1


def test_a_mesh_group_of_g_uses_g_minus_1_links_and_a_switch_group_all_of_them() -> None:
    for size in (2, 4, 8):
        assert egress_bytes_per_s(ONE, size) == pytest.approx((size - 1) * 64e9)
        assert egress_bytes_per_s(make_cluster("h100"), size) == 450e9


def test_gpus_share_nics_and_a_group_beyond_a_pod_is_held_to_the_cluster_tier() -> None:
    half = replace(FOUR, network=replace(FOUR.network, nics_per_node=4, pod_size=16, cluster_bandwidth_bytes_per_s=20e9))
    assert nic_bytes_per_s(FOUR, 16) == 50e9
    assert nic_bytes_per_s(half, 16) == 25e9
    assert nic_bytes_per_s(half, 32) == 10e9


# ---- measured and golden numbers
@pytest.mark.parametrize(("size", "microseconds"), [(2, 890), (4, 453), (8, 235)])
def test_all_gather_of_64_mib_on_an_mi300x_mesh(size: int, microseconds: float) -> None:
    assert all_gather_s(ONE, 64 * MIB, size) * 1e6 == pytest.approx(microseconds, rel=0.03)


def test_mi300x_all_reduce_follows_the_measured_sweep() -> None:
    """ROCm/rocm-blogs mi300x-rccl-xgmi: 66.9, 273.7, 314.7, 319 GB/s; Primus's preflight gives 230 at 64 MiB."""
    for num_bytes, measured, tolerance in (
        (MIB, 66.9, 0.1),
        (64 * MIB, (273.7 + 230) / 2, 0.05),
        (GIB, 314.7, 0.05),
        (16 * GIB, 319, 0.03),
    ):
        assert _busbw(ONE, num_bytes, 8) == pytest.approx(measured, rel=tolerance)


def test_mi355x_all_reduce_sweep_averages_what_was_measured() -> None:
    """OCI MI355X quickstart: 512 KiB to 16 GiB averages 273.9 GB/s (not fitted), 406.8 at 16 GiB."""
    cluster = make_cluster("mi355x")
    sweep = [_busbw(cluster, 2**power, 8) for power in range(19, 35)]
    assert sum(sweep) / len(sweep) == pytest.approx(273.9, rel=0.05)
    assert _busbw(cluster, 16 * GIB, 8) == pytest.approx(406.8, rel=0.03)


def test_two_gpus_of_a_mesh_get_one_link() -> None:
    """stas00/ml-engineering: 47.67 GB/s at 4 GiB on two MI300X."""
    assert _busbw(ONE, 4 * GIB, 2) == pytest.approx(47.67, rel=0.08)


def test_two_nodes_reach_the_measured_all_reduce() -> None:
    """16 ranks: MI355X 343.6-348.9 GB/s at 256 MiB, MI300X 350.9 at 1 GiB and 354-374 at 8 GiB, where one node has 319."""
    assert _busbw(make_cluster("mi355x", num_nodes=2), 256 * MIB, 16) == pytest.approx(346, rel=0.12)
    assert _busbw(make_cluster("mi300x", num_nodes=2), GIB, 16) == pytest.approx(350.9, rel=0.05)
    assert _busbw(make_cluster("mi300x", num_nodes=2), 8 * GIB, 16) == pytest.approx(364, rel=0.05)


@pytest.mark.parametrize("gpu", ["mi300x", "mi355x"])
def test_rings_over_two_or_four_ranks_a_node_drive_the_nic_of_each(gpu: str) -> None:
    # Two ranks and two nodes: one ring sends over the link from rank 0 to 1, the other back, half of the bytes each.
    cluster = make_cluster(gpu, num_nodes=2)
    for local, stride in ((2, 4), (4, 2)):
        links = group_links(cluster, 2 * local, stride)
        ring_bytes = 16 * GIB / local * (2 * local - 1) / (2 * local)
        inside_s = (local - 1) * ring_bytes / links.local_bandwidth_bytes_per_s
        outside_s = ring_bytes / links.nic_bandwidth_bytes_per_s
        assert all_gather_s(cluster, 16 * GIB, 2 * local, stride) == pytest.approx(max(inside_s, outside_s), rel=0.02)


def test_a_gibibyte_over_32_ranks_by_stride() -> None:
    """Rails: neighbours drive eight NICs a node, ranks of a stride of 8 one each."""
    assert all_gather_s(MANY, GIB, 32, 1) * 1e3 == pytest.approx(3.02, rel=0.05)
    assert all_gather_s(MANY, GIB, 32, 8) * 1e3 == pytest.approx(24.5, rel=0.03)


def test_h100_and_h200_gathers_approach_the_measured_ring() -> None:
    """8 x H200: all-gather 361, reduce-scatter 363 GB/s."""
    cluster = make_cluster("h200")
    assert 16 * GIB * 7 / 8 / all_gather_s(cluster, 16 * GIB, 8) / 1e9 == pytest.approx(361, rel=0.03)
    assert 16 * GIB * 7 / 8 / reduce_scatter_s(cluster, 16 * GIB, 8) / 1e9 == pytest.approx(363, rel=0.03)


def test_expert_exchange_of_deepseek_v3_shapes() -> None:
    """8192 tokens, h 7168, top 8, EP 8 on MI355X: 1.55 ms deduplicated, 2.33 ms without (2.23 measured, MegaMoE)."""
    node = make_cluster("mi355x")
    assert _exchange(node, 8, deepep=True) * 1e3 == pytest.approx(1.55, rel=0.01)
    undeduplicated = expert_exchange_s(
        node, tokens=8192 * 8, token_bytes=14_336, topk=1, num_experts=256, ep=8, deepep=True, forced_balance=False
    )
    assert undeduplicated * 1e3 == pytest.approx(2.33, rel=0.01)
    assert undeduplicated * 1e3 == pytest.approx(2.23, rel=0.06)


# ROCm/mori@624002c README: 4096 tokens, h 7168, top 8; fp8 dispatch, bf16 combine; GB/s of received bytes, the local rank's included.
@pytest.mark.parametrize(
    ("gpu", "ep", "dispatch_gb_per_s", "combine_gb_per_s", "copies", "tolerance"),
    [
        ("mi300x", 8, 307, 330, 5.25, 0.09),
        ("mi355x", 8, 345, 420, 5.25, 0.09),
        ("mi300x", 16, 171, 219, 6.45, 0.2),
        ("mi355x", 16, 179, 234, 6.45, 0.2),
        ("mi300x", 32, 103, 91, 7.18, 0.2),
        ("mi355x", 32, 85, 110, 7.18, 0.25),
    ],
)
def test_mori_dispatch_and_combine_are_met(
    gpu: str, ep: int, dispatch_gb_per_s: float, combine_gb_per_s: float, copies: float, tolerance: float
) -> None:
    cluster = make_cluster(gpu, num_nodes=4)
    for element_bytes, rate in ((1, dispatch_gb_per_s), (2, combine_gb_per_s)):
        measured_s = 4096 * copies * 7168 * element_bytes / (rate * 1e9)
        modelled_s = expert_exchange_s(
            cluster, tokens=4096, token_bytes=7168 * element_bytes, topk=8, num_experts=256, ep=ep, deepep=True, forced_balance=False
        )
        assert modelled_s == pytest.approx(measured_s, rel=tolerance)


# ---- distinct destinations
@pytest.mark.parametrize(
    ("experts", "topk", "ep", "even", "random"),
    [
        (256, 8, 8, 1, 5.25),
        (256, 8, 64, 2, None),
        (128, 8, 32, 2, None),
        (160, 6, 8, 1.20, 4.41),
        (64, 6, 8, 1.50, 4.41),
        (8, 2, 8, 2, 1.88),
        (384, 8, 32, 1.33, 7.18),
        (32, 4, 8, 1, 3.31),
    ],
)
def test_forced_balance_sends_few_copies_and_learned_routing_many(
    experts: int, topk: int, ep: int, even: float, random: float | None
) -> None:
    assert distinct_destinations(experts, topk, ep, forced_balance=True) == pytest.approx(even, abs=0.005)
    if random is not None:
        assert distinct_destinations(experts, topk, ep, forced_balance=False) == pytest.approx(random, abs=0.02)


def test_the_library_sends_every_copy_whatever_the_router_does() -> None:
    node = make_cluster("mi355x")
    assert _exchange(node, 8, deepep=False, forced=True) == _exchange(node, 8, deepep=False, forced=False)
    assert _exchange(node, 8, deepep=True, forced=True) < _exchange(node, 8, deepep=True) < _exchange(node, 8, deepep=False)
    assert _exchange(FOUR, 32, deepep=True) < _exchange(FOUR, 32, deepep=False)


def test_expert_parallelism_across_nodes_costs_more() -> None:
    for deepep in (True, False):
        assert _exchange(FOUR, 16, deepep=deepep) > 1.5 * _exchange(FOUR, 8, deepep=deepep)


# ---- invariants
@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_group_of_one_and_an_empty_message_cost_nothing(name: str) -> None:
    assert COLLECTIVES[name](FOUR, GIB, 1, 1) == 0.0
    assert COLLECTIVES[name](FOUR, 0, 8, 1) == 0.0
    assert _exchange(FOUR, 1, deepep=True) == 0.0


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize(("size", "stride"), [(2, 1), (8, 1), (32, 1), (4, 8), (64, 8)])
def test_more_bandwidth_is_never_slower_and_more_latency_never_faster(name: str, size: int, stride: int) -> None:
    collective, network = COLLECTIVES[name], replace(MANY.network, pod_size=64)
    base = collective(replace(MANY, network=network), 64 * MIB, size, stride)
    for field in ("node_bandwidth_bytes_per_s", "nic_bandwidth_bytes_per_s", "cluster_bandwidth_bytes_per_s"):
        faster = replace(network, **{field: 1.5 * getattr(network, field)})
        assert collective(replace(MANY, network=faster), 64 * MIB, size, stride) <= base
    for field in ("node_latency_s", "nic_latency_s", "cluster_latency_s"):
        slower = replace(network, **{field: getattr(network, field) + 1e-4})
        assert collective(replace(MANY, network=slower), 64 * MIB, size, stride) >= base


@pytest.mark.parametrize("name", COLLECTIVES)
def test_more_bytes_never_cost_less(name: str) -> None:
    times = [COLLECTIVES[name](FOUR, num_bytes, 32, 1) for num_bytes in (MIB, 16 * MIB, 256 * MIB, 4 * GIB)]
    assert times == sorted(times)


NETWORK_CHANGES: dict[str, object] = {
    "node_bandwidth_bytes_per_s": 300e9,
    "node_latency_s": 1e-5,
    "nic_bandwidth_bytes_per_s": 12.5e9,
    "nic_latency_s": 1e-4,
    "cluster_bandwidth_bytes_per_s": 12.5e9,
    "cluster_latency_s": 1e-3,
    "node_size": 4,
    "pod_size": 8,
    "nics_per_node": 2,
    "node_topology": "switch",
    "vector_flops": 1e12,
}


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("field", NETWORK_CHANGES)
def test_every_field_of_the_network_reaches_every_collective_that_it_concerns(name: str, field: str) -> None:
    """Groups in a node, in a pod and beyond one; only reductions add, and neighbours of a pipeline take no step inside a node here."""
    if field == "vector_flops" and name not in ("reduce_scatter", "all_reduce"):
        pytest.skip("nothing is added up")
    base = replace(MANY.network, pod_size=64, cluster_bandwidth_bytes_per_s=40e9)
    changed = replace(base, **{field: NETWORK_CHANGES[field]})  # type: ignore[arg-type]
    groups = ((2, 1), (8, 1), (32, 1), (256, 1), (4, 8), (32, 8))
    times = [[COLLECTIVES[name](replace(MANY, network=network), 64 * MIB, *group) for group in groups] for network in (base, changed)]
    assert times[0] != times[1]


@pytest.mark.parametrize("field", NETWORK_CHANGES)
def test_every_field_of_the_network_reaches_the_expert_exchange(field: str) -> None:
    if field == "vector_flops":
        pytest.skip("nothing is added up")
    base = replace(MANY.network, pod_size=64, cluster_bandwidth_bytes_per_s=40e9)
    changed = replace(base, **{field: NETWORK_CHANGES[field]})  # type: ignore[arg-type]
    times = [
        [_exchange(replace(MANY, network=network), ep, deepep=deepep) for ep in (4, 32, 128) for deepep in (True, False)]
        for network in (base, changed)
    ]
    assert times[0] != times[1]


def test_rails_without_a_switch_make_library_all_to_all_cross_the_node_first() -> None:
    slow_links = replace(FOUR.network, node_bandwidth_bytes_per_s=40e9)
    rails = all_to_all_s(replace(FOUR, network=slow_links), GIB, 32)
    switched = all_to_all_s(replace(FOUR, network=replace(slow_links, switch_topology=True)), GIB, 32)
    assert switched < rails


def test_pipeline_neighbours_in_a_node_use_one_link_and_across_nodes_one_nic() -> None:
    inside, across = point_to_point_s(FOUR, 64 * MIB, 4), point_to_point_s(FOUR, 64 * MIB, 8)
    assert inside == pytest.approx(64 * MIB / (537.6e9 / 7 * 0.757), rel=0.02)
    assert across == pytest.approx(64 * MIB / (50e9 * 0.90), rel=0.02)
    assert point_to_point_s(FOUR, 64 * MIB, 4, size=4) == across
