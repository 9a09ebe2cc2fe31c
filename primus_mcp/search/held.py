"""What a schedule that is pinned, or whose axis is off, needs of the other knobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from primus_mcp.inputs.training import SPLIT_WGRAD_SCHEDULES, V_SCHEDULES
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.knobs import KNOBS, KnobValue, TrialConfig
from primus_mcp.space.pipeline_keys import depths, requested_schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSchedule:
    """A split-backward schedule that no trial may leave (`held`), or none: then it needs nothing. `pinned`: what names it."""

    workload: Workload
    pinned: TrialConfig
    held: bool
    allow_policy: bool

    @classmethod
    def of(cls, workload: Workload, *, axes: Mapping[str, bool], pins: Mapping[str, KnobValue], allow_policy: bool) -> HeldSchedule:
        """The schedule that pins and the axis leave."""
        names = ("pp_schedule", "enable_zero_bubble")
        pinned = TrialConfig.model_validate({name: pins[name] for name in names if name in pins})
        asks = pinned.enable_zero_bubble or requested_schedule(pinned, 1) in SPLIT_WGRAD_SCHEDULES
        stays = not pins.keys() & set(names) and not axes.get(KNOBS["pp_schedule"].axis or "", True)
        held = bool(asks or (stays and workload.baseline.splits_weight_gradient))
        return cls(workload=workload, pinned=pinned, held=held, allow_policy=allow_policy)

    def runs(self, pp: int, vpp: int) -> bool:
        """Whether the schedule that is held runs at these depths: V schedules at VPP 2 (S3), the others at VPP 1 (S2)."""
        if not self.held or pp == 1:
            return True
        return vpp == self._stages(requested_schedule(self.pinned, vpp) or self.workload.baseline.schedule)

    def _stages(self, schedule: str) -> int:
        return 2 if schedule in V_SCHEDULES else 1

    def needs(self, trial: TrialConfig) -> dict[str, KnobValue]:
        """Knobs of a trial that must change: VPP; under the bounds of the search also no recompute (S17) and no FP8 (split-fp8), which a
        Turbo GEMM cannot run in any case (S11).
        """
        own = self.workload.baseline
        pp, vpp = depths(trial, own)
        schedule = requested_schedule(trial, vpp) or own.schedule
        if not self.held or pp == 1 or schedule not in SPLIT_WGRAD_SCHEDULES:
            return {}
        needed: dict[str, KnobValue] = {}
        if vpp != self._stages(schedule):
            needed["vpp"] = self._stages(schedule)
        if not self.allow_policy and (trial.recompute_granularity or own.recompute.granularity) != "none":
            needed |= {"recompute_granularity": "none", "recompute_num_layers": None}
        fp8 = own.fp8 is not None if trial.fp8 is None else trial.fp8 != "none"
        if fp8 and (own.turbo_gemm or not self.allow_policy):
            needed["fp8"] = "none"
        return needed
