"""The whole legal space: bound every configuration, then re-score by the evaluator's own path in the order of the bounds.

Re-scoring ends when the next bound is below what was found: the optimum is then proven under the model, not only likely.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from primus_mcp.errors import PrimusMcpError
from primus_mcp.evaluation.evaluators import FullEvaluator
from primus_mcp.evaluation.rank import is_candidate, rank
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.projection.ops.backend import GemmBackend
from primus_mcp.search.enough_nodes import enough_nodes
from primus_mcp.search.seeds import seed_plan
from primus_mcp.search.sweep_crew import crew_for
from primus_mcp.search.sweep_found import Candidates, Found, Tally, joined
from primus_mcp.search.sweep_result import SweepCounts, SweepResult
from primus_mcp.search.sweep_units import Outcome, SweepProblem, Task, Walker, task_points
from primus_mcp.search.sweep_where import Condition, parse_where
from primus_mcp.space.knobs import TrialConfig, set_knobs
from primus_mcp.version import engine_version

Progress = Callable[[int, int, int, float], None]
"""(topologies done, all of them, legal configurations so far, best tokens/s/GPU so far)."""
SEEDS = 24
"""Seeds priced first: the faster the incumbent, the fewer configurations need a second look."""
EARLY_LOOKS = 40
"""Configurations priced after each tenth of the space, to raise the incumbent."""
MANY_LOOKS = 2_000
LOOKS_BETWEEN_STOPS = 64
MAX_KEPT = 1_000_000
"""Configurations held for re-scoring; beyond, more of them are priced at once, which raises the incumbent and lets others go."""
CHECKED_POINTS = 200
"""Random configurations whose legality is compared with the rules asked one by one."""
SMALL_SPACE = 30_000_000
"""Configurations before any rule that one process walks sooner than others start."""


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
        jobs: int = 1,
        ray: str | None = None,
    ) -> None:
        self._first, self._jobs, self._ray = tuple(first), jobs, ray
        self.evaluator, rules = evaluator, evaluator.rules
        self._only = None if only is None else frozenset(only)
        self.where = where if isinstance(where, Condition) else parse_where(where)
        shares = sorted({1.0, *levels}, reverse=True) if levels else ()
        levels_bytes = tuple(share * rules.cluster.memory_cap_bytes for share in shares)
        problem = SweepProblem(
            rules=rules,
            only=self._only,
            where=self.where.text,
            levels_bytes=levels_bytes,
            gemm_backend=gemm_backend,
            engine=engine_version(),
        )
        self.walker = Walker(problem)
        self.choices, self.masks = self.walker.choices, self.walker.masks
        self.found, self.tally = Found(top, levels_bytes, self.where.least_rate), Tally()
        self.open: list[Candidates] = []
        self.legal = self.excluded = self.blocks = self._kept = 0
        self.fallen: Counter[str] = Counter()
        self.disagreements: list[str] = []

    def run(self, *, progress: Progress | None = None, should_stop: Callable[[], bool] = lambda: False) -> SweepResult:
        """Enumerate, bound, re-score. Ctrl-C and `should_stop` end it with what is known. Raises InputError where Ray cannot be used, and
        what the evaluator raises of a legal configuration.
        """
        wall, cpu = time.perf_counter(), _cpu_s()
        stopped: str | None = None
        left = 0
        gap_at = 0.0
        try:
            self._seed()
            stopped = self._enumerate(progress, should_stop)
            bound, left = self._rescore(None, should_stop)
            gap_at = bound if stopped is None else math.inf
        except KeyboardInterrupt:
            stopped, gap_at, left = "interrupted", math.inf, sum(len(part) for part in self.open)
        if stopped is None and should_stop():
            stopped = "cancelled"
        return self._result(stopped, gap_at, left, time.perf_counter() - wall, _cpu_s() - cpu)

    def _seed(self) -> None:
        """The trials that were given and the first seeds of the search's own plan, where they lie in the space that is swept."""
        rules = self.evaluator.rules
        scores: dict[TrialConfig, float | None] = {}
        if self._only is not None:
            return
        for trial in self._first:
            self._price_if_known(trial)
        plan = seed_plan(
            rules.workload,
            rules.cluster,
            score=scores.get,
            fits=self.evaluator.fits,
            axes=rules.axes,
            pins=rules.pins,
            allow_policy=rules.allow_policy,
        )
        for seed in plan:
            if len(scores) >= SEEDS:
                break
            result = self._price_if_known(seed.trial)
            scores[seed.trial] = result.tokens_per_s_per_gpu if result is not None and is_candidate(result) else None

    def _price_if_known(self, trial: TrialConfig) -> EvaluationResult | None:
        """A trial that the enumeration may not hold; None where the engine cannot price it."""
        try:
            return self._price(trial, enumerated=False)
        except PrimusMcpError:
            return None

    def _price(self, trial: TrialConfig, *, enumerated: bool) -> EvaluationResult:
        """The evaluator's own answer, taken in where it is a candidate. Raises what the evaluator raises: a configuration that was bounded
        and has no price would be missing in a proof.
        """
        result = self.evaluator.evaluate(trial)
        if is_candidate(result) and self.where.holds(condition_values(trial, result, self.evaluator)):
            self.found.add(self.evaluator.key(trial), trial, result, enumerated=enumerated)
        return result

    def _enumerate(self, progress: Progress | None, should_stop: Callable[[], bool]) -> str | None:
        units = self.walker.units()
        self.fallen += self.masks.fallen
        total, done = sum(map(len, units)), 0
        looks, looked = max(1, total // 10), 0
        jobs = self._jobs if self.choices.size > SMALL_SPACE else 1
        crew = crew_for(self.walker, jobs=jobs, ray=self._ray, units=len(units))
        try:
            for outcome in crew.outcomes(self._tasks(units), should_stop):
                if outcome is not None:
                    self._take(outcome)
                    done += outcome.topologies
                if done // looks > looked or self._kept > MAX_KEPT:
                    self._rescore(EARLY_LOOKS if self._kept <= MAX_KEPT else MANY_LOOKS, should_stop)
                    looked = done // looks
                if progress is not None:
                    progress(done, total, self.legal, self.found.best)
                if should_stop():
                    return "cancelled"
        finally:
            crew.close()
        return "cancelled" if done < total and should_stop() else None

    def _tasks(self, units: Sequence[tuple[Mapping[str, Any], ...]]) -> Iterator[Task]:
        """Each with the limits that are known when it is taken."""
        points = task_points(units, CHECKED_POINTS)
        for number, topologies in enumerate(units):
            yield Task(topologies=topologies, limits=self.found.limits, points=points, seed=number)

    def _take(self, outcome: Outcome) -> None:
        self.legal += outcome.legal
        self.excluded += outcome.excluded
        self.blocks += outcome.blocks
        self.fallen += outcome.fallen
        self.tally.slower += outcome.slower
        self.tally.over(outcome.over, self.found.limits.last)
        self.disagreements += outcome.disagreements
        if len(outcome.candidates):
            self.open.append(outcome.candidates)
            self._kept += len(outcome.candidates)

    def _rescore(self, limit: int | None, should_stop: Callable[[], bool]) -> tuple[float, int]:
        """Price open configurations in the order of their bounds. (bound of the next one, number left that may matter)."""
        held = joined(self.open)
        walk, place, looked = self.walker.walk(), 0, 0
        mine = np.zeros(0, dtype=bool)
        while place < len(held) and (limit is None or looked < limit):
            limits = self.found.limits
            if held.rate[place] < limits.floor or (limit is None and looked % LOOKS_BETWEEN_STOPS == 0 and should_stop()):
                break
            rate, level = float(held.rate[place]), int(held.level[place])
            mine = limits.matter(held.rate[place : place + 1], held.level[place : place + 1])
            if not mine[0]:
                self.tally.slower += 1
                place += 1
                continue
            result = self._price(
                walk.trial(held.knobs[held.block[place]], int(held.lever[place]), int(held.choice[place])), enumerated=True
            )
            self.tally.priced(rate, level, fits=is_candidate(result))
            place, looked = place + 1, looked + 1
        rest = np.arange(place, len(held))
        rest = rest[self.found.limits.matter(held.rate[rest], held.level[rest])]
        self.tally.slower += len(held) - place - len(rest)
        self.open, self._kept = ([held.take(rest)], len(rest)) if len(rest) else ([], 0)
        return (float(held.rate[rest[0]]), len(rest)) if len(rest) else (0.0, 0)

    def _more_nodes(self) -> str:
        """For a space in which nothing fits."""
        if self.where.text or self._only is not None:
            return "it is not known how many nodes are enough: no condition and no choice of axes may limit the sweep that is asked"
        return enough_nodes(self.evaluator.rules).text

    def _result(self, stopped: str | None, gap_at: float, left: int, wall_s: float, cpu_s: float) -> SweepResult:
        top, best = self.found.sorted(), self.found.best
        ranking = rank([one.result for one in top])
        complete = stopped is None and not left
        rules = self.evaluator.rules
        proven = complete or (stopped is None and gap_at <= best)
        slower, over_memory, priced = self.tally.settle(self.found.limits)
        return SweepResult(
            workload=rules.workload.name,
            cluster=rules.cluster.name,
            gpus=rules.cluster.world_size,
            counts=SweepCounts(
                size=self.choices.size,
                fallen=dict(sorted(self.fallen.items(), key=lambda item: (-item[1], item[0]))),
                legal=self.legal,
                excluded=self.excluded,
                slower=slower,
                over_memory=over_memory,
                priced=priced,
                open=left,
            ),
            top=top,
            by_memory=self.found.by_memory(),
            proven=bool(top) and proven and not self.disagreements,
            top_proven=bool(top) and complete and not self.disagreements,
            gap=0.0 if proven else max(0.0, gap_at / best - 1) if best and math.isfinite(gap_at) else None,
            ties=self.found.ties,
            recommended=ranking.best.trial_id if ranking.best is not None else None,
            note=ranking.note,
            more_nodes=self._more_nodes() if complete and not top else None,
            checked_points=CHECKED_POINTS if stopped is None else 0,
            disagreements=sorted(self.disagreements),
            where=self.where.text,
            only=None if self._only is None else sorted(self._only),
            stopped=stopped,
            wall_s=wall_s,
            cpu_s=cpu_s,
        )


def _cpu_s() -> float:
    """CPU seconds of this process and of those it started and waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def condition_values(trial: TrialConfig, result: EvaluationResult, evaluator: FullEvaluator) -> Mapping[str, Any]:
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
    jobs: int = 1,
    ray: str | None = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> SweepResult:
    """The best configurations of the whole legal space of an evaluator's workload and cluster, with the proof.

    `only`: knobs that may move (default: all whose axis is on). `where`: see sweep_where. `levels`: shares of the memory cap under each
    of which the fastest configuration is found too. `first`: trials to price before the rest, such as cached ones. `jobs`: processes;
    `ray`: address of a Ray cluster that is used instead. Neither changes the answer.
    Raises InputError for a bad condition, and where Ray cannot be used.
    """
    one = Sweep(evaluator, only=only, where=where, top=top, levels=levels, first=first, gemm_backend=gemm_backend, jobs=jobs, ray=ray)
    return one.run(progress=progress, should_stop=should_stop)
