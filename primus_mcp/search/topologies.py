"""TP x PP x EP x CP grid of a cluster with the batch and recompute variants of each point, likely good ones first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import log2
from typing import Any

from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.axes import cp_values, ep_values, mbs_values, node_limit, pp_values, tp_values
from primus_mcp.space.knobs import Granularity
from primus_mcp.space.rules.moe import DEEPEP_GROUPS

_DOUBLING = {"tp": 0.35, "cp": 0.15, "pp": 0.05, "ep": 0.15, "drift": 0.03, "mbs": 0.05}
"""Rule of thumb for the order of trials: cost of a doubling of TP, CP, PP, EP beyond a node, of the distance from the workload's own TP and
EP, and of a halving of MBS, in doublings of iteration time. The engine prices what is tried."""
_RECOMPUTE: dict[Granularity, float] = {"none": 0.0, "selective": 0.1, "full": 0.415}
"""The same for recompute; full repeats the forward pass, 4/3 of the work."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GridPoint:
    """Parallel degrees that fill a cluster, with a micro batch size and a recompute granularity."""

    tp: int
    pp: int
    ep: int
    cp: int
    mbs: int
    recompute: Granularity

    @property
    def topology(self) -> tuple[int, int, int, int]:
        """The degrees alone."""
        return self.tp, self.pp, self.ep, self.cp


def _reluctance(point: GridPoint, workload: Workload, cluster: Cluster) -> float:
    """Expected slowness in doublings of iteration time: the bubble (PP - 1) / M and the rules of thumb."""
    own = workload.baseline
    micro_batches = own.gbs * point.tp * point.pp * point.cp / cluster.world_size / point.mbs
    doublings = {
        "tp": log2(point.tp),
        "cp": log2(point.cp),
        "pp": log2(point.pp),
        "ep": max(0.0, log2(point.ep / node_limit(cluster))),
        "drift": abs(log2(point.ep / own.ep)) + abs(log2(point.tp / own.tp)),
        "mbs": -log2(point.mbs),
    }
    bubble = log2(1 + (point.pp - 1) / micro_batches)
    return bubble + _RECOMPUTE[point.recompute] + sum(_DOUBLING[name] * value for name, value in doublings.items())


def grid(workload: Workload, cluster: Cluster) -> list[GridPoint]:
    """Every TP x PP x EP x CP that fills the cluster, with each MBS (up to 4 x the workload's) that divides the batch, and each recompute
    granularity; likely good ones first. Depths that need an uneven layout come with the others: layouts are generated.
    """
    arch, own, world = workload.architecture, workload.baseline, cluster.world_size
    sizes = [mbs for mbs in sorted({*mbs_values(), own.mbs}) if mbs <= 4 * own.mbs]
    points = [
        GridPoint(tp=tp, pp=pp, ep=ep, cp=cp, mbs=mbs, recompute=recompute)
        for tp, pp, ep, cp in product(
            tp_values(arch, cluster), pp_values(arch, cluster), ep_values(arch, cluster), cp_values(arch, cluster)
        )
        if world % (tp * pp * cp) == 0 and world % (ep * pp) == 0
        for mbs in sizes
        if own.gbs % (mbs * (world // (tp * pp * cp))) == 0
        for recompute in _RECOMPUTE
    ]
    return sorted(points, key=lambda point: (_reluctance(point, workload, cluster), point))


def grid_knobs(point: GridPoint, workload: Workload, levers: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs of a grid point with levers on top of it; what the levers or the workload have that the point cannot have is turned off."""
    own = workload.baseline
    knobs: dict[str, Any] = {**levers, "tp": point.tp, "pp": point.pp, "vpp": 1, "cp": point.cp, "mbs": point.mbs}
    knobs |= {"recompute_granularity": point.recompute}
    if workload.architecture.is_moe:
        knobs |= {"ep": point.ep, "expert_tensor_parallel_size": 1}
        if point.ep not in DEEPEP_GROUPS:
            knobs |= {"use_turbo_deepep": False, "sync_free_stage": 0}
    if own.use_torch_fsdp2 and point.pp > 1:
        knobs |= {"use_torch_fsdp2": False, "use_distributed_optimizer": True}
    if own.splits_weight_gradient:
        knobs |= {"pp_schedule": "auto"}
    return knobs
