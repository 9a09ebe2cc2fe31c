"""What follows the pipeline on each rank, which rank decides, and what its iteration is made of."""

from __future__ import annotations

from dataclasses import dataclass

from primus_mcp.projection.performance.exchange import Exchange
from primus_mcp.projection.performance.stages import StageCost


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTime:
    """One pipeline rank: `end_s` is the end of its last task, `sends` how many transfers it makes in an iteration."""

    stages: tuple[StageCost, ...]
    exchange: Exchange
    optimizer_s: float
    end_s: float
    sends: int

    @property
    def once_s(self) -> float:
        """FP8 weight casts, once an iteration."""
        return sum(stage.once_s for stage in self.stages)

    @property
    def finish_s(self) -> float:
        """End of its tasks, what runs once, and the gradient exchange that nothing hides."""
        return self.end_s + self.once_s + self.exchange.gradients_exposed_s


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationTime:
    """max over ranks of (tasks, once, exposed gradients) + the slowest optimizer + the slowest exposed parameter gather.

    The gradient norm makes every rank wait before the optimizer. `hop_s` is one transfer between stages, `hop_exposed_s` by how much
    transfers delay the slowest rank's end.
    """

    slowest: RankTime
    gather: Exchange
    update_s: float
    micro_batches: int
    hop_s: float
    hop_exposed_s: float

    @property
    def total_s(self) -> float:
        """The iteration."""
        return self.slowest.finish_s + self.update_s + self.gather.parameters_exposed_s

    def breakdown_s(self, *, pipelined: bool) -> dict[str, float]:
        """Components of the slowest rank; in a pipeline `bubble` is what is left, so that the parts sum to the iteration."""
        parts: dict[str, float] = {}
        for stage in self.slowest.stages:
            for name, share_s in stage.shares:
                parts[name] = parts.get(name, 0.0) + self.micro_batches * share_s
        parts["weight_cast"] = self.slowest.once_s
        parts["pipeline_p2p"] = self.hop_exposed_s
        parts["gradient_exchange"] = self.slowest.exchange.gradients_exposed_s
        parts["parameter_exchange"] = self.gather.parameters_exposed_s
        parts["optimizer"] = self.update_s
        parts = {name: value for name, value in parts.items() if value != 0.0}
        if pipelined:
            parts["bubble"] = self.total_s - sum(parts.values())
        return parts

    def traffic_s(self) -> tuple[dict[str, float], dict[str, float]]:
        """(whole, exposed) communication by collective in an iteration."""
        sends_s = max(self.hop_exposed_s, self.slowest.sends * self.hop_s)
        exchange = self.slowest.exchange
        whole = {"pp": sends_s, "gradients": exchange.gradients_s, "parameters": self.gather.parameters_s}
        exposed = {
            "pp": self.hop_exposed_s,
            "gradients": exchange.gradients_exposed_s,
            "parameters": self.gather.parameters_exposed_s,
        }
        for stage in self.slowest.stages:
            for target, source in ((whole, stage.transfers), (exposed, stage.exposed)):
                for name, seconds in source:
                    target[name] = target.get(name, 0.0) + self.micro_batches * seconds
        return whole, exposed


def iteration_time(ranks: tuple[RankTime, ...], free_end_s: tuple[float, ...], micro_batches: int, hop_s: float) -> IterationTime:
    """`free_end_s`: ends of the ranks if transfers took no time."""
    slowest = max(range(len(ranks)), key=lambda index: ranks[index].finish_s)
    return IterationTime(
        slowest=ranks[slowest],
        gather=max((rank.exchange for rank in ranks), key=lambda exchange: exchange.parameters_exposed_s),
        update_s=max(rank.optimizer_s for rank in ranks),
        micro_batches=micro_batches,
        hop_s=hop_s,
        hop_exposed_s=ranks[slowest].end_s - free_end_s[slowest],
    )
