"""The part of a sweep that can be done anywhere: topologies that share layer costs, walked with the limits of the moment.

A `Task` goes out and an `Outcome` comes back; both are plain data. A `Walker` remembers between tasks what the rules said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from primus_mcp.errors import PrimusMcpError
from primus_mcp.evaluation.evaluators import Rules
from primus_mcp.inputs.training import Recompute
from primus_mcp.projection.ops.backend import GemmBackend
from primus_mcp.projection.performance.projection import rates_for
from primus_mcp.search.sweep_blocks import Lot, Walk
from primus_mcp.search.sweep_bounds import BlockBounds, Pricing
from primus_mcp.search.sweep_choices import Knobs, choices_of
from primus_mcp.search.sweep_found import TIE, Candidates, Limits, Rates, joined
from primus_mcp.search.sweep_masks import Masks
from primus_mcp.search.sweep_where import parse_where
from primus_mcp.units import GIB
from primus_mcp.version import engine_version


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepProblem:
    """What is swept: everything that a walker needs, picklable."""

    rules: Rules
    only: frozenset[str] | None
    where: str
    levels_bytes: tuple[float, ...]
    gemm_backend: GemmBackend
    engine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Topologies to walk, what must be reached, and how many random points to check against the rules."""

    topologies: tuple[Knobs, ...]
    limits: Limits
    points: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a task found. `over`: bounds of those that matter and need more memory than the cap."""

    topologies: int
    legal: int
    excluded: int
    blocks: int
    slower: int
    over: Rates
    fallen: Counter[str]
    candidates: Candidates
    disagreements: tuple[str, ...]


class Walker:
    """Does tasks of one problem. Raises PrimusMcpError where another engine posed it: bounds of two engines prove nothing."""

    def __init__(self, problem: SweepProblem) -> None:
        if problem.engine != engine_version():
            raise PrimusMcpError(
                f"a worker runs engine {engine_version()}, the sweep {problem.engine}; install the same version everywhere"
            )
        rules = problem.rules
        self.problem = problem
        self.choices = choices_of(rules.workload, rules.cluster, axes=rules.axes, pins=rules.pins, only=problem.only)
        self.masks = Masks(rules, self.choices)
        self.pricing = Pricing(workload=rules.workload, rates=rates_for(rules.cluster, problem.gemm_backend))
        self._where = parse_where(problem.where or None)
        self._records: dict[object, Recompute] = {}
        self._most_bytes = min(rules.cluster.memory_cap_bytes, self._where.most_memory_gb * GIB * (1 + TIE))
        self._levels = np.array(problem.levels_bytes or (rules.cluster.memory_cap_bytes,))
        self._per_time = rules.workload.architecture.seq_length / rules.cluster.world_size

    def walk(self) -> Walk:
        """A fresh walk with empty counts."""
        return Walk(masks=self.masks, pricing=self.pricing, where=self._where, records=self._records)

    def units(self) -> list[tuple[Knobs, ...]]:
        """Legal topologies by what their layers cost; each illegal one is counted in the masks' `fallen`."""
        alike: dict[tuple[object, ...], list[Knobs]] = {}
        for topology in self.masks.topologies():
            alike.setdefault(tuple(value for name, value in topology.items() if name != "pp"), []).append(topology)
        return [tuple(topologies) for topologies in alike.values()]

    def work(self, task: Task, should_stop: Callable[[], bool] = lambda: False) -> Outcome | None:
        """Walk the task's topologies. None where `should_stop` cut it short: what is half done is in no count."""
        self.masks.fallen.clear()
        walk, slower = self.walk(), 0
        over: list[Rates] = [np.zeros(0)]
        parts: list[Candidates] = []
        for lot, bounds in walk.unit(task.topologies, should_stop):
            cut, too_large, found = self._sift(lot, bounds, task.limits)
            slower += cut
            over.append(too_large)
            parts += [found] if len(found) else []
        if should_stop():
            return None
        return Outcome(
            topologies=len(task.topologies),
            legal=walk.legal,
            excluded=walk.excluded,
            blocks=walk.blocks,
            slower=slower,
            over=np.concatenate(over),
            fallen=walk.fallen + self.masks.fallen,
            candidates=joined(parts),
            disagreements=tuple(self.masks.random_disagreements(task.points, task.seed, task.topologies)),
        )

    def _sift(self, lot: Lot, bounds: BlockBounds, limits: Limits) -> tuple[int, Rates, Candidates]:
        """(how many are too slow, bounds of those that are too large, what may matter) of one block."""
        batches = np.array([float(batch.gbs) for batch in lot.block.batches])
        rate = batches[lot.batch] * self._per_time / bounds.time_s
        fast = np.nonzero(rate >= limits.floor)[0]
        least_bytes = bounds.memory_bytes(fast) if len(fast) else np.zeros(0)
        inside = least_bytes <= self._most_bytes
        fits = fast[inside]
        level = (self._levels[None, :] >= least_bytes[inside][:, None]).sum(axis=1) - 1
        may = limits.matter(rate[fits], level)
        kept = fits[may]
        found = Candidates(
            knobs=tuple(lot.block.knobs(i) for i in range(len(lot.block.batches))) if len(kept) else (),
            rate=rate[kept],
            level=level[may],
            block=lot.batch[kept],
            lever=lot.lever[kept],
            choice=lot.choice[kept],
        )
        return len(rate) - len(fast) + len(fits) - len(kept), rate[fast[~inside]], found


def task_points(units: Sequence[object], points: int) -> int:
    """Random points a unit, so that all together are at least `points`."""
    return -(-points // max(1, len(units)))
