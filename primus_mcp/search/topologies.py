"""TP x PP x EP x CP topologies of a cluster, likely good ones first, and the variants of each from fast and large to slow and small."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import log2
from typing import Any

from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.axes import cp_values, ep_values, mbs_values, node_limit, pp_values, tp_values

MICRO_BATCHES_A_STAGE = 4
"""A pipeline with fewer micro-batches a stage idles over a fifth of the time: (PP - 1) / (M + PP - 1)."""


_Degrees = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Parallel degrees that fill a cluster."""

    tp: int
    pp: int
    ep: int
    cp: int

    def __str__(self) -> str:
        """As labels name it."""
        return f"TP{self.tp} PP{self.pp} EP{self.ep} CP{self.cp}"


def _reluctance(topology: Topology, workload: Workload, cluster: Cluster) -> tuple[float, float, _Degrees]:
    """Sort key: doublings of degrees that cost communication on every layer (TP, CP) weigh most, then pipeline depth, then EP beyond a
    node and away from the workload's own. Order only: nothing is left out.
    """
    own = workload.baseline
    spread = max(0.0, log2(topology.ep / node_limit(cluster)))
    cost = 2 * log2(topology.tp) + 2 * log2(topology.cp) + log2(topology.pp) + 2 * spread
    drift = abs(log2(topology.ep / own.ep)) + abs(log2(topology.tp / own.tp))
    return cost + drift, drift, (topology.tp, topology.pp, topology.ep, topology.cp)


def ordered_topologies(workload: Workload, cluster: Cluster) -> Iterator[Topology]:
    """Every TP x PP x EP x CP whose degrees fill the cluster and leave each data-parallel rank part of the batch, likely good ones first.

    Depths that need an uneven layout come with the others: layouts are generated.
    """
    arch, own, world = workload.architecture, workload.baseline, cluster.world_size
    points = [
        Topology(tp=tp, pp=pp, ep=ep, cp=cp)
        for tp, pp, ep, cp in product(
            tp_values(arch, cluster), pp_values(arch, cluster), ep_values(arch, cluster), cp_values(arch, cluster)
        )
        if world % (tp * pp * cp) == 0 and world % (ep * pp) == 0 and world // (tp * pp * cp) <= own.gbs
    ]
    return iter(sorted(points, key=lambda point: _reluctance(point, workload, cluster)))


def _micro_batch_sizes(workload: Workload, cluster: Cluster, topology: Topology) -> list[int]:
    """MBS values that divide the batch, largest first among those that keep the pipeline busy, then the rest."""
    own = workload.baseline
    dp = cluster.world_size // (topology.tp * topology.pp * topology.cp)
    sizes = [mbs for mbs in sorted({*mbs_values(), own.mbs}, reverse=True) if own.gbs % (mbs * dp) == 0 and mbs <= 4 * own.mbs]
    busy = [mbs for mbs in sizes if topology.pp == 1 or own.gbs // (mbs * dp) >= MICRO_BATCHES_A_STAGE * topology.pp]
    return busy + [mbs for mbs in reversed(sizes) if mbs not in busy]


def variants(workload: Workload, cluster: Cluster, topology: Topology, levers: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Knobs of one topology: without recompute first, larger MBS first; FSDP2 gives way to the distributed optimizer where it must."""
    arch, own = workload.architecture, workload.baseline
    base: dict[str, Any] = {**levers, "tp": topology.tp, "pp": topology.pp, "vpp": 1, "cp": topology.cp}
    if arch.is_moe:
        base |= {"ep": topology.ep, "expert_tensor_parallel_size": 1}
        if topology.ep == 1:
            base |= {"use_turbo_deepep": False, "sync_free_stage": 0}
    if own.use_torch_fsdp2 and topology.pp > 1:
        base |= {"use_torch_fsdp2": False, "use_distributed_optimizer": True}
    if own.splits_weight_gradient:
        base |= {"pp_schedule": "auto"}
    for recompute in ("none", "selective", "full"):
        for mbs in _micro_batch_sizes(workload, cluster, topology):
            yield {**base, "recompute_granularity": recompute, "mbs": mbs}
