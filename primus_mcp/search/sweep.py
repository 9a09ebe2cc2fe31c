"""The whole legal space: bound every configuration, then re-score by the evaluator's own path in the order of the bounds.

Re-scoring ends when the next bound is below what was found: the optimum is then proven under the model, not only likely.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primus_mcp.errors import PrimusMcpError
from primus_mcp.evaluation.evaluators import FullEvaluator
from primus_mcp.evaluation.rank import AT_RISK_TOLERANCE, is_candidate, rank
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.projection.ops.backend import GemmBackend
from primus_mcp.projection.performance.projection import rates_for
from primus_mcp.search.seeds import seed_plan
from primus_mcp.search.sweep_blocks import Walk
from primus_mcp.search.sweep_bounds import Index, Pricing
from primus_mcp.search.sweep_choices import Choices, Knobs, choices_of
from primus_mcp.search.sweep_masks import Block, Masks
from primus_mcp.search.sweep_result import SweepCounts, SweepResult, SweptTrial
from primus_mcp.search.sweep_where import Condition, parse_where
from primus_mcp.space.knobs import TrialConfig, set_knobs
from primus_mcp.units import GIB

Progress = Callable[[int, int, int, float], None]
"""(blocks of work done, all of them, legal configurations so far, best tokens/s/GPU so far)."""
SEEDS = 24
"""Seeds priced first: the faster the incumbent, the fewer configurations need a second look."""
EARLY_LOOKS = 40
"""Configurations priced after each tenth of the space, to raise the incumbent."""
MANY_LOOKS = 2_000
MAX_KEPT = 1_000_000
"""Configurations held for re-scoring; beyond, more of them are priced at once, which raises the incumbent and lets others go."""
TIE = 1e-9
CHECKED_POINTS = 200


@dataclass
class Found:
    """Priced configurations: the best `wanted` distinct ones, and what they were priced as."""

    wanted: int
    by_key: dict[str, SweptTrial] = field(default_factory=dict)
    order: list[tuple[float, str]] = field(default_factory=list)
    """A heap of the best: the slowest of them first."""

    @property
    def last(self) -> float:
        """Tokens/s/GPU of the last of the best; 0 while there are fewer than wanted."""
        return self.order[0][0] if len(self.order) >= self.wanted else 0.0

    @property
    def best(self) -> float:
        """Tokens/s/GPU of the best."""
        return max(self.order)[0] if self.order else 0.0

    def add(self, key: str, trial: TrialConfig, result: EvaluationResult) -> None:
        """Take in a candidate."""
        rate = result.tokens_per_s_per_gpu
        if key in self.by_key or rate is None:
            return
        self.by_key[key] = SweptTrial(trial=set_knobs(trial), result=result)
        if len(self.order) < self.wanted:
            heapq.heappush(self.order, (rate, key))
        elif rate > self.order[0][0]:
            heapq.heapreplace(self.order, (rate, key))

    def sorted(self) -> list[SweptTrial]:
        """The best, fastest first; equal speed: less memory first."""
        chosen = [self.by_key[key] for _, key in self.order]
        chosen.sort(key=lambda one: (-(one.result.tokens_per_s_per_gpu or 0.0), one.result.memory_per_gpu_gb or 0.0))
        return [one.model_copy(update={"result": one.result.model_copy(update={"trial_id": place})}) for place, one in enumerate(chosen)]


Columns = tuple[NDArray[np.float64], Index, Index, Index, Index]


@dataclass
class Open:
    """Configurations to look at again, as arrays: an upper bound of tokens/s/GPU, memory level, block, lever, choice."""

    blocks: list[Block] = field(default_factory=list)
    parts: list[Columns] = field(default_factory=list)

    def add(self, block: Block, rate: NDArray[np.float64], level: Index, lever: Index, choice: Index) -> None:
        """Configurations of one block."""
        if len(rate):
            self.blocks.append(block)
            number = np.full(len(rate), len(self.blocks) - 1, dtype=np.intp)
            self.parts.append((rate, level, number, lever, choice))

    def take(self) -> Columns:
        """All of them as one set of arrays, fastest bound first; nothing is left."""
        none = np.zeros(0, dtype=np.intp)
        parts = [*self.parts, (np.zeros(0), none, none, none, none)]
        rate = np.concatenate([part[0] for part in parts])
        order = np.argsort(-rate, kind="stable")
        level, number, lever, choice = (np.concatenate([part[i] for part in parts])[order] for i in range(1, 5))
        self.parts = []
        return rate[order], level, number, lever, choice


class Sweep:
    """One sweep of one workload on one cluster. `run` may be called once."""

    def __init__(
        self,
        evaluator: FullEvaluator,
        *,
        only: Iterable[str] | None = None,
        where: Condition | str | None = None,
        top: int = 10,
        levels: Sequence[float] = (),
        first: Sequence[TrialConfig] = (),
        gemm_backend: GemmBackend = "auto",
    ) -> None:
        self._first = tuple(first)
        self.levels = np.array(sorted({1.0, *levels}, reverse=True)) * evaluator.cluster.memory_cap_bytes
        self.level_best = np.zeros(len(self.levels))
        self.evaluator, rules = evaluator, evaluator.rules
        self._only = None if only is None else set(only)
        self.choices: Choices = choices_of(rules.workload, rules.cluster, axes=rules.axes, pins=rules.pins, only=self._only)
        self.masks = Masks(rules, self.choices)
        self.where = where if isinstance(where, Condition) else parse_where(where)
        pricing = Pricing(workload=rules.workload, rates=rates_for(rules.cluster, gemm_backend))
        self.walk = Walk(masks=self.masks, pricing=pricing, cap_bytes=rules.cluster.memory_cap_bytes, where=self.where)
        self.found, self.open = Found(top), Open()
        self.slower = self.over_memory = self.priced = 0
        self._tokens = rules.workload.architecture.seq_length / rules.cluster.world_size

    def run(self, *, progress: Progress | None = None, should_stop: Callable[[], bool] = lambda: False) -> SweepResult:
        """Enumerate, bound, re-score. Ctrl-C and `should_stop` end it with what is known."""
        wall, cpu = time.perf_counter(), time.process_time()
        stopped: str | None = None
        gap_at = 0.0
        try:
            self._seed()
            stopped = self._enumerate(progress, should_stop)
            gap_at, left = self._rescore(None, should_stop)
        except KeyboardInterrupt:
            stopped, gap_at, left = "interrupted", float("inf"), 0
        if stopped is None and should_stop():
            stopped = "cancelled"
        return self._result(stopped, gap_at, left, time.perf_counter() - wall, time.process_time() - cpu)

    def _seed(self) -> None:
        """The baseline and the first seeds of the search's own plan, where they lie in the space that is swept."""
        rules = self.evaluator.rules
        scores: dict[TrialConfig, float | None] = {}
        if self._only is not None:
            return
        for trial in self._first:
            self._price(trial)
        plan = seed_plan(rules.workload, rules.cluster, score=scores.get, fits=self.evaluator.fits, axes=rules.axes, pins=rules.pins)
        for seed in plan:
            if len(scores) >= SEEDS:
                break
            result = self._price(seed.trial)
            scores[seed.trial] = result.tokens_per_s_per_gpu if result is not None and is_candidate(result) else None

    def _price(self, trial: TrialConfig) -> EvaluationResult | None:
        """The evaluator's own answer, taken in where it is a candidate; None where the engine cannot price it."""
        try:
            result = self.evaluator.evaluate(trial)
        except PrimusMcpError:
            return None
        if is_candidate(result) and self.where.holds(_values(trial, result, self.evaluator)):
            self.found.add(self.evaluator.key(trial), trial, result)
            below = self.levels >= (result.memory_per_gpu_gb or 0.0) * GIB
            self.level_best = np.where(below, np.maximum(self.level_best, result.tokens_per_s_per_gpu or 0.0), self.level_best)
        return result

    def _enumerate(self, progress: Progress | None, should_stop: Callable[[], bool]) -> str | None:
        topologies = self.masks.topologies()
        looks = max(1, len(topologies) // 10)
        for number, topology in enumerate(topologies, 1):
            if should_stop():
                return "cancelled"
            self._topology(topology)
            if number % looks == 0 or sum(len(part[0]) for part in self.open.parts) > MAX_KEPT:
                self._rescore(EARLY_LOOKS if number % looks == 0 else MANY_LOOKS, should_stop)
            if progress is not None:
                progress(number, len(topologies), self.walk.legal, self.found.best)
        return None

    def _topology(self, topology: Knobs) -> None:
        for block, bounds, lever, choice in self.walk.topology(topology):
            rate = block.config.gbs * self._tokens / bounds.time_s
            fast = np.nonzero(rate >= self._floor)[0]
            self.slower += len(lever) - len(fast)
            if not len(fast):
                continue
            least_bytes = bounds.memory_bytes(fast)
            inside = least_bytes <= self.walk.cap_bytes
            fits, level = fast[inside], (self.levels[None, :] >= least_bytes[inside][:, None]).sum(axis=1) - 1
            matters = self._matters(rate[fits], level)
            self.over_memory += len(fast) - len(fits)
            self.slower += len(fits) - int(matters.sum())
            fits = fits[matters]
            self.open.add(block, rate[fits], level[matters], lever[fits], choice[fits])

    def _matters(self, rate: NDArray[np.float64], level: Index) -> NDArray[np.bool_]:
        """Whether a bound may be among the best, or the best of those that need no more memory than a level."""
        may: NDArray[np.bool_] = rate >= self._threshold
        return may | (rate > self.level_best[level]) if len(self.levels) > 1 else may

    @property
    def _floor(self) -> float:
        """Below this nothing matters."""
        return min(self._threshold, float(self.level_best.min())) if len(self.levels) > 1 else self._threshold

    @property
    def _threshold(self) -> float:
        """Bounds below this cannot matter: not among the best, nor a safe alternative to a best one that is at risk."""
        return self.found.last * (1 - AT_RISK_TOLERANCE if self._needs_safe else 1.0)

    @property
    def _needs_safe(self) -> bool:
        """Whether the best so far is at risk and no safe one within the tolerance is known."""
        best = self.found.best
        near = [
            one.result for one in self.found.by_key.values() if (one.result.tokens_per_s_per_gpu or 0.0) >= best * (1 - AT_RISK_TOLERANCE)
        ]
        return bool(near) and all(result.fits_physically == "at_risk" for result in near)

    def _rescore(self, limit: int | None, should_stop: Callable[[], bool]) -> tuple[float, int]:
        """Price open configurations in the order of their bounds. (bound of the next one, number left that may matter)."""
        rate, level, number, lever, choice = self.open.take()
        place = looked = 0
        while place < len(rate) and rate[place] >= self._floor and (limit is None or looked < limit):
            if limit is None and looked % 64 == 0 and should_stop():
                break
            if not self._wanted(float(rate[place]), int(level[place])):
                self.slower += 1
                place += 1
                continue
            trial = self.walk.trial(self.open.blocks[number[place]], int(lever[place]), int(choice[place]))
            result = self._price(trial)
            fits = result is not None and is_candidate(result)
            self.priced += fits
            self.over_memory += not fits
            place, looked = place + 1, looked + 1
        rest = np.arange(place, len(rate))
        rest = rest[self._matters(rate[rest], level[rest])]
        self.slower += len(rate) - place - len(rest)
        if len(rest):
            self.open.parts = [(rate[rest], level[rest], number[rest], lever[rest], choice[rest])]
        return (float(rate[rest[0]]), len(rest)) if len(rest) else (0.0, 0)

    def _wanted(self, rate: float, level: int) -> bool:
        return rate > self._threshold or (len(self.levels) > 1 and rate > self.level_best[level])

    def _by_memory(self) -> list[SweptTrial]:
        """The fastest configuration under each memory level, without repeats."""
        found: dict[str, SweptTrial] = {}
        for level in self.levels:
            fitting = [(key, one) for key, one in self.found.by_key.items() if (one.result.memory_per_gpu_gb or 0.0) * GIB <= level]
            if fitting:
                key, one = max(
                    fitting, key=lambda pair: (pair[1].result.tokens_per_s_per_gpu or 0.0, -(pair[1].result.memory_per_gpu_gb or 0.0))
                )
                found.setdefault(key, one)
        return list(found.values())

    def _result(self, stopped: str | None, gap_at: float, left: int, wall_s: float, cpu_s: float) -> SweepResult:
        top, best = self.found.sorted(), self.found.best
        ranking = rank([one.result for one in top])
        fallen = self.masks.fallen + self.walk.fallen
        complete = stopped is None and not left
        disagreements = self.masks.random_disagreements(CHECKED_POINTS) if stopped is None else []
        rules = self.evaluator.rules
        proven = complete or (stopped is None and gap_at <= best)
        return SweepResult(
            workload=rules.workload.name,
            cluster=rules.cluster.name,
            gpus=rules.cluster.world_size,
            counts=SweepCounts(
                size=self.choices.size,
                fallen=dict(sorted(fallen.items(), key=lambda item: (-item[1], item[0]))),
                legal=self.walk.legal,
                excluded=self.walk.excluded,
                slower=self.slower,
                over_memory=self.over_memory,
                priced=self.priced,
                open=left,
            ),
            top=top,
            by_memory=self._by_memory() if len(self.levels) > 1 else [],
            proven=bool(top) and proven and not disagreements,
            top_proven=bool(top) and complete and not disagreements,
            gap=0.0 if proven or not best or gap_at == float("inf") else gap_at / best - 1,
            ties=sum((one.result.tokens_per_s_per_gpu or 0.0) >= best * (1 - TIE) for one in self.found.by_key.values()),
            recommended=ranking.best.trial_id if ranking.best is not None else None,
            note=ranking.note,
            checked_points=CHECKED_POINTS if stopped is None else 0,
            disagreements=disagreements,
            where=self.where.text,
            only=None if self._only is None else sorted(self._only),
            stopped=stopped,
            wall_s=wall_s,
            cpu_s=cpu_s,
        )


def _values(trial: TrialConfig, result: EvaluationResult, evaluator: FullEvaluator) -> Mapping[str, Any]:
    """What a condition may name, of a priced configuration."""
    resolved = result.resolved or {}
    values: dict[str, Any] = dict(resolved) | {"expert_tensor_parallel_size": resolved.get("etp"), "fp8": resolved.get("fp8") or "none"}
    values |= set_knobs(trial)
    values |= result.model_dump(exclude={"resolved", "warnings", "trial_id"})
    cluster = evaluator.rules.cluster
    return values | {"nodes": cluster.num_nodes, "gpus": cluster.world_size}


def sweep(
    evaluator: FullEvaluator,
    *,
    only: Iterable[str] | None = None,
    where: str | None = None,
    top: int = 10,
    levels: Sequence[float] = (),
    first: Sequence[TrialConfig] = (),
    gemm_backend: GemmBackend = "auto",
    progress: Progress | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> SweepResult:
    """The best configurations of the whole legal space of an evaluator's workload and cluster, with the proof.

    `only`: knobs that may move (default: all whose axis is on). `where`: see sweep_where. `levels`: shares of the memory cap under each
    of which the fastest configuration is found too. `first`: trials to price before the rest, such as cached ones.
    Raises InputError for a bad condition.
    """
    return Sweep(evaluator, only=only, where=where, top=top, levels=levels, first=first, gemm_backend=gemm_backend).run(
        progress=progress, should_stop=should_stop
    )
