"""The seed plan: what is worth trying first, without an LLM.

Impact-ordered and lazy: the caller judges legality and memory, and `score` feeds its answers back, so that levers that help are combined
and the best so far is refined. Seeds are told apart by what they resolve to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from primus_mcp.errors import InputError
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.inputs.workload import Workload
from primus_mcp.search.best_first import BestFirst
from primus_mcp.search.estimate import Estimate
from primus_mcp.search.held import HeldSchedule
from primus_mcp.search.levers import exchange_levers, single_levers
from primus_mcp.search.neighbours import lever_neighbours, neighbours
from primus_mcp.search.topologies import MBS_GROWTH, GridPoint, Topology, grid, grid_knobs
from primus_mcp.space.axes import mbs_values, with_pins
from primus_mcp.space.knobs import KNOBS, KnobValue, TrialConfig, knob_text
from primus_mcp.space.legality import check_legality
from primus_mcp.space.pipeline_keys import largest_stage
from primus_mcp.space.trainer_keys import resolve

Fits = Callable[[TrialConfig], bool]
"""Whether a trial is legal and fits, at the price of its memory alone."""
Score = Callable[[TrialConfig], float | None]
"""tokens/s/GPU of a trial that was evaluated and fits, None for one that is illegal, does not fit or was not evaluated."""
SMALLEST_POINTS = 16
"""Points shown when nothing fits."""
SLIGHT = 4
"""A share of the layers of a stage, one in so many, below which selective recompute may free as much."""
SELECTIVE_AT = 0.1
"""Where selective recompute stands among shares of layers."""
NEAR_TOPOLOGIES = 3
"""Topologies of the grid that must fit before the best is refined; the rest of the grid comes last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """One proposal of the plan and why it is made."""

    trial: TrialConfig
    label: str


def _no_score(_: TrialConfig) -> float | None:
    return None


def _may_fit(_: TrialConfig) -> bool:
    return True


class _Plan:
    """Shapes trials by toggles and pins, drops repeats and (in the grid and around the best) what does not fit; remembers the best."""

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        score: Score,
        fits: Fits,
        *,
        axes: Mapping[str, bool],
        pins: Mapping[str, KnobValue],
        allow_policy: bool,
    ) -> None:
        self.workload, self.cluster = workload, cluster
        self._score, self._fits, self._axes, self._pins, self._allow_policy = score, fits, axes, pins, allow_policy
        self.gbs = pinned if isinstance(pinned := pins.get("gbs"), int) else workload.baseline.gbs
        self.schedule = HeldSchedule.of(workload, axes=axes, pins=pins, allow_policy=allow_policy)
        self._scores: dict[TrainingConfig | TrialConfig, float | None] = {}
        self._fitting: dict[TrialConfig, bool] = {}
        self.best: TrialConfig | None = None
        self.best_score = 0.0

    def shape(self, knobs: Mapping[str, Any]) -> TrialConfig:
        """The knobs that may move, as a trial with its pins, and with what a held schedule needs of the others. No knobs: the baseline."""
        trial = with_pins(TrialConfig(**{name: value for name, value in knobs.items() if self._moves(name)}), self._pins)
        needed = {name: value for name, value in self.schedule.needs(trial).items() if self._moves(name)} if knobs else {}
        return trial.model_copy(update=needed) if needed else trial

    def _moves(self, name: str) -> bool:
        return name not in self._pins and ((axis := KNOBS[name].axis) is None or self._axes.get(axis, True))

    def _key(self, trial: TrialConfig) -> TrainingConfig | TrialConfig:
        """What the trial resolves to, by which repeats are told; the trial itself where it does not resolve."""
        try:
            return resolve(self.workload, trial)
        except InputError:
            return trial

    def fits(self, knobs: Mapping[str, Any]) -> bool:
        """Whether these knobs are legal and fit."""
        trial = self.shape(knobs)
        if trial not in self._fitting:
            self._fitting[trial] = self._fits(trial)
        return self._fitting[trial]

    def legal(self, knobs: Mapping[str, Any]) -> bool:
        """Whether no rule is broken, whatever they need of memory."""
        return check_legality(self.workload, self.shape(knobs), self.cluster, allow_policy=self._allow_policy).legal

    def points(self) -> list[GridPoint]:
        """Of the grid, those that axes and pins leave, and that a held schedule runs."""
        points = grid(self.workload, self.cluster, axes=self._axes, pins=self._pins)
        return [point for point in points if self.schedule.runs(point.pp, point.vpp)]

    def least(self, points: Iterable[GridPoint]) -> list[GridPoint]:
        """Those of one topology that may need the least memory: the smallest MBS, and the fewest virtual stages or, where they choose
        the schedule, all.
        """
        order = sorted(points, key=lambda point: (point.mbs, point.vpp))
        return [point for point in order if point.mbs == order[0].mbs and (self.schedule.held or point.vpp == order[0].vpp)]

    def least_recompute(self, knobs: Mapping[str, Any]) -> dict[str, Any] | None:
        """These knobs with as little recompute as fits: none, the fewest layers of each virtual stage, or, where few are enough, selective;
        None where full does not fit. Recompute only costs time, and memory falls with each layer, so that halving finds the fewest.
        """
        bare = {name: value for name, value in knobs.items() if name != "recompute_num_layers"}
        none, selective, full = ({**bare, "recompute_granularity": granularity} for granularity in ("none", "selective", "full"))
        if self.fits(none):
            return none
        if not self.fits(full):
            return None
        low, stage = 1, largest_stage(self.shape(full), self.workload)
        high = stage
        while low < high and self.workload.baseline.recompute.method != "uniform":
            middle = (low + high) // 2
            low, high = (low, middle) if self.fits({**full, "recompute_num_layers": middle}) else (middle + 1, high)
        if high <= max(1, stage // SLIGHT) and self.fits(selective):
            return selective
        return {**full, "recompute_num_layers": high} if high < stage else full

    def recomputed(self, knobs: Mapping[str, Any]) -> float:
        """Share of the layers that these knobs recompute; SELECTIVE_AT stands for selective."""
        trial = self.shape(knobs)
        if trial.recompute_granularity != "full":
            return SELECTIVE_AT if trial.recompute_granularity == "selective" else 0.0
        stage = largest_stage(trial, self.workload)
        return float(min(1.0, (stage if trial.recompute_num_layers is None else trial.recompute_num_layers) / stage))

    def offer(self, label: str, knobs: Mapping[str, Any], *, probe: bool = False) -> Iterator[Seed]:
        """The seed, if nothing that resolves to the same has been proposed and, with `probe`, if it fits; then its score is taken in."""
        trial = self.shape(knobs)
        key = self._key(trial)
        if key in self._scores:
            return
        self._scores[key] = None
        if probe and not self.fits(knobs):
            return
        yield Seed(trial=trial, label=label)
        scored = self._scores[key] = self._score(trial)
        if scored is not None and scored > self.best_score:
            self.best, self.best_score = trial, scored

    def score(self, knobs: Mapping[str, Any]) -> float | None:
        """What the caller made of these knobs, or of others that resolve to the same."""
        return self._scores.get(self._key(self.shape(knobs)))


def _levers(plan: _Plan, kept: dict[str, Any], undecided: dict[str, Any]) -> Iterator[Seed]:
    """Each lever on top of those that helped before it; the ones that help (all, while nothing fits) are collected in `kept`.

    A lever that never got a score (no alternative is legal and fits where the baseline is) is `undecided`: it may help elsewhere.
    """
    for label, alternatives in single_levers(plan.workload, plan.cluster, plan.shape):
        judged = False
        for knobs in alternatives:
            before = plan.best_score
            yield from plan.offer(f"{label}: {_told({**kept, **knobs})}", {**kept, **knobs})
            scored = plan.score({**kept, **knobs})
            judged |= scored is not None
            if before == 0.0 or (scored is not None and scored > before):
                kept.update(knobs)
                judged = True
                break
        if alternatives and not judged:
            undecided.update(alternatives[0])


def _told(knobs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {knob_text(value)}" for name, value in knobs.items())


def _beside_grid(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """The levers that the grid does not set itself."""
    return {name: value for name, value in knobs.items() if name not in ("vpp", "recompute_granularity")}


def _grid(plan: _Plan, levers: Mapping[str, Any], undecided: Mapping[str, Any]) -> Iterator[Seed | None]:
    """Each topology at the point whose estimate is best among those that fit; None after each that has a score. Undecided levers are used
    wherever that fits, and FP8 wherever it pays: its copies of the weights may be what keeps a better topology out. Where no lever was
    ever judged, they may be what no topology takes: while nothing fits, weaker expert exchanges follow, at last the workload's own levers.
    """
    yield from _walk(plan, [{**levers, **undecided}, dict(levers)] if undecided else [dict(levers)])
    others = {name: value for name, value in levers.items() if name not in ("use_turbo_deepep", "sync_free_stage")}
    for weaker in [*({**others, **exchange} for exchange in exchange_levers(plan.workload, plan.cluster, plan.shape)[1:]), {}]:
        if plan.best is None:
            yield from _walk(plan, [weaker])


def _walk(plan: _Plan, levers: list[dict[str, Any]]) -> Iterator[Seed | None]:
    """One walk, best first. A topology whose best point recomputes is tried at its best point without recompute too: which of the two is
    faster the estimate cannot tell.
    """
    queue = BestFirst(plan, levers)
    settled: dict[Topology, bool] = {}
    for point, knobs in queue:
        recomputes = plan.recomputed(knobs) > 0
        if point.topology in settled and (recomputes or not settled[point.topology]):
            continue
        label = f"grid: TP{point.tp} PP{point.pp} EP{point.ep} CP{point.cp} MBS{point.mbs} VPP{point.vpp}"
        yield from plan.offer(label, knobs)
        if plan.score(knobs) is not None:
            if point.topology not in settled:
                yield None
            settled[point.topology] = recomputes
            if not recomputes:
                queue.close(point.topology)


def _smallest(plan: _Plan) -> Iterator[Seed]:
    """When nothing fits: the points that spread the model widest, so that the log says how much is missing.

    With the workload's own levers: FP8 copies and exchange buffers only add, and a lever may be illegal everywhere.
    """
    points = plan.points()
    points.sort(key=lambda point: (point.mbs, point.vpp, -point.tp * point.pp * point.cp * point.ep))
    for point in points[:SMALLEST_POINTS]:
        label = f"smallest: TP{point.tp} PP{point.pp} EP{point.ep} CP{point.cp} MBS{point.mbs} recompute full"
        yield from plan.offer(label, grid_knobs(point, plan.workload, plan.cluster, {}) | {"recompute_granularity": "full"})


def smallest_trials(
    workload: Workload, cluster: Cluster, *, axes: Mapping[str, bool], pins: Mapping[str, KnobValue], allow_policy: bool
) -> Iterator[TrialConfig]:
    """Trials that need little memory, by a guess of how little: full recompute, with the workload's own levers and with the leanest."""
    plan = _Plan(workload, cluster, _no_score, _may_fit, axes=axes, pins=pins, allow_policy=allow_policy)
    guess = Estimate(workload, cluster, gbs=plan.gbs)
    points: dict[Topology, GridPoint] = {}
    for point in sorted(plan.points(), key=lambda point: (point.mbs, point.vpp)):
        points.setdefault(point.topology, point)
    moe = workload.architecture.is_moe
    plain: dict[str, Any] = {"use_turbo_deepep": False, "sync_free_stage": 0} if moe else {}
    lean = {"use_distributed_optimizer": True, "use_torch_fsdp2": False, "cross_entropy_loss_fusion": True, "fp8": "none"} | plain
    sharded = {"use_torch_fsdp2": True, "use_distributed_optimizer": False} | plain
    shapes = [(point, etp) for point in points.values() for etp in ({1, point.tp} if moe else {1})]
    for point, etp in sorted(shapes, key=lambda shape: guess.least_bytes(shape[0], etp=shape[1])):
        split = {"expert_tensor_parallel_size": etp, **plain} if etp > 1 else {}
        alone = point.pp == point.ep == 1
        for levers in ({}, lean, *([sharded] if alone else [])):
            yield plan.shape(grid_knobs(point, workload, cluster, levers) | split | {"recompute_granularity": "full"})


def _settle_levers(plan: _Plan) -> Iterator[Seed]:
    """The levers around the first points that fit, where nothing fitted when they were kept."""
    centre = None
    while plan.best is not None and plan.best != centre:
        centre = plan.best
        for label, knobs in lever_neighbours(plan.workload, plan.cluster, centre):
            yield from plan.offer(label, knobs, probe=True)


def _sharded(plan: _Plan) -> Iterator[Seed]:
    """FSDP2 alone, which no step from a point with PP or EP reaches: the largest MBS that fits without recompute, and with the least."""
    own = plan.workload.baseline
    levers: dict[str, Any] = {"use_torch_fsdp2": True, "use_distributed_optimizer": False}
    if plan.workload.architecture.is_moe:
        levers |= {"expert_tensor_parallel_size": 1, "use_turbo_deepep": False, "sync_free_stage": 0}
    if plan.best is not None and plan.best.fp8 is not None:
        levers |= {"fp8": plan.best.fp8}
    sizes = [] if own.use_torch_fsdp2 else sorted((mbs for mbs in mbs_values() if mbs <= MBS_GROWTH * own.mbs), reverse=True)
    seen_recompute = False
    for mbs in sizes:
        knobs = plan.least_recompute(grid_knobs(GridPoint(tp=1, pp=1, ep=1, cp=1, mbs=mbs), plan.workload, plan.cluster, levers))
        if knobs is None:
            continue
        recomputes = plan.recomputed(knobs) > 0
        if not (recomputes and seen_recompute):
            yield from plan.offer(f"FSDP2: MBS{mbs} recompute {knobs['recompute_granularity']}", knobs)
        seen_recompute = True
        if not recomputes:
            break


def _refine(plan: _Plan) -> Iterator[Seed]:
    """Neighbours of the best so far, each with the least recompute that fits; again if the best moves."""
    tried: set[TrialConfig] = set()
    while plan.best is not None and plan.best not in tried:
        centre = plan.best
        tried.add(centre)
        for label, knobs in neighbours(plan.workload, plan.cluster, centre):
            for fitting in [knobs] if "schedule" in label else _fitted(plan, knobs):
                yield from plan.offer(label, fitting, probe=True)
            if plan.best != centre:
                break


def _fitted(plan: _Plan, knobs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Knobs with the least recompute that fits, after them with narrower copies of the weights where those spare all of it."""
    least = plan.least_recompute(knobs)
    if least is None or plan.recomputed(least) > 0:
        bare = {name: value for name, value in knobs.items() if name != "recompute_num_layers"} | {"recompute_granularity": "none"}
        lighter = {"mxfp8": ("hybrid", "none"), "hybrid": ("none",)}.get(str(knobs.get("fp8")), ())
        yield from [{**bare, "fp8": fp8} for fp8 in lighter if plan.fits({**bare, "fp8": fp8})][:1]
    if least is not None:
        yield least


def seed_plan(
    workload: Workload,
    cluster: Cluster,
    *,
    score: Score = _no_score,
    fits: Fits = _may_fit,
    axes: Mapping[str, bool] | None = None,
    pins: Mapping[str, KnobValue] | None = None,
    allow_policy: bool = False,
) -> Iterator[Seed]:
    """Seeds in order: baseline; levers by impact, those that help combined; with them the topologies that an estimate says are fastest,
    each with the least recompute that fits; FSDP2 alone; neighbours of the best; other topologies, refined whenever the best moves.

    `workload` is the one whose baseline runs on the cluster (`adapt_baseline`). Seeds may be illegal or not fit: that costs the caller no
    budget, and they say which limit binds; `fits` keeps most of those out of the grid. Ends when the grid is exhausted. `allow_policy`:
    whether `fits` lifts the bounds of the search, so that a held schedule needs less of the other knobs.
    """
    plan = _Plan(workload, cluster, score, fits, axes=axes or {}, pins=pins or {}, allow_policy=allow_policy)
    yield from plan.offer("baseline", {})
    if plan.schedule.held:
        yield from plan.offer("baseline, as its schedule needs it", {"mbs": workload.baseline.mbs})
    kept: dict[str, Any] = {}
    undecided: dict[str, Any] = {}
    yield from _levers(plan, kept, undecided)
    levers, undecided = _beside_grid(kept), _beside_grid(undecided)
    fitting, unjudged = 0, plan.best is None
    for seed in _grid(plan, levers, undecided):
        if seed is not None:
            yield seed
            continue
        fitting += 1
        if fitting == NEAR_TOPOLOGIES and unjudged:
            yield from _settle_levers(plan)
        if fitting == NEAR_TOPOLOGIES:
            yield from _sharded(plan)
        if fitting >= NEAR_TOPOLOGIES:
            yield from _refine(plan)
    yield from _sharded(plan)
    yield from _refine(plan)
    if plan.best is None:
        yield from _smallest(plan)
