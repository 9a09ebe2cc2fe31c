"""Collectives by alpha-beta over three tiers (scale-up domain, pod, cluster). A group is (size, stride); size 1 costs nothing.

Every byte count is stated per function. Bandwidths are per GPU and direction; the hardware file's Network reaches every function here.
"""

from __future__ import annotations

import math
from functools import lru_cache

from primus_mcp.inputs.hardware import Cluster
from primus_mcp.projection.ops.network import GroupLinks, group_links

REDUCED_ELEMENT_BYTES = 2


def _ramp(cluster: Cluster, num_bytes: float) -> float:
    """Slow-down of a message that is too small to fill the links: 1 + sqrt(n0 / n).

    n0 is a figure of the profile, fitted to the all-reduce sweeps of an 8-GPU mesh (1 MiB to 16 GiB); known error 10% at 64 MiB.
    """
    return 1 + math.sqrt(cluster.profile.figures["collective_ramp_bytes"] / num_bytes)


def _steps_s(cluster: Cluster, links: GroupLinks) -> float:
    """Latency: one step to all peers on a mesh, local - 1 ring steps on a switch, then domains - 1 ring steps over the NICs."""
    mesh = cluster.network.node_topology == "mesh"
    local_steps = 0 if links.local < 2 else 1 if mesh else links.local - 1
    return local_steps * links.local_step_s + (links.domains - 1) * links.nic_step_s


def all_gather_s(cluster: Cluster, num_bytes: float, size: int, stride: int = 1) -> float:
    """All-gather of `num_bytes` (the whole gathered tensor): t = n (g-1)/g ramp(n) / b + latency.

    b = the domain's egress inside one domain. Across domains `local` rings run on rails: each leaves the domain through another rank's
    NIC, so a rank's own links carry all rings but one: b = min(egress local/(local-1), local x NIC). Source: ring algorithm; two-node AMD
    all-reduce of 344-374 GB/s = 0.86-0.94 of 8 NICs, on MI300X more than the 319 of one node.
    """
    if size <= 1 or num_bytes <= 0:
        return 0.0
    links = group_links(cluster, size, stride)
    volume = num_bytes * (size - 1) / size
    return volume * _ramp(cluster, num_bytes) / _ring_bytes_per_s(links) + _steps_s(cluster, links)


def _ring_bytes_per_s(links: GroupLinks) -> float:
    inside = links.local_bandwidth_bytes_per_s
    if links.domains == 1:
        return inside
    rails = links.local * links.nic_bandwidth_bytes_per_s
    return rails if links.local == 1 else min(inside * links.local / (links.local - 1), rails)


def reduce_scatter_s(cluster: Cluster, num_bytes: float, size: int, stride: int = 1) -> float:
    """Reduce-scatter of `num_bytes` (the whole unreduced tensor of a rank): an all-gather plus (g-1)/g n / 2 additions."""
    if size <= 1 or num_bytes <= 0:
        return 0.0
    vector_flops = cluster.network.vector_flops
    additions_s = num_bytes / REDUCED_ELEMENT_BYTES * (size - 1) / size / vector_flops if vector_flops else 0.0
    return all_gather_s(cluster, num_bytes, size, stride) + additions_s


def all_reduce_s(cluster: Cluster, num_bytes: float, size: int, stride: int = 1) -> float:
    """All-reduce of `num_bytes`: reduce-scatter then all-gather."""
    return reduce_scatter_s(cluster, num_bytes, size, stride) + all_gather_s(cluster, num_bytes, size, stride)


def all_to_all_s(cluster: Cluster, num_bytes: float, size: int, stride: int = 1) -> float:
    """Library all-to-all in which each rank sends `num_bytes` in all, equal shares to `size` ranks (its own share stays).

    t = max(local, NIC) ramp(n) + fixed. local = n (l-1)/g / (egress x library efficiency); on a rail network (no inter-node switch) bytes
    for another rail cross the domain first, which adds n (g-l)/g (l-1)/l. NIC = n (g-l)/g / (NIC share x its all-to-all efficiency).
    Source: 8 x MI355X reach 361 GB/s at 16 GiB; the ramp is the all-reduce's, since no sweep of an all-to-all is public. Known error: 20%.
    """
    if size <= 1 or num_bytes <= 0:
        return 0.0
    profile = cluster.profile
    links = group_links(
        cluster,
        size,
        stride,
        local_efficiency=profile.all_to_all_link_efficiency,
        nic_efficiency=profile.figures["all_to_all_nic_efficiency"],
    )
    local, group = links.local, links.size
    inside = num_bytes * (local - 1) / group
    outside = num_bytes * (group - local) / group
    if not cluster.network.switch_topology:
        inside += outside * (local - 1) / local
    times = [inside / links.local_bandwidth_bytes_per_s] if local > 1 else []
    if outside > 0:
        times.append(outside / links.nic_bandwidth_bytes_per_s)
    return max(times) * _ramp(cluster, num_bytes) + profile.figures["all_to_all_fixed_s"] + _first_hop_s(links)


def _first_hop_s(links: GroupLinks) -> float:
    return links.nic_step_s if links.domains > 1 else links.local_step_s


@lru_cache(maxsize=4096)
def distinct_destinations(num_experts: int, topk: int, destinations: int, *, forced_balance: bool) -> float:
    """Mean number of distinct destinations (ranks or nodes, experts dealt to them in order) among a token's top-k experts.

    forced balance: token t takes experts (t k + j) mod E, j < k: mean over t of distinct floor(e / (E / n)).
    learned routing: n (1 - (1 - 1/n)^k), k independent uniform choices. Source: Primus-Turbo dispatcher (amd_moe facts), DeepEP.
    """
    if destinations <= 1:
        return 1.0
    if not forced_balance:
        return destinations * (1 - (1 - 1 / destinations) ** topk)
    per_destination = num_experts / destinations
    period = num_experts // math.gcd(num_experts, topk)
    total = sum(len({int((t * topk + j) % num_experts // per_destination) for j in range(topk)}) for t in range(period))
    return total / period


def expert_exchange_s(
    cluster: Cluster,
    *,
    tokens: float,
    token_bytes: float,
    topk: int,
    num_experts: int,
    ep: int,
    stride: int = 1,
    deepep: bool,
    forced_balance: bool,
) -> float:
    """One dispatch or one combine of `tokens` of this rank over `ep` ranks; a layer makes 4 (two forward, two backward).

    library: every one of the k copies travels: all_to_all(tokens k token_bytes). DeepEP: one copy a destination rank inside the
    domain, one a node over the NIC, forwarded there. The two hops overlap in part: t = (local^q + NIC^q)^(1/q) + fixed, with
    local = T r B (g-1)/g / (egress x DeepEP efficiency), NIC = T r_n B (n-1)/n / NIC share, q a figure of the profile.
    Known error: 8% in a node and 10% across nodes against MORI's dispatch and combine on MI300X and MI355X (EP 8, 16, 32); no bound on
    Primus-Turbo's own kernels across nodes, which publish nothing. Library: no measurement of training sizes.
    """
    if ep <= 1 or tokens <= 0:
        return 0.0
    if not deepep:
        return all_to_all_s(cluster, tokens * topk * token_bytes, ep, stride)
    links = group_links(cluster, ep, stride, local_efficiency=cluster.profile.deepep_link_efficiency)
    copies = distinct_destinations(num_experts, topk, ep, forced_balance=forced_balance)
    times = []
    if links.local > 1:
        times.append(tokens * copies * token_bytes * (ep - 1) / ep / links.local_bandwidth_bytes_per_s)
    if links.domains > 1:
        nodes = links.domains
        node_copies = distinct_destinations(num_experts, topk, nodes, forced_balance=forced_balance)
        times.append(tokens * node_copies * token_bytes * (nodes - 1) / nodes / links.nic_bandwidth_bytes_per_s)
    norm = cluster.profile.figures["deepep_hop_norm"]
    exchange_s: float = sum(time_s**norm for time_s in times) ** (1 / norm)
    return exchange_s + cluster.profile.figures["deepep_fixed_s"] + _first_hop_s(links)


def point_to_point_s(cluster: Cluster, num_bytes: float, stride: int, size: int = 2) -> float:
    """One send between pipeline neighbours `stride` ranks apart, of a group of `size`: the slowest hop of the group.

    In one domain a mesh pair has one link, a switch pair the whole egress; else one NIC share.
    """
    if num_bytes <= 0:
        return 0.0
    whole = group_links(cluster, max(2, size), stride)
    if whole.domains > 1:
        return num_bytes / whole.nic_bandwidth_bytes_per_s + whole.nic_step_s
    pair = group_links(cluster, 2, stride)
    return num_bytes / pair.local_bandwidth_bytes_per_s + pair.local_step_s
