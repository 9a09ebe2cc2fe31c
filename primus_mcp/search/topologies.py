"""TP x PP x EP x CP grid of a cluster with the micro-batches and virtual stages of each point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.axes import legal_axes, vpp_values
from primus_mcp.space.knobs import KNOBS, KnobValue
from primus_mcp.space.rules.moe import DEEPEP_GROUPS, turbo_left_out

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


def grid(
    workload: Workload, cluster: Cluster, *, axes: Mapping[str, bool] | None = None, pins: Mapping[str, KnobValue] | None = None
) -> list[GridPoint]:
    """Every TP x PP x EP x CP that fills the cluster, with each MBS (up to 4 x the workload's) that divides the batch, and VPP. Depths that
    need an uneven layout come with the others: layouts are generated. A pinned degree has its pin's value only, one whose axis is off the
    workload's; PP 1 has no virtual stages unless they are pinned (L6).
    """
    arch, own, world = workload.architecture, workload.baseline, cluster.world_size
    values = legal_axes(workload, cluster, axes=axes, pins=pins)
    held = {name for name, knob in KNOBS.items() if name in (pins or {}) or (knob.axis and not (axes or {}).get(knob.axis, True))}

    def whole(name: str) -> list[int]:
        return [value for value in values[name] if isinstance(value, int)]

    sizes = [mbs for mbs in sorted({*whole("mbs")}) if "mbs" in held or mbs <= MBS_GROWTH * own.mbs]
    (gbs,) = whole("gbs") if "gbs" in held else [own.gbs]
    (etp,) = whole("expert_tensor_parallel_size") if "expert_tensor_parallel_size" in held and arch.is_moe else [1]

    def stages(pp: int) -> list[int]:
        if "vpp" not in held:
            return _virtual_stages(arch, pp)
        if pp == 1 and "vpp" not in (pins or {}):
            return [1]
        return [vpp for vpp in whole("vpp") if pp * vpp <= arch.num_layers and (pp > 1 or vpp == 1)]

    return [
        GridPoint(tp=tp, pp=pp, ep=ep, cp=cp, mbs=mbs, vpp=vpp)
        for tp, pp, ep, cp in product(*(whole(name) for name in ("tp", "pp", "ep", "cp")))
        if world % (tp * pp * cp) == 0 and world % (etp * ep * pp) == 0
        for mbs in sizes
        if gbs % (mbs * (world // (tp * pp * cp))) == 0
        for vpp in stages(pp)
    ]


def grid_knobs(point: GridPoint, workload: Workload, cluster: Cluster, levers: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs of a grid point with levers on top of it; what the levers or the workload have that the point cannot have is turned off."""
    own = workload.baseline
    knobs: dict[str, Any] = {**levers, "tp": point.tp, "pp": point.pp, "vpp": point.vpp, "cp": point.cp, "mbs": point.mbs}
    if workload.architecture.is_moe:
        knobs |= {"ep": point.ep, "expert_tensor_parallel_size": 1}
        if point.ep not in DEEPEP_GROUPS:
            knobs |= {"use_turbo_deepep": False, "sync_free_stage": 0}
        elif turbo_left_out(cluster.gpu, point.tp):
            stage = levers.get("sync_free_stage", own.sync_free_stage)
            knobs |= {"use_turbo_deepep": False, "sync_free_stage": min(1, stage)}
    if own.use_torch_fsdp2 and point.pp > 1:
        knobs |= {"use_torch_fsdp2": False, "use_distributed_optimizer": True}
    if own.splits_weight_gradient:
        knobs |= {"pp_schedule": "auto"}
    return knobs
