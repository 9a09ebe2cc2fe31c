"""Measures what an artefact does not know yet."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from primus_mcp.measurement.artefact import Artefact, from_reports, merged
from primus_mcp.measurement.job import DeviceKind, Family, Job, Kernels, Number, RankReport
from primus_mcp.measurement.launch import MeasurementError, Progress, run_job
from primus_mcp.measurement.plan import ReducedRun

LIMIT_S = 900.0
Runner = Callable[..., tuple[RankReport, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSettings:
    """How to measure. On the CPU: fp32, one thread a rank. `family`: of all kernels, instead of the target's."""

    device: DeviceKind = "gpu"
    number: Number = "bf16"
    limit_s: float = LIMIT_S
    repeats: int = 20
    warm_up: int = 5
    lock: Path | None = None
    family: Family | None = None


def ran_kernels(kernels: Kernels, device: DeviceKind, family: Family | None = None) -> Kernels:
    """Those that are asked for: the named family, or on a GPU the target's, on the CPU plain torch."""
    if family is not None:
        return dict.fromkeys(kernels, family)
    return kernels if device == "gpu" else dict.fromkeys(kernels, "torch")


def job_for(plan: ReducedRun, known: Artefact | None, settings: MeasureSettings) -> Job | None:
    """The part of a plan that is not measured yet, what failed before last; None: nothing is new."""
    failed = {failure.key for failure in known.failures} if known is not None else set()
    missing = (unit for unit in plan.units if known is None or known.unit(unit.key) is None)
    units = tuple(sorted(missing, key=lambda unit: unit.key in failed))
    transfers = tuple(transfer for transfer in plan.transfers if known is None or known.transfer(transfer.key) is None)
    if not units and not transfers:
        return None
    return Job(
        ranks=plan.ranks,
        device=settings.device,
        number="fp32" if settings.device == "cpu" else settings.number,
        kernels=ran_kernels(plan.kernels, settings.device, settings.family),
        units=units,
        transfers=transfers,
        warm_up=settings.warm_up,
        repeats=settings.repeats,
        limit_s=settings.limit_s,
        launcher_pid=os.getpid(),
    )


def measure(
    plan: ReducedRun,
    known: Artefact | None,
    settings: MeasureSettings,
    *,
    progress: Progress | None = None,
    runner: Runner = run_job,
) -> Artefact:
    """The artefact with everything that the plan needs. Raises MeasurementError, InputError for an artefact of another machine."""
    job = job_for(plan, known, settings)
    if job is None:
        assert known is not None
        return known
    reports = runner(job, progress=progress, lock=settings.lock)
    return merged(known, from_reports(reports, job))


def salvaged(error: MeasurementError, plan: ReducedRun, known: Artefact | None, settings: MeasureSettings) -> Artefact | None:
    """What a run that did not come to its end had measured, with what was known; None: nothing."""
    job = job_for(plan, known, settings)
    return merged(known, from_reports(error.partial, job)) if job is not None and error.partial else None
