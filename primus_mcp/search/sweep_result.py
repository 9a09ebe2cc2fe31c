"""What a sweep found, as one record."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.version import engine_version


def sweep_mark() -> str:
    """How the note of a sweep by this engine begins, in the scratchpad of a run that started from one."""
    return f"Sweep before the search by engine {engine_version()}"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SweptTrial(_Record):
    """One of the best configurations: `trial` holds the knobs it sets, `result` is the evaluator's own answer."""

    trial: dict[str, Any]
    result: EvaluationResult


class SweepCounts(_Record):
    """Where every configuration of the space went. size = sum of fallen + legal; legal = excluded + slower + over_memory + priced."""

    size: int = Field(description="configurations before any rule")
    fallen: dict[str, int] = Field(description="illegal configurations by the first rule that refuses them")
    legal: int = Field(description="configurations that obey every rule")
    excluded: int = Field(description="legal ones that --where excludes before they are priced")
    slower: int = Field(
        description="legal ones that cannot be among the best: their bound is below the last of them, whatever their memory"
    )
    over_memory: int = Field(description="the others that need more memory than the cap, by the bound or by the projection")
    priced: int = Field(description="configurations that the evaluator's own path priced, those that --where then excludes too")
    open: int = Field(description="configurations left when the sweep was stopped; 0 when it ended")


class SweepResult(_Record):
    """The best configurations of the whole space. `proven`: no configuration of the space is faster under the model, by the bound."""

    workload: str
    cluster: str
    gpus: int
    counts: SweepCounts
    top: list[SweptTrial]
    by_memory: list[SweptTrial] = Field(description="the fastest configuration under each memory level that was asked for, loosest first")
    proven: bool = Field(description="the first of `top` is the optimum under the model: every other one is bounded below it")
    top_proven: bool = Field(description="all of `top` are the best ones, in order")
    gap: float | None = Field(
        description="how much faster an open configuration could still be at most; 0 when proven, null where not all were bounded"
    )
    ties: int = Field(description="configurations found as fast as the optimum, itself included")
    recommended: int | None = Field(description="place in `top` of the configuration to run, which may avoid a memory risk")
    note: str | None = Field(description="why the recommendation is not the first, or that it is at risk")
    more_nodes: str | None = Field(default=None, description="where nothing fits: how many nodes are enough, or that it is not known")
    checked_points: int = Field(description="random configurations whose legality was compared with the rules asked one by one")
    disagreements: list[str] = Field(description="those that differed; empty means the count of the space is right there")
    where: str
    only: list[str] | None = Field(description="knobs that could move, where not all: the others were the workload's own")
    stopped: str | None = Field(description="why the sweep ended early; null when it did not")
    wall_s: float
    cpu_s: float = Field(description="of this process and those it started; not of Ray's workers")

    @property
    def best(self) -> SweptTrial | None:
        """The fastest configuration."""
        return self.top[0] if self.top else None
