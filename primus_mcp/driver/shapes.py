"""Shapes of a configuration: degrees, micro-batch, virtual stages, recompute and schedule that fill a cluster, as columns of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.session import TuningSession
from primus_mcp.space.axes import legal_axes

Column = NDArray[np.float64]
SCHEDULES = ("auto", "zerobubble", "zbv-formatted", "zbv-greedy-half")
"""Schedules worth a shape of their own; position is the value in the column."""
VIRTUAL = {"auto": (1, 2, 3, 4, 5, 6, 8), "zerobubble": (1,), "zbv-formatted": (2,), "zbv-greedy-half": (2,)}
_SPLIT: dict[str, str] = {
    "zero-bubble": "zerobubble",
    "zero-bubble-heuristic": "zerobubble",
    "zbv-formatted": "zbv-formatted",
    "v-half": "zbv-greedy-half",
    "v-min": "zbv-greedy-half",
}
"""The nearest of SCHEDULES by the schedule that runs."""
RECOMPUTED = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Share of the layers of a virtual stage that are recomputed."""
SELECTIVE = -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """One row a shape. `recompute`: share of layers, SELECTIVE for selective; `schedule`: position in SCHEDULES; `dp`: derived."""

    tp: Column
    pp: Column
    ep: Column
    cp: Column
    mbs: Column
    vpp: Column
    recompute: Column
    schedule: Column
    dp: Column

    @property
    def topology(self) -> tuple[Column, Column, Column, Column]:
        """The degrees."""
        return self.tp, self.pp, self.ep, self.cp

    def __len__(self) -> int:
        """Number of shapes."""
        return len(self.tp)

    def row(self, index: int) -> dict[str, float]:
        """One shape by name."""
        return {name: float(getattr(self, name)[index]) for name in self.__slots__}


def _numbers(values: tuple[Any, ...]) -> list[int]:
    return [value for value in values if isinstance(value, int)]


def _shares(schedule: str, granularities: tuple[Any, ...]) -> list[float]:
    """Shares of the layers to recompute; schedules that split the backward pass recompute nothing."""
    if schedule != "auto":
        return [0.0]
    return [*RECOMPUTED, *([SELECTIVE] if "selective" in granularities else [])]


def batch_of(session: TuningSession) -> int:
    """Sequences an iteration of every shape: the pinned batch, else the workload's own."""
    pinned = session.pins.get("gbs")
    return pinned if isinstance(pinned, int) else session.workload.baseline.gbs


def shapes_of(session: TuningSession) -> Shapes:
    """Every shape that fills the cluster and keeps the batch, of the values that axes and pins allow."""
    workload, cluster = session.workload, session.target.cluster
    axes = legal_axes(workload, cluster, axes=session.target.axes.model_dump(), pins=session.pins)
    gbs = batch_of(session)
    own, layers, world = workload.baseline, workload.architecture.num_layers, cluster.world_size
    free_vpp = len(axes["vpp"]) > 1 or own.pp == 1
    granularities = axes["recompute_granularity"]
    schedules = [name for name in SCHEDULES if name in axes["pp_schedule"]] or ["auto"]
    rows: list[tuple[float, ...]] = []
    for tp, pp, ep, cp in product(*(_numbers(axes[name]) for name in ("tp", "pp", "ep", "cp"))):
        if world % (tp * pp * cp) or world % (ep * pp):
            continue
        dp = world // (tp * pp * cp)
        for mbs, schedule in product(_numbers(axes["mbs"]), schedules if pp > 1 else ["auto"]):
            if gbs % (mbs * dp):
                continue
            depths = [vpp for vpp in VIRTUAL[schedule] if pp * vpp <= layers] if pp > 1 and free_vpp else [1 if pp == 1 else own.vpp]
            shares = [share_of(own, layers)] if len(granularities) == 1 else _shares(schedule, granularities)
            rows += [(tp, pp, ep, cp, mbs, vpp, share, SCHEDULES.index(schedule), dp) for vpp in depths for share in shares]
    table = np.array(rows or np.empty((0, 9)), dtype=np.float64)
    return Shapes(**{name: table[:, index] for index, name in enumerate(Shapes.__slots__)})


def share_of(config: TrainingConfig, layers: int) -> float:
    """Share of layers that a configuration recomputes."""
    recompute = config.recompute
    if recompute.granularity != "full":
        return SELECTIVE if recompute.granularity == "selective" else 0.0
    a_stage = max(1, layers // (config.pp * config.vpp))
    return 1.0 if recompute.num_layers is None else min(1.0, recompute.num_layers / a_stage)


def shape_of(config: TrainingConfig, layers: int, dp: int) -> dict[str, float]:
    """The shape of a priced configuration."""
    schedule = SCHEDULES.index(_SPLIT.get(config.schedule, "auto"))
    degrees = {"tp": config.tp, "pp": config.pp, "ep": config.ep, "cp": config.cp, "mbs": config.mbs, "vpp": config.vpp, "dp": dp}
    return {name: float(value) for name, value in degrees.items()} | {"recompute": share_of(config, layers), "schedule": float(schedule)}


def knobs_of_shape(row: Mapping[str, float], levers: Mapping[str, Any], layers: int, *, moe: bool) -> dict[str, Any]:
    """The knobs of a shape on top of levers; exchange levers are dropped where there is no exchange."""
    knobs: dict[str, Any] = {**levers, **{name: int(row[name]) for name in ("tp", "pp", "cp", "mbs", "vpp")}}
    share, chunk = row["recompute"], max(1, -(-layers // int(row["pp"] * row["vpp"])))
    knobs |= {"recompute_granularity": "selective" if share == SELECTIVE else "full" if share > 0 else "none", "recompute_num_layers": None}
    if 0 < share < 1:
        knobs["recompute_num_layers"] = max(1, round(share * chunk))
    knobs["pp_schedule"] = SCHEDULES[int(row["schedule"])]
    if moe:
        knobs |= {"ep": int(row["ep"]), "expert_tensor_parallel_size": 1}
        if knobs["ep"] == 1:
            knobs |= {"use_turbo_deepep": False, "sync_free_stage": 0}
    if knobs["pp"] > 1 and knobs.get("use_torch_fsdp2"):
        knobs |= {"use_torch_fsdp2": False, "use_distributed_optimizer": True}
    return {name: value for name, value in knobs.items() if value is not None}
