"""Predicts each row and compares: time as tokens/s/GPU, memory as GB of 2**30 bytes of the worst rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from primus_mcp.errors import PrimusMcpError
from primus_mcp.evaluation.nearest import Traits, traits_of
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.memory import project_memory
from primus_mcp.projection.memory.projection import MemoryProjection
from primus_mcp.projection.memory.verdict import Fit
from primus_mcp.projection.ops.backend import GemmBackend
from primus_mcp.projection.performance import project_performance
from primus_mcp.units import bytes_to_gb
from primus_mcp.validation.errors import NotScoredError
from primus_mcp.validation.resolve import BY_OPERATOR, Case, Ladders, resolve
from primus_mcp.validation.rows import Row
from primus_mcp.validation.table import Counter

What = Literal["time", "memory"]
SUSPECT = "suspect"
"""The suite of runs that are not what their row says; good for the order of their times only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One row and one figure. `skipped_reason` says why there is no prediction; then numbers are None.

    `same_as` is the id of the first row with the same resolved configuration (and the same figure, for memory): groups count it once.
    """

    row: Row
    what: What
    measured: float | None = None
    predicted: float | None = None
    verdict: Fit | None = None
    counter: Counter | None = None
    skipped_reason: str | None = None
    assumptions: tuple[str, ...] = ()
    config: TrainingConfig | None = None
    is_moe: bool = False
    nodes: int = 1
    traits: Traits | None = None
    same_as: str | None = None

    @property
    def error_fraction(self) -> float | None:
        """Predicted / measured - 1; above 0: too fast, or too much memory."""
        if self.measured is None or self.predicted is None:
            return None
        return self.predicted / self.measured - 1

    @property
    def verdict_is_wrong(self) -> bool | None:
        """A run that went out of memory called `fits`, or one that ran called `does_not_fit`; None: no verdict."""
        if self.verdict is None:
            return None
        return self.verdict == ("fits" if self.row.ran_out_of_memory else "does_not_fit")


def memory_counter(row: Row, case: Case) -> Counter:
    """Which counter a memory figure is of: what the row says, else what the framework prints."""
    kind = (row.mem_kind or "").lower()
    if "%" in kind or "device" in kind or "hbm" in kind:
        return "device"
    if "allocated" in kind or "formula" in kind:
        return "allocated"
    return "reserved" if "reserved" in kind else case.counter


def _counted_bytes(projection: MemoryProjection, counter: Counter) -> int:
    if counter == "device":
        return projection.device_bytes
    return max(rank.allocated_bytes if counter == "allocated" else rank.reserved_bytes for rank in projection.ranks)


def _memory(row: Row, case: Case) -> Scored:
    if SUSPECT in row.suite:
        raise NotScoredError("marked suspect: the figures of its source contradict each other, so its memory is not this model's")
    projection = project_memory(case.arch, case.config, case.cluster)
    counter = memory_counter(row, case)
    return Scored(
        row=row,
        what="memory",
        measured=row.mem_gb,
        predicted=bytes_to_gb(_counted_bytes(projection, counter)),
        verdict=projection.fits(case.cluster.hbm_bytes),
        counter=counter,
        assumptions=case.assumptions,
        config=case.config,
        is_moe=case.arch.is_moe,
        nodes=case.cluster.num_nodes,
    )


def _time(row: Row, case: Case, backend: GemmBackend) -> Scored:
    if case.other_part:
        raise NotScoredError("another part than the catalogue's GPU of that name: memory only")
    if case.config.recompute == BY_OPERATOR:
        raise NotScoredError("the time of recomputation by torch operator is not priced: memory only")
    projection = project_performance(case.arch, case.config, case.cluster, gemm_backend=backend)
    return Scored(
        row=row,
        what="time",
        measured=row.tokens_per_s_per_gpu,
        predicted=projection.tokens_per_s_per_gpu,
        assumptions=case.assumptions,
        config=case.config,
        is_moe=case.arch.is_moe,
        nodes=case.cluster.num_nodes,
        traits=traits_of(case.arch, case.config, case.cluster),
    )


def _figures(row: Row, wanted: Iterable[What]) -> list[What]:
    stated: dict[What, bool] = {
        "time": row.tokens_per_s_per_gpu is not None,
        "memory": row.mem_gb is not None or row.ran_out_of_memory,
    }
    return [what for what in wanted if stated[what]]


def _unmeasured(row: Row, wanted: tuple[What, ...]) -> list[Scored]:
    """A row without a figure to compare with; TFLOP/s is none, since conventions differ."""
    if _figures(row, ("time", "memory")):
        return []
    return [Scored(row=row, what=wanted[0], skipped_reason="neither throughput, iteration time nor memory was measured")]


def _scored_row(row: Row, flags: str, figures: list[What], backend: GemmBackend, profile: str | None) -> list[Scored]:
    try:
        case = resolve(row, flags, profile=profile)
    except PrimusMcpError as problem:
        return [Scored(row=row, what=what, skipped_reason=str(problem)) for what in figures]
    found = []
    for what in figures:
        try:
            found.append(_memory(row, case) if what == "memory" else _time(row, case, backend))
        except PrimusMcpError as problem:
            found.append(Scored(row=row, what=what, skipped_reason=str(problem), assumptions=case.assumptions))
    return found


def _with_twins(scored: list[Scored]) -> list[Scored]:
    """Marks rows that repeat a configuration: several submitters' runs, or micro-batch counts that leave memory as it is."""
    first: dict[object, str] = {}
    marked = []
    for item in scored:
        if item.skipped_reason is not None or item.predicted is None:
            marked.append(item)
            continue
        key = _configuration_key(item)
        known = first.setdefault(key, item.row.id)
        marked.append(item if known == item.row.id else replace(item, same_as=known))
    return marked


def _configuration_key(item: Scored) -> tuple[object, ...]:
    """Equal for rows that count once: fine-tuning submissions of one model, GPU, precision and size; memory rows with the same prediction
    and figure. A pretraining row of time always counts by itself: a median over releases would hide what differs between them.
    """
    row = item.row
    who = (item.what, row.framework, row.model, row.task, row.gpu, row.n_gpus, row.precision)
    if item.what == "time":
        return who if row.task != "pretrain" else (*who, row.id)
    return (*who, item.measured, round(item.predicted or 0.0, 3))


def score(
    rows: Iterable[Row],
    *,
    what: Iterable[What] = ("time", "memory"),
    suite: str | None = None,
    backend: GemmBackend = "auto",
    profile: str | None = None,
) -> tuple[Scored, ...]:
    """Every figure of every row of a suite (None: all), in the order of the rows. Ladders inherit from rows outside the suite too."""
    wanted, ladders = tuple(what), Ladders()
    scored: list[Scored] = []
    for row in rows:
        flags = ladders.flags(row)
        if suite is not None and suite not in row.suite:
            continue
        figures = _figures(row, wanted)
        scored += _scored_row(row, flags, figures, backend, profile) if figures else _unmeasured(row, wanted)
    return tuple(_with_twins(scored))
