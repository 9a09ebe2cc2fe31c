"""How sure the winner is: one step along every knob, and every uncertain rate somewhat lower and higher, against its rivals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from primus_mcp.errors import InputError, PrimusMcpError
from primus_mcp.evaluation.evaluators import FullEvaluator
from primus_mcp.evaluation.rank import is_candidate
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.inputs.hardware import Cluster, SoftwareProfile
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.ops.backend import GemmBackend
from primus_mcp.projection.performance import project_performance
from primus_mcp.search.credible import credible_effects
from primus_mcp.search.neighbours import neighbours
from primus_mcp.space.knobs import TrialConfig, set_knobs

SWING, LEAST_SWING, MOST_SWING = 0.2, 0.01, 0.5
"""Share by which uncertain rates are taken lower and higher, unless another is asked for, and what may be asked for."""
BAND = 0.03
"""Configurations whose throughput differs by less than this are not told apart by the model."""
BROAD, SHARP = 0.5, 0.2
"""Shares of the steps that cost less than BAND, from which on a basin is called broad, and below which it is a peak."""
FEWEST = 5
"""Steps that fit, below which their share is called neither broad nor sharp."""
MAX_RIVALS = 8
Outcome = Literal["priced", "over the cap", "illegal", "policy", "not asked for", "not priced"]
"""What became of a step: `policy` where no rule of the trainer refuses it, only a bound of the search."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Step(_Record):
    """One step away from the centre. `ratio`: its throughput over the centre's; null where `outcome` is not `priced`."""

    label: str
    trial: dict[str, Any]
    tokens_per_s_per_gpu: float | None
    memory_per_gpu_gb: float | None
    ratio: float | None
    outcome: Outcome
    reason: str | None


class Swing(_Record):
    """One uncertain figure at two values: the centre's throughput, and the place of who leads then. `ends`: the values in words, which are
    (1 - swing) and (1 + swing) of today's, or the ends of the range that the catalogue states.
    """

    name: str
    what: str
    ends: tuple[str, str] = ("-20%", "+20%")
    low: float
    high: float
    leader_low: int
    leader_high: int


class Rival(_Record):
    """A configuration that is compared under every swing. `worst_regret`: how far behind the leader of a swing it falls at most."""

    label: str
    trial: dict[str, Any]
    tokens_per_s_per_gpu: float
    worst_regret: float


class Sensitivity(_Record):
    """The answer. `basin`: share of the steps that fit and cost less than BAND; high is a broad basin, low a sharp peak."""

    trial: dict[str, Any]
    tokens_per_s_per_gpu: float
    swing: float = Field(default=SWING, description="share by which each uncertain rate is lower and higher")
    steps: list[Step] = Field(description="best first; those that do not run or fit last")
    swings: list[Swing] = Field(description="largest effect first")
    rivals: list[Rival] = Field(description="the centre first")
    basin: float
    robust: int = Field(description="place in `rivals` of the smallest worst regret among those within the band of the fastest")
    text: str


def _of_profile(name: str) -> Callable[[SoftwareProfile, float], SoftwareProfile]:
    def change(profile: SoftwareProfile, factor: float) -> SoftwareProfile:
        return replace(profile, **{name: getattr(profile, name) * factor})

    return change


def _gemm(profile: SoftwareProfile, factor: float) -> SoftwareProfile:
    return replace(profile, sustained_flops={name: rate * factor for name, rate in profile.sustained_flops.items()})


def _attention(profile: SoftwareProfile, factor: float) -> SoftwareProfile:
    return replace(
        profile,
        attention_forward_flops=profile.attention_forward_flops * factor,
        attention_backward_flops=profile.attention_backward_flops * factor,
    )


RATES: Mapping[str, tuple[str, Callable[[SoftwareProfile, float], SoftwareProfile]]] = {
    "gemm_rate": ("sustained GEMM rate", _gemm),
    "attention_rate": ("attention kernel rate", _attention),
    "grouped_gemm": ("grouped GEMM against a dense one", _of_profile("grouped_gemm_efficiency")),
    "hbm_passes": ("HBM bandwidth of elementwise passes", _of_profile("elementwise_hbm_efficiency")),
    "node_links": ("link bandwidth of collectives inside a node", _of_profile("link_efficiency")),
    "all_to_all": ("link bandwidth of the library all-to-all", _of_profile("all_to_all_link_efficiency")),
    "deepep": ("link bandwidth of DeepEP", _of_profile("deepep_link_efficiency")),
    "network": ("NIC bandwidth", _of_profile("nic_efficiency")),
    "launch": ("host time to launch a kernel", _of_profile("launch_s")),
}
IMBALANCE = ("imbalance", "load of the busiest expert rank")


def _swings(cluster: Cluster, swing: float, *, moe: bool) -> Iterator[tuple[str, str, Cluster, float]]:
    """(name, text, cluster with the changed profile, factor on the expert load), of each rate the lower value first."""
    for name, (text, change) in RATES.items():
        if not moe and name in ("grouped_gemm", "all_to_all", "deepep"):
            continue
        for factor in (1 - swing, 1 + swing):
            yield name, text, replace(cluster, profile=change(cluster.profile, factor)), 1.0
    if moe:
        for factor in (1 - swing, 1 + swing):
            yield *IMBALANCE, cluster, factor


Allowed = Callable[[TrialConfig, EvaluationResult], bool]
NOT_ASKED_FOR = "outside of what was asked for"


def one_steps(evaluator: FullEvaluator, centre: TrialConfig, allowed: Allowed = lambda *_: True) -> list[Step]:
    """Every neighbour of the centre, priced; those that repeat the centre are left out. One that is not allowed has no ratio."""
    base = evaluator.evaluate(centre).tokens_per_s_per_gpu or 0.0
    known, steps = {evaluator.key(centre)}, []
    for label, knobs in neighbours(evaluator.workload, evaluator.cluster, centre):
        trial = TrialConfig(**{**set_knobs(centre), **knobs})
        key = evaluator.key(trial)
        if key in known:
            continue
        known.add(key)
        try:
            result = evaluator.evaluate(trial)
        except PrimusMcpError as error:
            steps.append(_step(label, trial, None, base, "not priced", str(error)))
            continue
        outcome = _outcome(evaluator, trial, result, allowed)
        steps.append(_step(label, trial, result, base, outcome, NOT_ASKED_FOR if outcome == "not asked for" else result.reason))
    return sorted(steps, key=lambda step: -(step.ratio or 0.0))


def _outcome(evaluator: FullEvaluator, trial: TrialConfig, result: EvaluationResult, allowed: Allowed) -> Outcome:
    if is_candidate(result):
        return "priced" if allowed(trial, result) else "not asked for"
    if not result.legal:
        kinds = {violation.kind for violation in evaluator.rules.check(trial).violations}
        return "policy" if kinds == {"policy"} else "illegal"
    return "over the cap" if result.within_margin is False else "not priced"


def _step(label: str, trial: TrialConfig, result: EvaluationResult | None, base: float, outcome: Outcome, reason: str | None) -> Step:
    rate = result.tokens_per_s_per_gpu if result is not None and outcome == "priced" else None
    return Step(
        label=label.removeprefix("neighbour: "),
        trial=set_knobs(trial),
        tokens_per_s_per_gpu=rate,
        memory_per_gpu_gb=None if result is None else result.memory_per_gpu_gb,
        ratio=rate / base if rate and base else None,
        outcome=outcome,
        reason=reason,
    )


def _rate(evaluator: FullEvaluator, config: TrainingConfig, cluster: Cluster, load: float, backend: GemmBackend) -> float:
    changed = config if load == 1.0 else replace(config, expert_load_imbalance=max(1.0, config.expert_load_imbalance * load))
    return project_performance(evaluator.workload.architecture, changed, cluster, gemm_backend=backend).tokens_per_s_per_gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """Tokens/s/GPU of every compared configuration at two values of one uncertain figure, which `words` name."""

    name: str
    text: str
    words: tuple[str, str]
    low: tuple[float, ...]
    high: tuple[float, ...]


_Compared = tuple[str, TrialConfig, TrainingConfig]


def _compared(evaluator: FullEvaluator, centre: TrialConfig, rivals: Sequence[TrialConfig], steps: Sequence[Step]) -> list[_Compared]:
    """The centre, the rivals and the best steps, each once, with the names that the words call them by."""
    named = [("the winner", centre), *((f"rival {i}", trial) for i, trial in enumerate(rivals, 1))]
    named += [(step.label, TrialConfig(**step.trial)) for step in steps if step.ratio is not None]
    configs: dict[str, _Compared] = {}
    for label, trial in named:
        legality = evaluator.rules.check(trial)
        if legality.config is not None and len(configs) < MAX_RIVALS:
            configs.setdefault(evaluator.key(trial), (label, trial, legality.config))
    return list(configs.values())


def sensitivity(
    evaluator: FullEvaluator,
    centre: TrialConfig,
    *,
    rivals: Sequence[TrialConfig] = (),
    allowed: Allowed = lambda *_: True,
    gemm_backend: GemmBackend = "auto",
    ranges: bool = False,
    swing: float = SWING,
) -> Sensitivity:
    """The centre's neighbourhood and what each uncertain rate does to it and to its rivals (the given ones, then its best steps).

    `swing`: the share by which rates are taken lower and higher; raises InputError where it is not LEAST_SWING to MOST_SWING.
    `allowed`: steps that may be recommended, where not all may. `ranges`: also the constants of the catalogue over their credible ranges,
    which takes seconds and a process. Memory does not depend on rates, so what fits, fits under every swing;
    more expert load than balanced is not priced in memory here.
    """
    if not LEAST_SWING <= swing <= MOST_SWING:
        raise InputError(f"{swing:g} is not between {LEAST_SWING:g} and {MOST_SWING:g}", where="swing", remedy="0.2 is 20%")
    steps = one_steps(evaluator, centre, allowed)
    chosen = _compared(evaluator, centre, rivals, steps)
    today = [_rate(evaluator, config, evaluator.cluster, 1.0, gemm_backend) for _, _, config in chosen]
    configs = [config for _, _, config in chosen]
    ends = list(_rates_swung(evaluator, configs, swing, gemm_backend))
    if ranges:
        ends += _ranges_swung(evaluator, configs, gemm_backend)
    swings = sorted((_swing(one) for one in ends), key=lambda one: -abs(one.high - one.low))
    worlds = [today, *(rates for one in ends for rates in (one.low, one.high))]
    regrets = [max(1 - rates[i] / max(rates) for rates in worlds) for i in range(len(chosen))]
    near = [i for i, rate in enumerate(today) if rate >= max(today) * (1 - BAND)]
    robust = min(near, key=lambda i: (round(regrets[i], 4), -today[i], i))
    fitting = [step for step in steps if step.ratio is not None]
    cheap = sum((step.ratio or 0.0) >= 1 - BAND for step in fitting)
    found = [
        Rival(label=label, trial=set_knobs(trial), tokens_per_s_per_gpu=rate, worst_regret=regret)
        for (label, trial, _), rate, regret in zip(chosen, today, regrets, strict=True)
    ]
    return Sensitivity(
        trial=set_knobs(centre),
        tokens_per_s_per_gpu=today[0],
        swing=swing,
        steps=steps,
        swings=swings,
        rivals=found,
        basin=cheap / len(fitting) if fitting else 0.0,
        robust=robust,
        text=_text(found, swings, (cheap, len(fitting)), robust),
    )


def _rates_swung(evaluator: FullEvaluator, configs: Sequence[TrainingConfig], swing: float, backend: GemmBackend) -> Iterator[_Ends]:
    """Each uncertain rate at (1 - swing) and (1 + swing) of today's."""
    signs = (f"-{100 * swing:.3g}%", f"+{100 * swing:.3g}%")
    found: dict[str, list[tuple[float, ...]]] = {}
    texts: dict[str, str] = {}
    for name, text, cluster, load in _swings(evaluator.cluster, swing, moe=evaluator.workload.architecture.is_moe):
        texts[name] = text
        found.setdefault(name, []).append(tuple(_rate(evaluator, config, cluster, load, backend) for config in configs))
    for name, (low, high) in found.items():
        yield _Ends(name=name, text=texts[name], words=signs, low=low, high=high)


def _ranges_swung(evaluator: FullEvaluator, configs: Sequence[TrainingConfig], backend: GemmBackend) -> Iterator[_Ends]:
    """Each constant at the ends of the range that the catalogue states."""
    words = ("at its low end", "at its high end")
    for effect in credible_effects(evaluator.workload.architecture, configs, evaluator.cluster, backend):
        yield _Ends(name=f"range {effect.name}", text=effect.text, words=words, low=effect.low, high=effect.high)


def _swing(ends: _Ends) -> Swing:
    low, high = ends.low, ends.high
    return Swing(
        name=ends.name,
        what=ends.text,
        ends=ends.words,
        low=low[0],
        high=high[0],
        leader_low=max(range(len(low)), key=lambda i: (low[i], -i)),
        leader_high=max(range(len(high)), key=lambda i: (high[i], -i)),
    )


def _basin_text(cheap: int, fitting: int) -> str:
    """How many of the steps that fit cost little; a verdict only where there are enough of them."""
    if not fitting:
        return "no single step that was tried fits: how broad the optimum is, is not known"
    told = f"{cheap} of the {fitting} single steps that fit cost{'s' if fitting == 1 else ''} less than {BAND:.0%}"
    if fitting < FEWEST:
        return f"{told}: too few to tell a broad basin from a sharp peak"
    share = cheap / fitting
    kind = "a broad basin" if share >= BROAD else "a sharp peak" if share < SHARP else "neither sharp nor broad"
    return f"{kind}: {told}"


def _text(rivals: Sequence[Rival], swings: Sequence[Swing], basin: tuple[int, int], robust: int) -> str:
    lines = [_basin_text(*basin)]
    if swings:
        first = swings[0]
        ends = " and ".join(first.ends)
        lines.append(f"most sensitive to {first.what}: {first.low:,.0f} to {first.high:,.0f} tokens/s/GPU {ends}")
    today = max(range(len(rivals)), key=lambda i: (rivals[i].tokens_per_s_per_gpu, -i))
    if today:
        gain = rivals[today].tokens_per_s_per_gpu / rivals[0].tokens_per_s_per_gpu - 1
        lines.append(f"one step away, {rivals[today].label} is {gain:.1%} faster already: it lies outside of what was searched")
    taken: dict[int, list[str]] = {}
    for swing in swings:
        for leader, sign in zip((swing.leader_low, swing.leader_high), swing.ends, strict=True):
            if leader != today:
                taken.setdefault(leader, []).append(f"{swing.what} is {sign}")
    lines += [f"{rivals[leader].label} leads when {', or when '.join(when)}" for leader, when in taken.items()]
    if robust:
        one = rivals[robust]
        lines.append(
            f"recommended: {one.label}; it is within {BAND:.0%} of the fastest and falls behind by at most {one.worst_regret:.1%} under "
            f"any swing (the fastest by {rivals[0].worst_regret:.1%})"
        )
    else:
        lines.append(f"recommended: the winner; under no swing does it fall behind by more than {rivals[0].worst_regret:.1%}")
    return "\n".join(lines)
