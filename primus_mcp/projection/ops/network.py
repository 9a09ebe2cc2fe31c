"""Which links a process group uses: ranks (size, stride) in the order tp-cp-ep-dp-pp, bandwidth and latency of each tier."""

from __future__ import annotations

import math
from dataclasses import dataclass

from primus_mcp.inputs.hardware import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLinks:
    """A group's reach. `local` ranks share a scale-up domain (a node, or a rack), `domains` such domains take part.

    `local_bandwidth_bytes_per_s` and `nic_bandwidth_bytes_per_s` are per GPU and direction after efficiency, 0 where the tier is unused.
    """

    size: int
    local: int
    domains: int
    local_bandwidth_bytes_per_s: float
    local_step_s: float
    nic_bandwidth_bytes_per_s: float
    nic_step_s: float


def domain_size(cluster: Cluster) -> int:
    """GPUs joined by scale-up links: the node's, or the rack's where links span trays; never more than the cluster has."""
    network = cluster.network
    inside = network.node_size if network.spans_nodes else min(network.node_size, cluster.gpus_per_node)
    return min(inside, cluster.world_size)


def ranks_in_domain(cluster: Cluster, size: int, stride: int) -> int:
    """How many ranks of a (size, stride) group share one scale-up domain: clamp(domain // stride, 1, size)."""
    return max(1, min(size, domain_size(cluster) // max(1, stride)))


def egress_bytes_per_s(cluster: Cluster, local: int) -> float:
    """One GPU's egress to `local` - 1 peers of its domain, before efficiency. Mesh: one link a peer; switch: all of it."""
    network = cluster.network
    if local < 2:
        return 0.0
    if network.node_topology == "mesh":
        return network.node_bandwidth_bytes_per_s * (local - 1) / (network.node_size - 1)
    return network.node_bandwidth_bytes_per_s


def nic_bytes_per_s(cluster: Cluster, span: int) -> float:
    """One GPU's share of its node's NICs, before efficiency; a group that spans more than a pod is held to the cluster tier too."""
    network = cluster.network
    share = min(1.0, network.nics_per_node / cluster.gpus_per_node)
    bandwidth = network.nic_bandwidth_bytes_per_s
    if span > network.pod_size:
        bandwidth = min(bandwidth, network.cluster_bandwidth_bytes_per_s)
    return bandwidth * share


def group_links(
    cluster: Cluster, size: int, stride: int, *, local_efficiency: float | None = None, nic_efficiency: float | None = None
) -> GroupLinks:
    """Reach of the group {r, r + stride, ...} of `size` ranks. The efficiencies replace the profile's for links and NICs."""
    profile, network = cluster.profile, cluster.network
    local = ranks_in_domain(cluster, size, stride)
    domains = math.ceil(size / local)
    span = size * max(1, stride)
    efficiency = profile.link_efficiency if local_efficiency is None else local_efficiency
    nic_share = profile.nic_efficiency if nic_efficiency is None else nic_efficiency
    beyond_pod = span > network.pod_size
    hop_s = network.cluster_latency_s if beyond_pod else network.nic_latency_s
    return GroupLinks(
        size=size,
        local=local,
        domains=domains,
        local_bandwidth_bytes_per_s=egress_bytes_per_s(cluster, local) * efficiency,
        local_step_s=network.node_latency_s + profile.figures["collective_local_step_s"],
        nic_bandwidth_bytes_per_s=nic_bytes_per_s(cluster, span) * nic_share if domains > 1 else 0.0,
        nic_step_s=hop_s + profile.figures["collective_nic_step_s"],
    )
