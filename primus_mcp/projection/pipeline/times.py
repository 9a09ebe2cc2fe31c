"""Times of the stages, checked, and the table in which the graphs look them up."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from primus_mcp.projection.pipeline.graph import value_table
from primus_mcp.projection.pipeline.order import home_of, stage_of
from primus_mcp.projection.pipeline.rules import PAIRED_SCHEDULES, SPLIT_PAIR_SCHEDULES, VEE_SCHEDULES

Pair = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Seconds a micro-batch for every stage in model order (length pp * vpp), and one hop for every boundary between stages.

    forward_paired_s, backward_paired_s: what a forward and the backward of its pair take while they run overlapped; empty: as much as
    alone. `split`: the pairs are with input gradients, not with full backwards.
    """

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    weight_s: tuple[float, ...]
    hop_s: tuple[float, ...]
    forward_paired_s: tuple[float, ...] = ()
    backward_paired_s: tuple[float, ...] = ()

    def alone_s(self, forward_stage: int, backward_stage: int, *, split: bool) -> float:
        """The two of a pair one after the other."""
        whole_s = self.forward_s[forward_stage] + self.backward_s[backward_stage]
        return whole_s if split else whole_s + self.weight_s[backward_stage]

    def pair_s(self, forward_stage: int, backward_stage: int, *, split: bool) -> float:
        """The two of a pair overlapped."""
        if not self.forward_paired_s:
            return self.alone_s(forward_stage, backward_stage, split=split)
        return self.forward_paired_s[forward_stage] + self.backward_paired_s[backward_stage]

    def saved_s(self, forward_stage: int, backward_stage: int, *, split: bool) -> float:
        """What running the two overlapped saves."""
        return self.alone_s(forward_stage, backward_stage, split=split) - self.pair_s(forward_stage, backward_stage, split=split)

    def values(self, pp: int, schedule: str) -> list[float]:
        """The value table of a schedule's graphs; a pair is of two chunks on one rank."""
        pairs: tuple[float, ...] = ()
        if schedule in PAIRED_SCHEDULES:
            vee, split = schedule in VEE_SCHEDULES, schedule in SPLIT_PAIR_SCHEDULES
            vpp = len(self.forward_s) // pp
            pairs = tuple(
                self.pair_s(stage, stage_of(home_of(stage, pp, vee=vee)[0], chunk, pp, vee=vee), split=split)
                for stage in range(len(self.forward_s))
                for chunk in range(vpp)
            )
        return value_table(self.forward_s, self.backward_s, self.weight_s, self.hop_s, pairs)


def stage_times(
    stages: int,
    forward_s: tuple[float, ...],
    backward_s: tuple[float, ...],
    weight_s: tuple[float, ...],
    hop_s: float | tuple[float, ...],
    paired_s: Pair | None = None,
) -> StageTimes:
    """Checked stage times. Raises ValueError for a wrong length, or a time that is negative or not finite."""
    hops = hop_s if isinstance(hop_s, tuple) else (hop_s,) * (stages - 1)
    checked = [("forward_s", forward_s, stages), ("backward_s", backward_s, stages), ("weight_s", weight_s, stages)]
    checked.append(("hop_s", hops, stages - 1))
    if paired_s is not None:
        checked += [("paired_s of forwards", paired_s[0], stages), ("paired_s of backwards", paired_s[1], stages)]
    for name, times, length in checked:
        if len(times) != length:
            raise ValueError(f"{name} has {len(times)} entries, {stages} stages need {length}")
        if not all(isfinite(time) and time >= 0 for time in times):
            raise ValueError(f"{name} holds a time that is negative or not finite: {times}")
    forward_paired, backward_paired = paired_s or ((), ())
    return StageTimes(
        forward_s=forward_s,
        backward_s=backward_s,
        weight_s=weight_s,
        hop_s=hops,
        forward_paired_s=forward_paired,
        backward_paired_s=backward_paired,
    )
