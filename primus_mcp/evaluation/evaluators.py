"""The evaluators behind `--mode`: cheapest sufficient first: rules, then memory, then time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from primus_mcp.evaluation import synthetic
from primus_mcp.evaluation.accuracy import accuracy_of
from primus_mcp.evaluation.convert import load_warning, memory_fields, performance_fields, resolved_fields, settings_changed
from primus_mcp.evaluation.digest import digest
from primus_mcp.evaluation.nearest import band_fields
from primus_mcp.evaluation.result import OUTSIDE_POLICY, EvaluationResult, Fidelity, ResultWarning
from primus_mcp.inputs.cluster_file import BenchmarkHost
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.inputs.workload import Workload
from primus_mcp.projection.memory import Fit, cache_note, memory_by_load, project_memory
from primus_mcp.projection.ops.backend import GemmBackend, gemm_model
from primus_mcp.projection.performance import project_performance
from primus_mcp.projection.placement import Placement, place
from primus_mcp.space.knobs import KnobValue, TrialConfig, set_knobs
from primus_mcp.space.legality import Legality, check_legality
from primus_mcp.space.notes import trial_findings
from primus_mcp.units import bytes_to_gb, seconds_to_ms
from primus_mcp.version import engine_version

if TYPE_CHECKING:
    from primus_mcp.evaluation.measured import BenchmarkSettings

Mode = Literal["dry", "memory-real", "full"]
ProfilingMode = Literal["simulate", "benchmark", "both"]
NO_GPU = "--profiling-mode benchmark but available_for_benchmark.has_gpu=false"
NO_GPU_REMEDY = "set has_gpu: true and benchmark_gpus in the target-cluster YAML, or use --profiling-mode simulate"
_LEGALITY_CACHE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What may be tried: the cluster, the axes that are off, the pinned knobs, and whether policy bounds are lifted."""

    workload: Workload
    cluster: Cluster
    axes: Mapping[str, bool]
    pins: Mapping[str, KnobValue]
    allow_policy: bool = False

    def check(self, trial: TrialConfig) -> Legality:
        """Legality of a trial. The workload as it is obeys the trainer's rules only."""
        lifted = self.allow_policy or set_knobs(trial) == {name: value for name, value in self.pins.items() if value is not None}
        return check_legality(self.workload, trial, self.cluster, allow_policy=lifted, axes=self.axes, pins=self.pins)

    def policy_warnings(self, trial: TrialConfig) -> list[ResultWarning]:
        """The bounds of the search that a trial is outside of, for whoever prices it all the same."""
        found = replace(self, allow_policy=False).check(trial).violations
        texts = [f"{violation.message}: tune and sweep leave this out" for violation in found if violation.kind == "policy"]
        return [ResultWarning(code=OUTSIDE_POLICY, text=text) for text in dict.fromkeys(texts)]


def with_policy_warnings(result: EvaluationResult, rules: Rules, trial: TrialConfig) -> EvaluationResult:
    """A legal result that also says which bounds of the search the trial is outside of."""
    found = rules.policy_warnings(trial) if result.legal else []
    return result.model_copy(update={"warnings": [*result.warnings, *found]}) if found else result


class Evaluator(ABC):
    """What all evaluators share: legality, keys, and the frame of a result."""

    mode: Mode
    fidelity: Fidelity
    measures = False
    gemm_backend: GemmBackend = "auto"

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.workload, self.cluster = rules.workload, rules.cluster
        self._own = resolved_fields(self.workload.baseline)
        self._check = lru_cache(maxsize=_LEGALITY_CACHE)(rules.check)

    @property
    def identity(self) -> str:
        """Mode and profile; a profile of other rates gives other numbers."""
        return f"{self.mode}/{self.cluster.profile.name}"

    def _single(self, trial: TrialConfig, legality: Legality) -> TrainingConfig | None:
        """What a single evaluation prices although the search's policy refuses it; None where the trainer refuses it."""
        lifted = replace(self.rules, allow_policy=True).check(trial) if not legality.legal and not self.rules.allow_policy else legality
        return lifted.config if lifted.legal else None

    def key(self, trial: TrialConfig, *, single: bool = False) -> str:
        """Digest of the resolved configuration; an illegal trial stands for itself, and one that only a `single` evaluation prices is
        another than the same in a search that allows it.
        """
        legality = self._check(trial)
        if legality.legal:
            return digest(self.identity, legality.config)
        if single and (config := self._single(trial, legality)) is not None:
            return digest(self.identity, OUTSIDE_POLICY, config)
        return digest(self.identity, "illegal", self.rules.allow_policy, set_knobs(trial))

    def evaluate(self, trial: TrialConfig, *, single: bool = False) -> EvaluationResult:
        """Rules, memory, time: as far as each allows the next. A `single` evaluation, which somebody asked for, obeys the trainer's rules
        only: what the search's policy refuses is priced, with a warning that keeps it from ever being the best.
        """
        legality = self._check(trial)
        if single and not legality.legal and (config := self._single(trial, legality)) is not None:
            return with_policy_warnings(self.price(trial, config), self.rules, trial)
        if not legality.legal:
            return self.refused(legality.reason or "illegal", legality.config, [found.rule for found in legality.violations])
        assert legality.config is not None
        return self.price(trial, legality.config)

    def fits(self, trial: TrialConfig) -> bool:
        """Whether a trial is legal and inside the memory margin, as cheaply as the mode can tell."""
        result = self.evaluate(trial)
        return result.legal and result.within_margin is not False

    def starts_a_run(self, trial: TrialConfig, *, single: bool = False) -> bool:
        """Whether pricing this trial measures something: what the rules refuse costs no measured run."""
        legality = self._check(trial)
        return self.measures and (legality.legal or (single and self._single(trial, legality) is not None))

    def refused(self, reason: str, config: TrainingConfig | None, rules: list[str]) -> EvaluationResult:
        """An illegal trial: the reason, and null for every number."""
        return EvaluationResult(
            legal=False,
            reason=reason,
            refused_by=list(dict.fromkeys(rules)),
            resolved=resolved_fields(config) if config is not None else None,
            fidelity=self.fidelity,
            engine_version=engine_version(),
        )

    def keep_in(self, folder: Path) -> None:  # noqa: B027
        """The session's out-dir, for what an evaluator keeps between trials: measured layers; the others keep nothing."""

    @abstractmethod
    def price(self, trial: TrialConfig, config: TrainingConfig, *, even_if_over: bool = False) -> EvaluationResult:
        """Price a legal trial that resolves to `config`; `even_if_over`: its time too when it needs more memory than the margin leaves."""

    def result(self, trial: TrialConfig, config: TrainingConfig, placement: Placement, **fields: Any) -> EvaluationResult:
        """A legal result around the numbers in `fields`."""
        findings = trial_findings(self.workload, trial, config)
        warnings = [*(ResultWarning(code=finding.code, text=finding.text) for finding in findings), *fields.pop("warnings", [])]
        resolved = resolved_fields(config)
        return EvaluationResult(
            legal=True,
            resolved=resolved,
            settings_changed=settings_changed(resolved, self._own),
            fidelity=self.fidelity,
            engine_version=engine_version(),
            profile=self.cluster.profile.name,
            dp=placement.dp,
            expert_dp=placement.expert_dp,
            micro_batches=placement.micro_batches,
            confidence=accuracy_of(self.fidelity, self.cluster.gpu.vendor, self.cluster.gpu.name).text,
            warnings=warnings,
            **fields,
        )

    def _iteration_ms(self, config: TrainingConfig, tokens_per_s_per_gpu: float) -> float:
        tokens = config.gbs * self.workload.architecture.seq_length
        return seconds_to_ms(tokens / (tokens_per_s_per_gpu * self.cluster.world_size))


def over_margin(cluster: Cluster, memory_bytes: float, fit: Fit | None = None) -> str | None:
    """The reason of a trial that needs more memory than the margin leaves, or None. `fit`: the verdict against the GPU."""
    if memory_bytes <= cluster.memory_cap_bytes:
        return None
    note = cache_note(fit, memory_bytes, cluster.hbm_bytes)
    return (
        f"needs {bytes_to_gb(memory_bytes):.1f} GB/GPU, {bytes_to_gb(memory_bytes - cluster.memory_cap_bytes):.1f} GB more than the cap of "
        f"{bytes_to_gb(cluster.memory_cap_bytes):.1f} GB (HBM {bytes_to_gb(cluster.hbm_bytes):.1f} GB x (1 - margin "
        f"{cluster.memory_safety_margin:g}))" + (f"; {note}" if note else "")
    )


class DryEvaluator(Evaluator):
    """Made-up numbers over real rules: exercises the search on any machine."""

    mode: Mode = "dry"
    fidelity: Fidelity = "synthetic"

    def price(self, trial: TrialConfig, config: TrainingConfig, *, even_if_over: bool = False) -> EvaluationResult:
        """Synthetic memory, and throughput when that is inside the margin."""
        arch, placement = self.workload.architecture, place(self.workload.architecture, config, self.cluster.world_size)
        states, activations = synthetic.synthetic_memory_bytes(arch, config, self.cluster)
        reason = over_margin(self.cluster, states + activations)
        fields: dict[str, Any] = {
            "memory_per_gpu_gb": bytes_to_gb(states + activations),
            "param_optimizer_gb": bytes_to_gb(states),
            "activation_gb": bytes_to_gb(activations),
            "within_margin": reason is None,
            "reason": reason,
        }
        if reason is None or even_if_over:
            tokens = synthetic.SYNTHETIC_TOKENS_PER_S * synthetic.relative_speed(config, placement.micro_batches)
            fields |= {"tokens_per_s_per_gpu": tokens, "iteration_ms": self._iteration_ms(config, tokens)}
        return self.result(trial, config, placement, **fields)


class MemoryRealEvaluator(Evaluator):
    """Projected memory, and a rule of thumb for throughput."""

    mode: Mode = "memory-real"
    fidelity: Fidelity = "heuristic"

    def price(self, trial: TrialConfig, config: TrainingConfig, *, even_if_over: bool = False) -> EvaluationResult:
        """Memory, and the heuristic when it is inside the margin."""
        arch, placement = self.workload.architecture, place(self.workload.architecture, config, self.cluster.world_size)
        fields, reason = self._memory(config)
        if reason is None or even_if_over:
            tokens = synthetic.heuristic_tokens_per_s(arch, config, self.cluster, placement.micro_batches)
            fields |= {"tokens_per_s_per_gpu": tokens, "iteration_ms": self._iteration_ms(config, tokens)}
        return self.result(trial, config, placement, **fields)

    def _memory(self, config: TrainingConfig) -> tuple[dict[str, Any], str | None]:
        memory = project_memory(self.workload.architecture, config, self.cluster)
        loads = memory_by_load(self.workload.architecture, config, self.cluster)
        reason = over_margin(self.cluster, memory.device_bytes, memory.fits(self.cluster.hbm_bytes))
        fields = {**memory_fields(memory, self.cluster), "within_margin": reason is None, "reason": reason}
        if loads:
            fields["memory_at_expert_load_gb"] = {f"{load:g}": bytes_to_gb(found.device_bytes) for load, found in loads.items()}
            fields["warnings"].append(load_warning(config, memory, loads, self.cluster))
        return fields, reason


class FullEvaluator(MemoryRealEvaluator):
    """Projected memory, then projected time."""

    mode: Mode = "full"
    fidelity: Fidelity = "simulate"

    def __init__(self, rules: Rules, *, gemm_backend: GemmBackend = "auto") -> None:
        super().__init__(rules)
        self.gemm_backend = gemm_backend
        self.backend_name = gemm_model(self.cluster, gemm_backend).name

    @property
    def identity(self) -> str:
        """Also the GEMM backend."""
        return f"{super().identity}/{self.backend_name}"

    def price(self, trial: TrialConfig, config: TrainingConfig, *, even_if_over: bool = False) -> EvaluationResult:
        """Memory, and time when it is inside the margin."""
        arch = self.workload.architecture
        fields, reason = self._memory(config)
        if reason is None or even_if_over:
            timing = performance_fields(project_performance(arch, config, self.cluster, gemm_backend=self.gemm_backend))
            codes = [warning.code for warning in timing["warnings"]]
            band = band_fields(arch, config, self.cluster, timing["tokens_per_s_per_gpu"], codes)
            fields |= {**timing, **band, "warnings": [*fields["warnings"], *timing["warnings"], *band["warnings"]]}
        return self.result(trial, config, place(arch, config, self.cluster.world_size), **fields)

    def fits(self, trial: TrialConfig) -> bool:
        """By memory alone."""
        legality = self._check(trial)
        if not legality.legal or legality.config is None:
            return False
        memory = project_memory(self.workload.architecture, legality.config, self.cluster)
        return memory.device_bytes <= self.cluster.memory_cap_bytes

    def evaluate_memory_only(self, trial: TrialConfig, *, single: bool = False) -> EvaluationResult:
        """The cheap first two steps: rules and memory."""
        legality = self._check(trial)
        config = legality.config if legality.legal else self._single(trial, legality) if single else None
        if config is None:
            return self.evaluate(trial)
        fields, _ = self._memory(config)
        found = self.result(trial, config, place(self.workload.architecture, config, self.cluster.world_size), **fields)
        return found if legality.legal else with_policy_warnings(found, self.rules, trial)


class BenchmarkRefused(FullEvaluator):
    """`--profiling-mode benchmark` without a GPU to measure on: every trial is illegal, with the remedy."""

    fidelity: Fidelity = "benchmark"

    def evaluate(self, trial: TrialConfig, *, single: bool = False) -> EvaluationResult:  # noqa: ARG002
        """The trial's own reasons and the missing GPU."""
        legality = self._check(trial)
        reasons = [reason for reason in (legality.reason, f"{NO_GPU}; {NO_GPU_REMEDY}") if reason]
        return self.refused("; ".join(reasons), legality.config, [*(found.rule for found in legality.violations), "no-benchmark-gpu"])

    def fits(self, trial: TrialConfig) -> bool:  # noqa: ARG002
        """Nothing does."""
        return False


def make_evaluator(
    rules: Rules,
    *,
    mode: Mode = "full",
    profiling_mode: ProfilingMode = "simulate",
    has_gpu: bool = False,
    gemm_backend: GemmBackend = "auto",
    benchmark: BenchmarkSettings | BenchmarkHost | None = None,
) -> Evaluator:
    """The evaluator of a run. `benchmark` says what measured runs may use: settings, or the host of a cluster file (None: one GPU).

    Without a GPU, figures that were measured before still anchor; nothing is measured then.
    """
    if mode == "dry":
        return DryEvaluator(rules)
    if mode == "memory-real":
        return MemoryRealEvaluator(rules)
    if profiling_mode == "simulate":
        return FullEvaluator(rules, gemm_backend=gemm_backend)
    known = None if benchmark is None or isinstance(benchmark, BenchmarkHost) else benchmark.known
    if not has_gpu and known is None:
        return BenchmarkRefused(rules, gemm_backend=gemm_backend)
    from primus_mcp.evaluation.measured import BenchmarkSettings, MeasuredEvaluator  # it extends this module

    settings = BenchmarkSettings.of_host(benchmark) if isinstance(benchmark, BenchmarkHost) else benchmark or BenchmarkSettings(gpus=1)
    settings = replace(settings, both=profiling_mode == "both", measures=has_gpu)
    return MeasuredEvaluator(rules, settings, gemm_backend=gemm_backend)
