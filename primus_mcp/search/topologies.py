"""TP x PP x EP x CP grid of a cluster with the micro-batches and virtual stages of each point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.axes import cp_values, ep_values, mbs_values, pp_values, tp_values, vpp_values
from primus_mcp.space.rules.moe import DEEPEP_GROUPS

MBS_GROWTH = 4
"""Times the workload's MBS at most."""


Topology = tuple[int, int, int, int]
"""TP, PP, EP, CP."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GridPoint:
    """Parallel degrees that fill a cluster, with a micro batch size and virtual stages. What must be recomputed is left to memory."""

    tp: int
    pp: int
    ep: int
    cp: int
    mbs: int
    vpp: int = 1

    @property
    def topology(self) -> Topology:
        """The degrees alone."""
        return self.tp, self.pp, self.ep, self.cp


def _virtual_stages(arch: Architecture, pp: int) -> list[int]:
    """VPP that splits the layers evenly, and powers of two whatever is left over; single steps reach the others."""
    return [vpp for vpp in vpp_values(arch, pp) if arch.num_layers % (pp * vpp) == 0 or vpp & (vpp - 1) == 0]


def grid(workload: Workload, cluster: Cluster) -> list[GridPoint]:
    """Every TP x PP x EP x CP that fills the cluster, with each MBS (up to 4 x the workload's) that divides the batch, and VPP. Depths that
    need an uneven layout come with the others: layouts are generated.
    """
    arch, own, world = workload.architecture, workload.baseline, cluster.world_size
    sizes = [mbs for mbs in sorted({*mbs_values(), own.mbs}) if mbs <= MBS_GROWTH * own.mbs]
    return [
        GridPoint(tp=tp, pp=pp, ep=ep, cp=cp, mbs=mbs, vpp=vpp)
        for tp, pp, ep, cp in product(
            tp_values(arch, cluster), pp_values(arch, cluster), ep_values(arch, cluster), cp_values(arch, cluster)
        )
        if world % (tp * pp * cp) == 0 and world % (ep * pp) == 0
        for mbs in sizes
        if own.gbs % (mbs * (world // (tp * pp * cp))) == 0
        for vpp in _virtual_stages(arch, pp)
    ]


def grid_knobs(point: GridPoint, workload: Workload, levers: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs of a grid point with levers on top of it; what the levers or the workload have that the point cannot have is turned off."""
    own = workload.baseline
    knobs: dict[str, Any] = {**levers, "tp": point.tp, "pp": point.pp, "vpp": point.vpp, "cp": point.cp, "mbs": point.mbs}
    if workload.architecture.is_moe:
        knobs |= {"ep": point.ep, "expert_tensor_parallel_size": 1}
        if point.ep not in DEEPEP_GROUPS:
            knobs |= {"use_turbo_deepep": False, "sync_free_stage": 0}
    if own.use_torch_fsdp2 and point.pp > 1:
        knobs |= {"use_torch_fsdp2": False, "use_distributed_optimizer": True}
    if own.splits_weight_gradient:
        knobs |= {"pp_schedule": "auto"}
    return knobs
