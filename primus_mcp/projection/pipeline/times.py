"""Times of the stages, checked, and the table in which the graphs look them up."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from primus_mcp.projection.pipeline.graph import value_table
from primus_mcp.projection.pipeline.order import home_of, stage_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Seconds a micro-batch for every stage in model order (length pp * vpp), and one hop for every boundary between stages.

    For paired schedules either forward_exchange_s, backward_exchange_s: the part of a forward, of a full backward that is expert
    all-to-all; or forward_paired_s, backward_paired_s: what each takes of a pair.
    """

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    weight_s: tuple[float, ...]
    hop_s: tuple[float, ...]
    forward_exchange_s: tuple[float, ...] = ()
    backward_exchange_s: tuple[float, ...] = ()
    forward_paired_s: tuple[float, ...] = ()
    backward_paired_s: tuple[float, ...] = ()

    def pair_s(self, forward_stage: int, backward_stage: int) -> float:
        """A forward overlapped with a full backward: what both take of a pair, or max(compute of both, all-to-all of both), or the sum."""
        if self.forward_paired_s:
            return self.forward_paired_s[forward_stage] + self.backward_paired_s[backward_stage]
        whole = self.forward_s[forward_stage] + self.backward_s[backward_stage] + self.weight_s[backward_stage]
        if not self.forward_exchange_s:
            return whole
        exchange = self.forward_exchange_s[forward_stage] + self.backward_exchange_s[backward_stage]
        return max(whole - exchange, exchange)

    def saved_s(self, forward_stage: int, backward_stage: int) -> float:
        """What running the two overlapped saves."""
        apart = self.forward_s[forward_stage] + self.backward_s[backward_stage] + self.weight_s[backward_stage]
        return apart - self.pair_s(forward_stage, backward_stage)

    def values(self, pp: int, *, paired: bool, vee: bool) -> list[float]:
        """The value table of the graphs; a pair is of two chunks on one rank."""
        pairs: tuple[float, ...] = ()
        if paired:
            vpp = len(self.forward_s) // pp
            pairs = tuple(
                self.pair_s(stage, stage_of(home_of(stage, pp, vee=vee)[0], chunk, pp, vee=vee))
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
    exchange_s: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
    paired_s: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
) -> StageTimes:
    """Checked stage times. Raises ValueError for a wrong length, a time that is negative or not finite, or more all-to-all than time."""
    hops = hop_s if isinstance(hop_s, tuple) else (hop_s,) * (stages - 1)
    checked = [("forward_s", forward_s, stages), ("backward_s", backward_s, stages), ("weight_s", weight_s, stages)]
    checked.append(("hop_s", hops, stages - 1))
    if paired_s is not None:
        checked += [("paired_s of forwards", paired_s[0], stages), ("paired_s of backwards", paired_s[1], stages)]
    if exchange_s is not None:
        checked += [("exchange_s of forwards", exchange_s[0], stages), ("exchange_s of backwards", exchange_s[1], stages)]
    for name, times, length in checked:
        if len(times) != length:
            raise ValueError(f"{name} has {len(times)} entries, {stages} stages need {length}")
        if not all(isfinite(time) and time >= 0 for time in times):
            raise ValueError(f"{name} holds a time that is negative or not finite: {times}")
    forward_exchange, backward_exchange = exchange_s or ((), ())
    if any(part > whole for part, whole in zip(forward_exchange, forward_s, strict=False)) or any(
        part > b + w for part, b, w in zip(backward_exchange, backward_s, weight_s, strict=False)
    ):
        raise ValueError("exchange_s exceeds the time of the task that it is a part of")
    return StageTimes(
        forward_s=forward_s,
        backward_s=backward_s,
        weight_s=weight_s,
        hop_s=hops,
        forward_exchange_s=forward_exchange,
        backward_exchange_s=backward_exchange,
        forward_paired_s=paired_s[0] if paired_s else (),
        backward_paired_s=paired_s[1] if paired_s else (),
    )
