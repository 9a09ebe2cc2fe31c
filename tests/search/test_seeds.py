"""The seed plan: ordered by impact, without repeats, inside pins and axes, and it learns from what it is told."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from math import ceil
from typing import Any

import pytest
from seed_cases import DEFAULT_AXES, four_nodes, mixtral_workload, on

from primus_mcp.evaluation.evaluators import FullEvaluator, Rules, make_evaluator
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.workload import Workload
from primus_mcp.search.neighbours import neighbours
from primus_mcp.search.seeds import Seed, seed_plan
from primus_mcp.search.sweep import sweep
from primus_mcp.search.topologies import grid
from primus_mcp.space.knobs import KnobValue, TrialConfig
from primus_mcp.space.legality import check_legality
from primus_mcp.space.trainer_keys import resolve


@pytest.fixture(scope="module")
def mixtral() -> Workload:
    return mixtral_workload()


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return four_nodes()


class Pricing:
    """Prices seeds with the real engine, as a session does, and counts."""

    def __init__(self, workload: Workload, target: Cluster, **plan: Any) -> None:
        self.workload, self.target, self.plan = workload, target, plan
        rules = Rules(workload=workload, cluster=target, axes=plan.get("axes", {}), pins=plan.get("pins", {}))
        self.evaluator = make_evaluator(rules)
        self.scores: dict[TrialConfig, float | None] = {}

    def run(self, budget: int) -> list[Seed]:
        seeds = []
        for seed in seed_plan(self.workload, self.target, score=self.scores.get, fits=self.evaluator.fits, **self.plan):
            result = self.evaluator.evaluate(seed.trial)
            self.scores[seed.trial] = result.tokens_per_s_per_gpu if result.legal and result.within_margin else None
            seeds.append(seed)
            if sum(score is not None for score in self.scores.values()) == budget:
                break
        return seeds

    def best(self) -> float:
        return max((score for score in self.scores.values() if score is not None), default=0.0)


def test_the_first_seed_is_the_baseline_and_no_two_resolve_to_the_same(mixtral: Workload, cluster: Cluster) -> None:
    seeds = list(islice(seed_plan(mixtral, cluster, axes=DEFAULT_AXES), 300))
    assert seeds[0].trial == TrialConfig()
    resolved = [resolve(mixtral, seed.trial) for seed in seeds]
    assert len(set(resolved)) == len(seeds) == 300
    assert all(seed.label for seed in seeds)


def test_the_plan_is_lazy_and_repeatable(mixtral: Workload, cluster: Cluster) -> None:
    first, second = seed_plan(mixtral, cluster), seed_plan(mixtral, cluster)
    assert [next(first) for _ in range(40)] == [next(second) for _ in range(40)]


def test_seeds_never_move_a_pinned_axis_and_always_carry_pins(mixtral: Workload, cluster: Cluster) -> None:
    axes = {**DEFAULT_AXES, "pp": False, "recompute": False}
    pins: dict[str, KnobValue] = {"tp": 2, "fp8": "none"}
    for seed in islice(seed_plan(mixtral, cluster, axes=axes, pins=pins), 200):
        assert (seed.trial.tp, seed.trial.fp8) == (2, "none")
        assert seed.trial.pp is None
        violated = check_legality(mixtral, seed.trial, cluster, axes=axes, pins=pins).violations
        assert "pinned" not in {violation.rule for violation in violated}


def test_every_lever_of_the_issue_comes_before_the_grid(mixtral: Workload, cluster: Cluster) -> None:
    labels = [seed.label for seed in islice(seed_plan(mixtral, cluster, axes=DEFAULT_AXES), 60)]
    first_grid = next(i for i, label in enumerate(labels) if label.startswith("grid"))
    early = " ".join(labels[:first_grid])
    for lever in ("VPP", "expert exchange", "FP8"):
        assert lever in early
    assert first_grid <= 12


def test_twelve_seeds_find_nearly_what_two_hundred_find(mixtral: Workload, cluster: Cluster) -> None:
    short, long = Pricing(mixtral, cluster, axes=DEFAULT_AXES), Pricing(mixtral, cluster, axes=DEFAULT_AXES)
    short.run(12)
    long.run(200)
    assert short.best() >= 0.95 * long.best() > 0


def test_a_plan_that_is_told_scores_beats_one_that_is_not(mixtral: Workload, cluster: Cluster) -> None:
    told, blind = Pricing(mixtral, cluster, axes=DEFAULT_AXES), Pricing(mixtral, cluster, axes=DEFAULT_AXES)
    told.run(12)
    for seed in islice(seed_plan(mixtral, cluster, axes=DEFAULT_AXES, fits=blind.evaluator.fits), 12):
        result = blind.evaluator.evaluate(seed.trial)
        blind.scores[seed.trial] = result.tokens_per_s_per_gpu if result.legal and result.within_margin else None
    assert told.best() >= blind.best()


def test_schedules_vpp_and_mbs_of_the_best_are_tried(mixtral: Workload, cluster: Cluster) -> None:
    labels = " ".join(seed.label for seed in Pricing(mixtral, cluster, axes=DEFAULT_AXES, pins={"fp8": "none"}).run(60))
    for step in ("schedule: zero bubble", "schedule: V", "MBS", "sync-free", "TP", "PP"):
        assert step in labels


def test_when_nothing_fits_the_plan_ends_with_the_widest_points(mixtral: Workload) -> None:
    pricing = Pricing(mixtral, make_cluster("mi355x", num_nodes=1), axes=DEFAULT_AXES)
    seeds = pricing.run(12)
    assert pricing.best() == 0
    assert 0 < len(seeds) < 60
    assert seeds[-1].label.startswith("smallest")


@pytest.mark.parametrize("order", [lambda point: point.topology, lambda point: (point.mbs, point.vpp)])
def test_the_grid_holds_every_point_once(mixtral: Workload, cluster: Cluster, order: Callable[[Any], Any]) -> None:
    points = grid(mixtral, cluster)
    assert len(set(points)) == len(points)
    assert len({order(point) for point in points}) > 10
    for point in points:
        assert 32 % (point.tp * point.pp * point.cp) == 0
        assert 32 % (point.ep * point.pp) == 0
        assert point.pp * point.vpp <= 56


def _told(workload: Workload, target: Cluster, score: Callable[[Seed], float | None], budget: int) -> list[Seed]:
    """Seeds of a plan that is told a made-up score of each legal seed, until `budget` of them have one."""
    scores: dict[TrialConfig, float | None] = {}
    seeds = []
    for seed in seed_plan(workload, target, score=scores.get, axes=DEFAULT_AXES):
        legal = check_legality(workload, seed.trial, target, axes=DEFAULT_AXES).legal
        scores[seed.trial] = score(seed) if legal else None
        seeds.append(seed)
        if sum(value is not None for value in scores.values()) == budget:
            break
    return seeds


def test_a_lever_that_does_not_fit_where_the_baseline_is_goes_with_the_grid(mixtral: Workload, cluster: Cluster) -> None:
    """FP8 that fits at another depth only (its copies beside a fully sharded model, say) must not be lost for every depth."""

    def score(seed: Seed) -> float | None:
        own_depth = seed.trial.pp in (None, mixtral.baseline.pp)
        return None if seed.trial.fp8 and own_depth else 2.0 if seed.trial.fp8 else 1.0

    seeds = _told(mixtral, cluster, score, 12)
    assert any(seed.trial.fp8 and score(seed) == 2.0 for seed in seeds)


def test_levers_that_nothing_could_judge_are_judged_at_the_first_points_that_fit(mixtral: Workload, cluster: Cluster) -> None:
    """Where the baseline does not fit all levers are kept unseen; a harmful one (stage 2 here) must not stay for the whole search."""

    def score(seed: Seed) -> float | None:
        if not seed.label.startswith(("grid", "neighbour")):
            return None
        return 5.0 if seed.trial.sync_free_stage == 1 else 1.0

    seeds = _told(mixtral, cluster, score, 8)
    assert any(seed.trial.sync_free_stage == 2 for seed in seeds)
    assert any(score(seed) == 5.0 for seed in seeds)


def test_a_large_vpp_is_tried_where_the_next_one_does_not_fit(mixtral: Workload, cluster: Cluster) -> None:
    """Rank 0 holds PP (1 + (PP - 1) / (PP VPP)) micro-batches: memory falls again as VPP grows."""

    def score(seed: Seed) -> float | None:
        vpp = seed.trial.vpp or mixtral.baseline.vpp
        return 1.0 if vpp == 1 else 2.0 if vpp >= 6 else None

    seeds = _told(mixtral, cluster, score, 12)
    assert any(score(seed) == 2.0 for seed in seeds)


def test_a_lever_that_is_illegal_everywhere_does_not_hide_the_grid() -> None:
    """Kimi-K2's router bias excludes sync-free MoE, and its baseline does not fit: no lever is judged before the grid is walked."""
    target = make_cluster("mi355x", num_nodes=16)
    pricing = Pricing(on(target, "kimi_k2"), target)
    pricing.run(4)
    best = max(pricing.scores, key=lambda trial: pricing.scores[trial] or 0.0)
    assert pricing.best() > 0
    assert best.use_turbo_deepep
    assert not best.sync_free_stage


def test_a_gpu_without_fp8_is_seeded_without_it() -> None:
    target = make_cluster("a100", num_nodes=1)
    pricing = Pricing(on(target, "llama3.1_8B"), target)
    pricing.run(3)
    assert pricing.best() > 0
    assert not [trial for trial, score in pricing.scores.items() if trial.fp8 == "hybrid" and score]


def test_where_nothing_fits_the_smallest_points_are_legal_and_tell_how_much_is_missing() -> None:
    target = make_cluster("a100", num_nodes=2)
    pricing = Pricing(on(target, "kimi_k2"), target)
    smallest = [seed for seed in pricing.run(1) if seed.label.startswith("smallest")]
    results = [pricing.evaluator.evaluate(seed.trial) for seed in smallest]
    assert sum(result.legal for result in results) > len(results) / 2
    assert min(result.memory_per_gpu_gb for result in results if result.memory_per_gpu_gb) < 1500


def test_fsdp2_alone_is_tried_where_the_first_topologies_that_fit_cannot_step_to_it() -> None:
    """Llama 8B on 8 A100: the baseline does not fit and pipelines do; weights spread by data parallelism alone are faster."""
    target = make_cluster("a100", num_nodes=1)
    pricing = Pricing(on(target, "llama3.1_8B"), target)
    labels = [seed.label for seed in pricing.run(12)]
    assert any(label.startswith("FSDP2") for label in labels)
    held = Pricing(on(target, "llama3.1_8B"), target, pins={"use_torch_fsdp2": False})
    assert not any(seed.trial.use_torch_fsdp2 for seed in held.run(12))


def test_an_exchange_that_the_model_may_not_have_does_not_hide_the_one_that_it_may() -> None:
    from sweep_cases import evaluator

    price = evaluator("deepseek_v3", 32)
    assert not price.rules.check(TrialConfig(ep=8, expert_tensor_parallel_size=1, use_turbo_deepep=True, sync_free_stage=1)).legal
    scores: dict[TrialConfig, float | None] = {}
    plan = seed_plan(price.rules.workload, price.rules.cluster, score=scores.get, fits=price.fits, axes=price.rules.axes)
    for seed in plan:
        result = price.evaluate(seed.trial)
        scores[seed.trial] = result.tokens_per_s_per_gpu if result.within_margin else None
        if sum(score is not None for score in scores.values()) == 12:
            break
    best = max((trial for trial, score in scores.items() if score is not None), key=lambda trial: scores[trial] or 0.0)
    assert best.use_turbo_deepep and best.ep is not None and best.ep > 1


class Book:
    """A plan whose memory is a rule: activations of MBS tokens a stage, less those of recomputed layers, and FP8's copies."""

    def __init__(self, workload: Workload, target: Cluster, fits: Callable[[TrialConfig], bool], **plan: Any) -> None:
        self.scores: dict[TrialConfig, float | None] = {}
        self.plan = seed_plan(workload, target, score=self.scores.get, fits=fits, axes=DEFAULT_AXES, **plan)
        self.fits = fits

    def first(self, count: int) -> list[TrialConfig]:
        """Seeds that fit; each scores less than the one before, so that nothing is refined."""
        found: list[TrialConfig] = []
        for seed in self.plan:
            if self.fits(seed.trial):
                found.append(seed.trial)
                self.scores[seed.trial] = 1.0 / len(found)
            if len(found) == count:
                break
        return found


def test_a_point_recomputes_as_few_layers_as_fit(mixtral: Workload, cluster: Cluster) -> None:
    """Here three layers of each virtual stage must be recomputed, whatever the topology, and selective recompute frees nothing."""

    def fits(trial: TrialConfig) -> bool:
        if trial.pp is None or trial.recompute_granularity != "full":
            return False
        stage = ceil(56 / (trial.pp * (trial.vpp or 1)))
        return stage >= 3 and (trial.recompute_num_layers or stage) >= 3

    trials = Book(mixtral, cluster, fits).first(4)
    assert len(trials) == 4
    for trial in trials:
        assert trial.pp is not None
        assert trial.recompute_num_layers in ((3,) if ceil(56 / (trial.pp * (trial.vpp or 1))) > 3 else (None, 3))


def test_first_seeds_are_distinct_topologies(mixtral: Workload, cluster: Cluster) -> None:
    trials = Book(mixtral, cluster, lambda trial: trial.pp is not None and trial.recompute_granularity == "none").first(3)
    assert len({(trial.tp, trial.pp, trial.ep, trial.cp) for trial in trials}) == 3


def test_fp8_that_keeps_a_topology_from_fitting_is_given_up_there(mixtral: Workload, cluster: Cluster) -> None:
    """Copies of the weights in FP8 may not fit where the model does."""

    def fits(trial: TrialConfig) -> bool:
        return trial.pp is not None and trial.fp8 in (None, "none")

    trials = Book(mixtral, cluster, fits).first(3)
    assert {(trial.tp, trial.fp8, trial.use_turbo_deepep) for trial in trials} == {(1, None, True)}


def test_a_topology_is_not_given_up_because_another_context_split_of_it_is_illegal(mixtral: Workload, cluster: Cluster) -> None:
    """What is too large at CP 2 tells of CP 1 at half the micro-batch; what is illegal at CP 2 does not."""

    def fits(trial: TrialConfig) -> bool:
        return trial.pp is not None and trial.cp == 1 and trial.recompute_granularity == "full" and trial.mbs == 2

    assert {(trial.cp, trial.mbs) for trial in Book(mixtral, cluster, fits).first(2)} == {(1, 2)}


def test_the_grid_follows_pins_of_degrees(mixtral: Workload, cluster: Cluster) -> None:
    seeds = list(islice(seed_plan(mixtral, cluster, axes=DEFAULT_AXES, pins={"tp": 2, "mbs": 1}), 40))
    labels = [seed.label for seed in seeds if seed.label.startswith("grid")]
    assert labels
    assert all("TP2 " in label and "MBS1 " in label for label in labels)


@pytest.mark.parametrize(
    ("model", "gpu", "nodes", "degrees"),
    [
        ("deepseek_v2", "mi300x", 4, (1, 4, 8, 1)),
        ("mixtral_8x22B_v0.1", "mi355x", 4, (1, 4, 8, 1)),
        ("llama3.1_70B", "mi325x", 8, (1, 8, 1, 2)),
    ],
)
def test_twelve_seeds_find_the_topology_of_the_sweeps_optimum_regression(
    model: str, gpu: str, nodes: int, degrees: tuple[int, int, int, int]
) -> None:
    target = make_cluster(gpu, num_nodes=nodes)
    pricing = Pricing(on(target, model), target, axes=DEFAULT_AXES)
    pricing.run(12)
    best = max((trial for trial, score in pricing.scores.items() if score), key=lambda trial: pricing.scores[trial] or 0.0)
    assert (best.tp, best.pp, best.ep or 1, best.cp) == degrees


def test_steps_of_virtual_stages_are_the_next_ones_and_half_and_twice_as_many(mixtral: Workload, cluster: Cluster) -> None:
    for vpp in (1, 2, 3, 4, 5, 6, 8):
        labels = [label for label, _ in neighbours(mixtral, cluster, TrialConfig(pp=4, vpp=vpp))]
        tried = [int(label.rpartition(" ")[2]) for label in labels if re.fullmatch(r"neighbour: VPP \d+", label)]
        assert {max(1, vpp - 1), vpp // 2 or 1, min(8, vpp * 2)} <= {*tried, vpp}
        degrees = labels.index(next(label for label in labels if label.startswith("neighbour: EP")))
        assert all(labels.index(f"neighbour: VPP {stages}") < degrees for stages in tried)


def test_a_step_of_depth_keeps_the_layers_of_a_virtual_stage(mixtral: Workload, cluster: Cluster) -> None:
    steps = {label: knobs for label, knobs in neighbours(mixtral, cluster, TrialConfig(pp=4, vpp=4)) if label.startswith("neighbour: PP")}
    assert {knobs["pp"]: knobs["vpp"] for knobs in steps.values()} == {2: 8, 8: 2}
    plain = {knobs["pp"]: knobs["vpp"] for label, knobs in neighbours(mixtral, cluster, TrialConfig(pp=4, vpp=1)) if "PP " in label[:14]}
    assert set(plain.values()) == {1}


def test_twelve_seeds_of_the_example_workload_come_within_a_thousandth_of_the_sweep_regression(mixtral: Workload, cluster: Cluster) -> None:
    pricing = Pricing(mixtral, cluster, axes=DEFAULT_AXES)
    pricing.run(12)
    assert isinstance(pricing.evaluator, FullEvaluator)
    optimum = sweep(pricing.evaluator, only=["tp", "pp", "ep", "vpp", "mbs", "fp8", "sync_free_stage", "use_turbo_deepep"], top=1).best
    assert optimum is not None and optimum.result.tokens_per_s_per_gpu is not None
    assert pricing.best() >= optimum.result.tokens_per_s_per_gpu * 0.999
