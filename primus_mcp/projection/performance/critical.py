"""What follows the pipeline on each rank, which rank decides, and what its iteration is made of."""

from __future__ import annotations

from dataclasses import dataclass

from primus_mcp.projection.performance.exchange import Exchange
from primus_mcp.projection.performance.stages import StageCost


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTime:
    """One pipeline rank: `end_s` is the end of its last task, `busy_s` its own work, `sends` its transfers in an iteration."""

    stages: tuple[StageCost, ...]
    exchange: Exchange
    optimizer_s: float
    end_s: float
    busy_s: float
    sends: int

    @property
    def ready_s(self) -> float:
        """End of its tasks and of what runs once an iteration (FP8 weight casts)."""
        return self.end_s + sum(stage.once_s for stage in self.stages)

    @property
    def finish_s(self) -> float:
        """When its gradients are reduced: idle time at the end of a rank hides its exchange."""
        return self.ready_s + self.exchange.gradients_exposed_s


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationTime:
    """What each step adds to the critical path. Their sum is the iteration.

    pipeline = latest end of any rank; casts = max (end + casts) - that; gradients = max (end + casts + exposed exchange) - that; the
    gradient norm makes every rank wait, so the slowest optimizer and the slowest exposed parameter gather follow. `unpaired_s`: expert
    exchange of tasks that run beside no other, beyond what `busiest.stages` expose in pairs.
    """

    pipeline_s: float
    hop_exposed_s: float
    casts_s: float
    gradients_s: float
    update_s: float
    gather: Exchange
    busiest: RankTime
    last: RankTime
    micro_batches: int
    hop_s: float
    unpaired_s: float = 0.0

    @property
    def total_s(self) -> float:
        """The iteration."""
        return self.pipeline_s + self.casts_s + self.gradients_s + self.update_s + self.gather.parameters_exposed_s

    def breakdown_s(self, *, pipelined: bool) -> dict[str, float]:
        """Components of the busiest rank; in a pipeline `bubble` is its idle time apart from exposed transfers."""
        parts: dict[str, float] = {}
        for stage in self.busiest.stages:
            for name, share_s in stage.shares:
                parts[name] = parts.get(name, 0.0) + self.micro_batches * share_s
        if self.unpaired_s:
            parts["a2a"] = parts.get("a2a", 0.0) + self.unpaired_s
        parts["weight_cast"] = self.casts_s
        parts["pipeline_p2p"] = self.hop_exposed_s
        parts["gradient_exchange"] = self.gradients_s
        parts["parameter_exchange"] = self.gather.parameters_exposed_s
        parts["optimizer"] = self.update_s
        parts = {name: value for name, value in parts.items() if value != 0.0}
        if pipelined:
            parts["bubble"] = self.total_s - sum(parts.values())
        return parts

    def traffic_s(self) -> tuple[dict[str, float], dict[str, float]]:
        """(whole, exposed) communication by collective in an iteration: of the busiest rank, exchanges of the ranks that decide."""
        sends_s = max(self.hop_exposed_s, self.busiest.sends * self.hop_s)
        whole = {"pp": sends_s, "gradients": self.last.exchange.gradients_s, "parameters": self.gather.parameters_s}
        exposed = {"pp": self.hop_exposed_s, "gradients": self.gradients_s, "parameters": self.gather.parameters_exposed_s}
        for stage in self.busiest.stages:
            for target, source in ((whole, stage.transfers), (exposed, stage.exposed)):
                for name, seconds in source:
                    target[name] = target.get(name, 0.0) + self.micro_batches * seconds
        if self.unpaired_s:
            exposed["a2a"] = exposed.get("a2a", 0.0) + self.unpaired_s
        return whole, exposed


def iteration_time(ranks: tuple[RankTime, ...], free_step_s: float, micro_batches: int, hop_s: float) -> IterationTime:
    """`free_step_s`: the pipeline's time if transfers took none."""
    pipeline_s = max(rank.end_s for rank in ranks)
    ready_s = max(rank.ready_s for rank in ranks)
    last = max(ranks, key=lambda rank: rank.finish_s)
    return IterationTime(
        pipeline_s=pipeline_s,
        hop_exposed_s=pipeline_s - free_step_s,
        casts_s=ready_s - pipeline_s,
        gradients_s=last.finish_s - ready_s,
        update_s=max(rank.optimizer_s for rank in ranks),
        gather=max((rank.exchange for rank in ranks), key=lambda exchange: exchange.parameters_exposed_s),
        busiest=max(ranks, key=lambda rank: rank.busy_s),
        last=last,
        micro_batches=micro_batches,
        hop_s=hop_s,
    )
