"""Measures what an artefact does not know yet."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from primus_mcp.measurement.artefact import Artefact, from_reports, merged
from primus_mcp.measurement.job import DeviceKind, Job, Kernels, Number, RankReport
from primus_mcp.measurement.launch import Progress, run_job
from primus_mcp.measurement.plan import ReducedRun

LIMIT_S = 900.0
Runner = Callable[..., tuple[RankReport, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSettings:
    """How to measure. On the CPU: fp32, plain torch, one thread a rank."""

    device: DeviceKind = "gpu"
    number: Number = "bf16"
    limit_s: float = LIMIT_S
    repeats: int = 20
    warm_up: int = 5
    lock: Path | None = None


def ran_kernels(kernels: Kernels, device: DeviceKind) -> Kernels:
    """The CPU has plain torch only."""
    return kernels if device == "gpu" else dict.fromkeys(kernels, "torch")


def job_for(plan: ReducedRun, known: Artefact | None, settings: MeasureSettings) -> Job | None:
    """The part of a plan that is not measured yet; None: nothing is new."""
    units = tuple(unit for unit in plan.units if known is None or known.unit(unit.key) is None)
    transfers = tuple(transfer for transfer in plan.transfers if known is None or known.transfer(transfer.key) is None)
    if not units and not transfers:
        return None
    return Job(
        ranks=plan.ranks,
        device=settings.device,
        number="fp32" if settings.device == "cpu" else settings.number,
        kernels=ran_kernels(plan.kernels, settings.device),
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
