"""`--profiling-mode benchmark | both`: the projection anchored on layers that were measured on this host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from primus_mcp.errors import InputError
from primus_mcp.evaluation.accuracy import accuracy_of
from primus_mcp.evaluation.convert import memory_fields, performance_fields
from primus_mcp.evaluation.evaluators import NO_GPU, NO_GPU_REMEDY, FullEvaluator, Rules, over_margin
from primus_mcp.evaluation.result import EvaluationResult, Fidelity, ResultWarning
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.cluster_file import BenchmarkHost
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.measurement.anchor import Anchor, anchor_performance
from primus_mcp.measurement.artefact import Artefact, load, save, with_residuals
from primus_mcp.measurement.device_model import CPU_ARCH, require_same_device
from primus_mcp.measurement.launch import MeasurementError, Progress, run_job
from primus_mcp.measurement.measure import MeasureSettings, Runner, job_for, measure, ran_kernels, salvaged
from primus_mcp.measurement.memory import anchor_memory, memory_residuals
from primus_mcp.measurement.plan import ReducedRun, plan_reduced_run, wanted_kernels
from primus_mcp.measurement.residuals import FILE_NAME, cache_file, keep_residuals
from primus_mcp.projection.adapters import adapters_of
from primus_mcp.projection.memory import MemoryProjection, project_memory
from primus_mcp.projection.ops.backend import GemmBackend
from primus_mcp.projection.performance import PerformanceProjection, project_performance
from primus_mcp.projection.performance.exchange import trained_parameters
from primus_mcp.projection.placement import place
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.units import bytes_to_gb, seconds_to_ms

STORE_NAME = "benchmark.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkSettings:
    """What may be measured, and with what an artefact is shared. `store`: read where it exists, written after every measurement.

    `measures` False: nothing is, and shapes that `known` lacks take the factor of the nearest that it has. `force`: use figures of another
    device, which is good for trying the path only. `residuals`: files that keep measured against modelled times.
    """

    gpus: int
    benchmark_arch: str | None = None
    both: bool = False
    measure: MeasureSettings = field(default_factory=MeasureSettings)
    known: Artefact | None = None
    store: Path | None = None
    measures: bool = True
    force: bool = False
    residuals: tuple[Path, ...] = ()
    progress: Progress | None = None
    runner: Runner = run_job

    @classmethod
    def of_host(
        cls, host: BenchmarkHost, *, both: bool = False, store: Path | None = None, progress: Progress | None = None
    ) -> BenchmarkSettings:
        """From `available_for_benchmark` of a cluster file; residuals gather in the user's cache."""
        return cls(
            gpus=host.benchmark_gpus,
            benchmark_arch=host.benchmark_arch,
            both=both,
            store=store,
            residuals=(cache_file(),),
            progress=progress,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One configuration, measured and projected. `simulated` is the same projection without the anchor; `unsaved` says why the
    artefact is in no file, though one was wanted.
    """

    plan: ReducedRun
    artefact: Artefact
    anchor: Anchor
    memory: MemoryProjection
    simulated_memory: MemoryProjection
    performance: PerformanceProjection
    simulated: PerformanceProjection
    notes: tuple[str, ...]
    unsaved: str | None = None


def plan_for(arch: Architecture, config: TrainingConfig, cluster: Cluster, gpus: int) -> ReducedRun:
    """The reduced run of a configuration, with the gradient exchange of its largest pipeline rank where there is one."""
    placement = place(arch, config, cluster.world_size)
    gradients = 0
    if placement.dp * config.cp > 1:
        adapters = adapters_of(config)
        held = (trained_parameters(arch, placement.of_rank(i), config.tp, config.ep, config.etp, adapters) for i in range(placement.pp))
        gradients = max(parameters.dense for parameters in held)
    return plan_reduced_run(arch, config, gpus=gpus, gradients=gradients)


def measured_projection(
    arch: Architecture, config: TrainingConfig, cluster: Cluster, settings: BenchmarkSettings, *, backend: GemmBackend = "auto"
) -> Measured:
    """Measure what is not known yet, anchor both projections. Raises MeasurementError, and InputError for figures of another device."""
    if settings.measure.device == "cpu" and cluster.gpu.arch != CPU_ARCH and not settings.force:
        remedy = "measure on the GPU, or force it to try the path out"
        raise InputError(f"figures of device: cpu do not anchor a {cluster.gpu.name}", where="measured run", remedy=remedy)
    known = settings.known
    if known is None and settings.store is not None and settings.store.exists():
        known = load(settings.store)
    if known is None and not settings.measures:
        raise InputError(NO_GPU, where="measured run", remedy=f"{NO_GPU_REMEDY}; or give measured figures with --load-benchmark")
    gpus = settings.gpus if settings.measures or known is None else max(known.ranks, *(transfer.ranks for transfer in known.transfers), 1)
    plan = plan_for(arch, config, cluster, gpus)
    store = settings.store
    asked = ran_kernels(plan.kernels, known.environment.device, settings.measure.family) if known is not None else None
    if known is not None and known.wanted != asked and settings.measures:
        known, store = None, None  # other kernels: measured apart, never mixed into one artefact
    if known is not None:
        require_same_device(known, cluster, benchmark_arch=settings.benchmark_arch, force=settings.force)
    chosen = settings.measure if known is None else replace(settings.measure, device=known.environment.device, number=known.number)
    measured_new = settings.measures and job_for(plan, known, chosen) is not None
    artefact = _measured(plan, known, chosen, settings, store) if settings.measures else known
    assert artefact is not None
    warnings = require_same_device(artefact, cluster, benchmark_arch=settings.benchmark_arch, force=settings.force)
    anchor = anchor_performance(arch, config, cluster, artefact, plan, backend=backend, carry=not settings.measures)
    artefact = with_residuals(artefact, anchor.residuals)
    unsaved = _save(artefact, store) if store is not None and measured_new else None
    kept = _keep(anchor, settings.residuals) if measured_new else ()
    memory = project_memory(arch, config, cluster)
    return Measured(
        plan=plan,
        artefact=artefact,
        anchor=anchor,
        memory=anchor_memory(memory, memory_residuals(arch, config, artefact), anchor.kind),
        simulated_memory=memory,
        performance=project_performance(arch, config, cluster, gemm_backend=backend, measured=anchor.measured),
        simulated=project_performance(arch, config, cluster, gemm_backend=backend),
        notes=(*warnings, *anchor.notes, *kept, *((unsaved,) if unsaved else ())),
        unsaved=unsaved,
    )


def _save(artefact: Artefact, store: Path) -> str | None:
    """Why the artefact could not be written, None where it was: the figures of a measured run are not lost for a full disk."""
    try:
        save(artefact, store)
    except InputError as error:
        return f"the artefact is not kept: {error}"
    return None


def _keep(anchor: Anchor, files: tuple[Path, ...]) -> tuple[str, ...]:
    """Residuals to their files; what could not be written is a note, the figures are not lost for it."""
    told = []
    for path in files:
        try:
            keep_residuals(anchor.stored, path)
        except InputError as error:
            told.append(f"residuals are not kept: {error}")
    return tuple(told)


def _measured(
    plan: ReducedRun, known: Artefact | None, chosen: MeasureSettings, settings: BenchmarkSettings, store: Path | None
) -> Artefact:
    """What the plan needs. Raises MeasurementError; what a run had measured before it ended is in the store first."""
    try:
        return measure(plan, known, chosen, progress=settings.progress, runner=settings.runner)
    except MeasurementError as error:
        kept = salvaged(error, plan, known, chosen)
        if kept is None or store is None:
            raise
        save(kept, store)
        text = f"{error}; {len(kept.units)} measured parts are in {store}: run again to measure the rest"
        raise MeasurementError(error.failure, text) from error


def deltas(simulated: Mapping[str, float], measured: Mapping[str, float]) -> tuple[tuple[str, float, float], ...]:
    """(component, simulated, measured) of every component of either, largest measured first."""
    names = sorted({*simulated, *measured}, key=lambda name: -measured.get(name, 0.0))
    return tuple((name, simulated.get(name, 0.0), measured.get(name, 0.0)) for name in names)


def comparison_lines(found: Measured) -> tuple[str, str]:
    """Time and memory of both modes in one line each; the error is simulate's."""
    simulated, measured = found.simulated.iteration_s, found.performance.iteration_s
    small, large = found.simulated_memory.device_bytes, found.memory.device_bytes
    times = f"simulate {seconds_to_ms(simulated):.1f} ms, benchmark {seconds_to_ms(measured):.1f} ms"
    sizes = f"simulate {bytes_to_gb(small):.2f} GB, benchmark {bytes_to_gb(large):.2f} GB"
    return f"iteration: {times} ({simulated / measured - 1:+.1%})", f"memory: {sizes} ({small / large - 1:+.1%})"


def _anchor_warnings(found: Measured, *, both: bool) -> list[ResultWarning]:
    environment = found.artefact.environment
    told = {
        "kernels": "measured layers replace modelled ones",
        "reference-kernels": "measured on other kernels than the target runs: memory and ratios across shapes only, times are the model's",
    }[found.anchor.kind]
    texts = [
        ("anchor", f"anchor: {found.anchor.kind}, {told} (device: {environment.device}, {environment.name}, torch {environment.torch})")
    ]
    texts += [("benchmark_note", note) for note in found.notes]
    texts += [("reduced_run", note) for note in found.plan.reductions]
    if both:
        texts += [("simulate_against_benchmark", line) for line in comparison_lines(found)]
    return [ResultWarning(code=code, text=text) for code, text in texts]


class MeasuredEvaluator(FullEvaluator):
    """Rules and analytic memory first; what passes is measured, then projected. One artefact serves all trials of an evaluator."""

    fidelity: Fidelity = "benchmark"
    measures = True

    def __init__(self, rules: Rules, settings: BenchmarkSettings, *, gemm_backend: GemmBackend = "auto") -> None:
        super().__init__(rules, gemm_backend=gemm_backend)
        if settings.gpus < 1 and settings.measures and settings.known is None:
            raise InputError(
                "is 0: nothing may be measured", where="available_for_benchmark.benchmark_gpus", remedy="set it to the GPUs of this host"
            )
        self._settings = settings
        self.measures = settings.measures
        self._known: dict[frozenset[tuple[str, str]], Artefact] = {}

    def keep_in(self, folder: Path) -> None:
        """Measured layers and residuals lie in the out-dir, unless --save-benchmark names another file for the layers."""
        settings = self._settings
        residuals = dict.fromkeys((*settings.residuals, folder / FILE_NAME))
        self._settings = replace(settings, store=settings.store or folder / STORE_NAME, residuals=tuple(residuals))

    def starts_a_run(self, trial: TrialConfig, *, single: bool = False) -> bool:
        """Nor does what exceeds the memory cap by analysis."""
        return super().starts_a_run(trial, single=single) and bool(self.evaluate_memory_only(trial, single=single).within_margin)

    @property
    def identity(self) -> str:
        """Measured numbers are not simulated ones."""
        return f"{super().identity}/benchmark"

    def price(self, trial: TrialConfig, config: TrainingConfig, *, even_if_over: bool = False) -> EvaluationResult:
        """Raises MeasurementError where nothing could be measured; out of memory in the measured run is a result."""
        arch = self.workload.architecture
        placement = place(arch, config, self.cluster.world_size)
        fields, reason = self._memory(config)
        if reason is not None and not even_if_over:
            return self.result(trial, config, placement, **fields)
        kernels = frozenset(wanted_kernels(config).items())
        settings = replace(self._settings, known=self._known.get(kernels, self._settings.known))
        try:
            found = measured_projection(arch, config, self.cluster, settings, backend=self.gemm_backend)
        except MeasurementError as error:
            if error.failure != "out_of_memory":
                raise
            fields |= {"within_margin": False, "fits_physically": "does_not_fit", "reason": str(error), "source": "benchmark"}
            return self.result(trial, config, placement, **fields)
        self._known[kernels] = found.artefact
        return self._told(self.result(trial, config, placement, **self._fields(found)), found)

    def _fields(self, found: Measured) -> dict[str, Any]:
        fields = memory_fields(found.memory, self.cluster)
        reason = over_margin(self.cluster, found.memory.device_bytes)
        timing = performance_fields(found.performance)
        warnings = [*_anchor_warnings(found, both=self._settings.both), *fields["warnings"], *timing["warnings"]]
        source = "both" if self._settings.both else "benchmark"
        return {**fields, **timing, "within_margin": reason is None, "reason": reason, "warnings": warnings, "source": source}

    def _told(self, result: EvaluationResult, found: Measured) -> EvaluationResult:
        """Reference kernels, and shapes that were not measured themselves, keep the confidence and the class of the analytic projection."""
        if found.anchor.kind == "kernels" and not found.anchor.carried:
            return result
        confidence = accuracy_of("simulate", self.cluster.gpu.vendor, self.cluster.gpu.name).text
        return result.model_copy(update={"fidelity": "simulate", "confidence": confidence})
