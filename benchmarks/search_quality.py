"""How far from the optimum each search is after 30 priced evaluations, also when the engine is not what it thinks.

Regret = 1 - found / optimum, where the optimum is that of a sweep of the whole space, proven under the model; no search may beat it.
Illegal, infeasible and repeated configurations are free for every search, as in the product. `--perturb N` adds N worlds a case in which
each rate of the engine is off by up to +-15%; no search knows: of the world it sees what it prices, and free looks are at the engine as it
is. Where the engine is right such looks are exact, so the columns of the scripted agent and of `tune`, which starts from the sweep of the
engine as it is, are fair races in the perturbed worlds only.
`--ladders ROWS` instead asks the measured runs: of each published ladder, how much slower the run that the engine ranks first is than the
fastest. Optuna is needed for its column only.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from primus_mcp.cli.start import START_TOP
from primus_mcp.driver.belt import ESTIMATE_ONLY
from primus_mcp.driver.coordinate import coordinate_search
from primus_mcp.driver.desk import Clock, Desk, Reply
from primus_mcp.driver.loop import Loop
from primus_mcp.driver.stops import ToolFailedError
from primus_mcp.errors import PrimusMcpError
from primus_mcp.evaluation.evaluators import Evaluator, FullEvaluator, Rules
from primus_mcp.evaluation.rank import is_candidate
from primus_mcp.inputs.cluster import TargetCluster, parse_cluster
from primus_mcp.inputs.hardware import SoftwareProfile
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.inputs.workload import Workload
from primus_mcp.search.neighbours import neighbours
from primus_mcp.search.sweep import sweep
from primus_mcp.search.sweep_result import SweepResult
from primus_mcp.search.sweep_tools import LEVELS
from primus_mcp.session import TuningSession
from primus_mcp.space.adapted import adapt_baseline
from primus_mcp.space.axes import legal_axes
from primus_mcp.space.knobs import TrialConfig, knob_values, set_knobs
from primus_mcp.tools.registry import LlmReply
from primus_mcp.validation.groups import ladders
from primus_mcp.validation.rows import read_rows
from primus_mcp.validation.score import score

CASES: tuple[tuple[str, str, int], ...] = (
    ("llama3.1_8B", "mi325x", 1),
    ("llama3.1_70B", "mi325x", 8),
    ("llama3.1_405B", "mi325x", 64),
    ("qwen3_30B_A3B", "mi300x", 1),
    ("gpt_oss_120B", "mi355x", 2),
    ("mixtral_8x22B_v0.1", "mi355x", 4),
    ("deepseek_v2", "mi300x", 4),
    ("mixtral_8x22B_v0.1", "mi355x", 16),
    ("qwen3_235B_A22B", "mi355x", 8),
    ("deepseek_v3", "mi355x", 32),
)
"""The cheapest to sweep first."""
HELD_OUT: tuple[tuple[str, str, int], ...] = (
    ("gpt_oss_20B", "mi300x", 1),
    ("deepseek_v2_lite", "mi300x", 1),
    ("qwen3_32B", "h200", 2),
    ("mixtral_8x7B_v0.1", "mi325x", 2),
    ("llama3.1_70B", "h100", 4),
    ("qwen2.5_72B", "mi300x", 4),
    ("grok1", "mi300x", 8),
    ("llama4_17B16E", "mi300x", 8),
    ("kimi_k2", "mi355x", 16),
    ("deepseek_v3", "gb200", 16),
    ("qwen3_235B_A22B", "mi300x", 16),
    ("deepseek_v3", "mi300x", 64),
)
"""No constant of the seeds' estimate was chosen with these in view."""
EVALUATIONS, SEEDS = 30, 12
ATTEMPTS, TPE_ATTEMPTS = 1_500, 300
PERTURBATION = 0.15
Knobs = dict[str, Any]


@dataclass(frozen=True)
class World:
    """A workload on a cluster as the searches meet it."""

    name: str
    workload: Workload
    target: TargetCluster
    believed: TargetCluster

    def evaluator(self) -> FullEvaluator:
        """A fresh one that tells how the world is: what it prices counts."""
        return self._evaluator(self.target)

    def belief(self) -> FullEvaluator:
        """The engine as it is, which is all that a search may look at for free."""
        return self._evaluator(self.believed)

    def _evaluator(self, target: TargetCluster) -> FullEvaluator:
        rules = Rules(workload=self.workload, cluster=target.cluster, axes=target.axes.model_dump(), pins={})
        return FullEvaluator(rules, gemm_backend="roofline")


def perturbed(profile: SoftwareProfile, seed: int) -> SoftwareProfile:
    """Every rate of the profile times 1 +- 15%, shares at most 1."""
    draw = random.Random(seed)
    changes: dict[str, Any] = {}
    for field in fields(profile):
        value = getattr(profile, field.name)
        if isinstance(value, float):
            factor = 1 + draw.uniform(-PERTURBATION, PERTURBATION)
            changes[field.name] = min(value * factor, 1.0) if field.name.endswith("efficiency") else value * factor
    flops = {name: value * (1 + draw.uniform(-PERTURBATION, PERTURBATION)) for name, value in profile.sustained_flops.items()}
    figures = {name: value * (1 + draw.uniform(-PERTURBATION, PERTURBATION)) for name, value in profile.figures.items()}
    return replace(profile, sustained_flops=flops, figures=figures, **changes)


def world(model: str, gpu: str, nodes: int, seed: int | None) -> World:
    """The case as it is, or perturbed."""
    target = believed = parse_cluster({"target_cluster": {"num_nodes": nodes, "gpu_arch": gpu}}, where="benchmark")
    if seed is not None:
        target = replace(target, cluster=replace(target.cluster, profile=perturbed(target.cluster.profile, seed)))
    workload = adapt_baseline(workload_from_model(model), target.cluster).workload
    return World(f"{model} {nodes}x8 {gpu}" + ("" if seed is None else f" ~{seed}"), workload, target, believed)


class Counted:
    """Prices each configuration once; `best` so far; `left` priced evaluations of the budget."""

    def __init__(self, evaluator: Evaluator, budget: int) -> None:
        self.evaluator, self.left, self.best = evaluator, budget, 0.0
        self.rates: dict[str, tuple[float, TrialConfig]] = {}

    def rate(self, knobs: Mapping[str, Any]) -> float:
        """Tokens/s/GPU, 0 for what is illegal or does not fit."""
        try:
            trial = TrialConfig(**knobs)
            key = self.evaluator.key(trial)
            if key in self.rates:
                return self.rates[key][0]
            result = self.evaluator.evaluate(trial)
        except PrimusMcpError:
            return 0.0
        rate = result.tokens_per_s_per_gpu or 0.0 if is_candidate(result) else 0.0
        self.rates[key] = (rate, trial)
        self.left -= result.tokens_per_s_per_gpu is not None
        self.best = max(self.best, rate)
        return rate


def repaired(evaluator: Evaluator, knobs: Mapping[str, Any], draw: random.Random) -> Knobs:
    """The point with knobs given up, in random order, until it is legal: almost no point of the product is."""
    left = dict(knobs)
    order = draw.sample(sorted(left), len(left))
    while left:
        try:
            if evaluator.rules.check(TrialConfig(**left)).legal:
                break
        except PrimusMcpError:
            pass
        del left[order.pop()]
    return left


def drawn(draw: random.Random, axes: Mapping[str, Sequence[Any]]) -> Knobs:
    """A point of the product of all legal values."""
    return {name: draw.choice(values) for name, values in axes.items()}


def axes_of(setting: World) -> dict[str, tuple[Any, ...]]:
    """Legal values of the knobs that may move."""
    found = legal_axes(setting.workload, setting.target.cluster, axes=setting.target.axes.model_dump())
    return {name: values for name, values in found.items() if len(values) > 1 and name not in ESTIMATE_ONLY}


def random_search(setting: World, seed: int, budget: int = EVALUATIONS) -> Counted:
    """The baseline and points drawn at random."""
    counted, draw, axes = Counted(setting.evaluator(), budget), random.Random(seed), axes_of(setting)
    counted.rate({})
    for _ in range(ATTEMPTS * max(1, budget // EVALUATIONS)):
        if counted.left <= 0:
            break
        counted.rate(repaired(counted.evaluator, drawn(draw, axes), draw))
    return counted


def tpe_search(setting: World, seed: int) -> float:
    """Optuna's TPE over the same axes, the baseline first; what is illegal or does not fit scores 0. It is told what was priced: the point
    as repaired, not as it proposed it.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    counted, axes = Counted(setting.evaluator(), EVALUATIONS), axes_of(setting)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, multivariate=False))
    scales = {name: optuna.distributions.CategoricalDistribution(values) for name, values in axes.items()}
    baseline = knob_values(setting.workload.baseline)
    own = {name: baseline[name] if baseline[name] in values else values[0] for name, values in axes.items()}
    draw = random.Random(seed)
    point: Knobs = {}
    for _ in range(TPE_ATTEMPTS):
        priced = {**own, **point}
        study.add_trial(optuna.trial.create_trial(params=priced, distributions=scales, value=counted.rate(point)))
        if counted.left <= 0:
            break
        asked = study.ask()
        point = repaired(counted.evaluator, {name: asked.suggest_categorical(name, values) for name, values in axes.items()}, draw)
        study.tell(asked, state=optuna.trial.TrialState.FAIL)
    return counted.best


def session_in(folder: str, setting: World, seeds: int, searched: int) -> TuningSession:
    """A session with these budgets."""
    limits = {"seed_budget": seeds, "max_proposals": 10 * EVALUATIONS, "max_perf_calls": searched, "max_rounds": 1_000}
    return TuningSession.open(setting.workload, setting.target, setting.evaluator(), Path(folder), limits=limits)


def found_in(session: TuningSession) -> float:
    """The best inside the margin, at risk or not, as the other searches count it."""
    return max((r.result.tokens_per_s_per_gpu or 0.0 for r in session.history() if is_candidate(r.result)), default=0.0)


def seeds_only(setting: World) -> float:
    """The seed plan alone."""
    with tempfile.TemporaryDirectory() as folder:
        session = session_in(folder, setting, EVALUATIONS, 0)
        session.run_seeds()
        return found_in(session)


def coordinate(setting: World) -> float:
    """What `tune --strategy coordinate` does."""
    with tempfile.TemporaryDirectory() as folder:
        session = session_in(folder, setting, SEEDS, EVALUATIONS - SEEDS)
        session.run_seeds()
        coordinate_search(session)
        return found_in(session)


class Follower:
    """A scripted agent: each round it prices the single changes of the incumbent that should be fastest, alone and together with the next.

    What should be fast it takes from the engine as it is, not from `explain_trial`, whose free looks would be at the world itself.
    """

    name = "scripted"

    def __init__(self, desk: Desk, setting: World) -> None:
        self._desk, self._setting, self._belief = desk, setting, setting.belief()
        self._tried: set[str] = set()
        self.ask: Callable[[str, str], LlmReply] | None = None

    def _expected(self, knobs: Mapping[str, Any]) -> float:
        """Tokens/s/GPU as the engine believes; 0 for what is illegal, does not fit or was tried."""
        try:
            trial = TrialConfig(**knobs)
            result = self._belief.evaluate(trial)
            known = self._belief.key(trial) in self._tried
        except PrimusMcpError:
            return 0.0
        return 0.0 if known or not is_candidate(result) else result.tokens_per_s_per_gpu or 0.0

    def _steps(self, incumbent: Knobs) -> list[Knobs]:
        """Single changes of the incumbent, the fastest expected first."""
        trial = TrialConfig(**incumbent)
        held = set_knobs(trial)
        steps = [(self._expected(knobs), knobs) for _, knobs in neighbours(self._setting.workload, self._setting.target.cluster, trial)]
        ordered = sorted((step for step in steps if step[0] > 0), key=lambda step: -step[0])
        return [{name: value for name, value in knobs.items() if held.get(name) != value} for _, knobs in ordered]

    def plan(self, inputs: Mapping[str, Any]) -> str:  # noqa: ARG002
        """None is needed."""
        return ""

    def search(self, inputs: Mapping[str, Any], tools: Mapping[str, Callable[..., Any]], max_iterations: int) -> str:  # noqa: ARG002
        """One round."""
        self._desk.ask(lambda: Reply(text="", model="scripted"), purpose="rlm")
        incumbent = dict(inputs["incumbent"]["changes"])
        changes = self._steps(incumbent)
        together = [{**one, **other} for one, other in pairwise(changes)]
        for change in [*changes[:1], *together[:2], *changes[1:3]]:
            knobs = {**incumbent, **change}
            try:
                self._tried.add(self._belief.key(TrialConfig(**knobs)))
                tools["evaluate_simulate"](config_json=knobs)
            except ToolFailedError:
                return "budget"
            except PrimusMcpError:
                continue
        return "done" if changes else "no further change"


def scripted_agent(setting: World) -> float:
    """Seeds, then the loop of the driver with the scripted agent."""
    with tempfile.TemporaryDirectory() as folder:
        session = session_in(folder, setting, SEEDS, EVALUATIONS - SEEDS)
        session.run_seeds()
        if session.best().best is not None:
            desk = Desk(session, model="scripted", clock=Clock())
            Loop(session, desk, Follower(desk, setting), patience=2).run()
        return found_in(session)


def tune(setting: World, believed: SweepResult) -> float:
    """What `tune` does where there is no language model: seeds, the best of the sweep of the engine as it is, coordinate search."""
    with tempfile.TemporaryDirectory() as folder:
        trials = [one.trial for one in (*believed.top, *believed.by_memory)]
        session = session_in(folder, setting, SEEDS, EVALUATIONS - SEEDS - len(trials))
        session.run_seeds()
        for trial in trials:
            session.evaluate(TrialConfig(**trial), origin="sweep")
        coordinate_search(session)
        return found_in(session)


def swept(evaluator: FullEvaluator) -> SweepResult:
    """The whole space as `tune` sweeps it. Raises ValueError where the optimum is not proven."""
    found = sweep(evaluator, gemm_backend="roofline", top=START_TOP, levels=LEVELS, jobs=1)
    if not found.proven or found.best is None:
        raise ValueError(f"{evaluator.rules.workload.name}: the optimum is not proven")
    return found


def measure(setting: World, believed: SweepResult, repeats: int) -> dict[str, float]:
    """Regret of each search in one world, of those that draw the median of `repeats`; `believed`: the sweep of the engine as it is."""
    found = {"seeds": seeds_only(setting), "coordinate": coordinate(setting)}
    found |= {"tune": tune(setting, believed), "agent": scripted_agent(setting)}
    if repeats:
        found["random"] = median(random_search(setting, seed).best for seed in range(repeats))
    if repeats and importlib.util.find_spec("optuna") is not None:
        found["tpe"] = median(tpe_search(setting, seed) for seed in range(repeats))
    best = (believed if setting.target is setting.believed else swept(setting.evaluator())).best
    top = best.result.tokens_per_s_per_gpu or 0.0 if best is not None else 0.0
    for name, rate in found.items():
        if rate > top * (1 + 1e-9):
            raise ValueError(f"{setting.name}: {name} found {rate:,.1f}, more than the proven optimum {top:,.1f}")
    return {name: 1 - rate / top for name, rate in found.items()} | {"optimum": top}


def print_ladders(rows: Path) -> None:
    """Regret in measured tokens/s of choosing by the engine, ladder by ladder."""
    found = ladders(score(read_rows(rows), what=("time",), backend="roofline"))
    for ladder in sorted(found, key=lambda one: -one.regret):
        print(f"{ladder.name:46} {ladder.rows:3} runs  regret {ladder.regret:6.1%}  Spearman {ladder.spearman:5.2f}")
    regrets = [ladder.regret for ladder in found]
    print(f"{len(found)} ladders: mean {sum(regrets) / len(regrets):.1%}, median {median(regrets):.1%}, worst {max(regrets):.1%}")


def main() -> None:
    """Prints a line a world, and the median and worst regret of each search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--perturb", type=int, default=0, metavar="N", help="perturbed worlds a case")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs of each search that draws; 0: none")
    parser.add_argument("--held-out", action="store_true", help="the cases that no constant was chosen on")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains this")
    parser.add_argument("--json", type=Path, help="also write the rows there")
    parser.add_argument("--ladders", type=Path, metavar="ROWS", help="the measured ladders of a file of truth rows instead")
    arguments = parser.parse_args()
    if arguments.ladders is not None:
        print_ladders(arguments.ladders)
        return
    rows: dict[str, dict[str, float]] = {}
    for model, gpu, nodes in HELD_OUT if arguments.held_out else CASES:
        believed: SweepResult | None = None
        for seed in (None, *range(arguments.perturb)):
            setting = world(model, gpu, nodes, seed)
            if arguments.only not in setting.name:
                continue
            began_s = time.monotonic()
            believed = believed or swept(setting.belief())
            row = rows[setting.name] = measure(setting, believed, arguments.repeats)
            regrets = "".join(f"{name} {value:6.1%}  " for name, value in row.items() if name != "optimum")
            print(f"{setting.name:34} {regrets} optimum {row['optimum']:9,.0f}  ({time.monotonic() - began_s:.0f} s)", flush=True)
    for title, choose in (("median", median), ("worst", max)):
        names = [name for name in next(iter(rows.values())) if name != "optimum"]
        print(f"{title:34} " + "".join(f"{name} {choose(row[name] for row in rows.values()):6.1%}  " for name in names))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
