"""The cluster record of the device that was measured, so that measured seconds can be set against modelled ones."""

from __future__ import annotations

from dataclasses import replace

from primus_mcp.errors import InputError
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.hardware_files import gpu_profile
from primus_mcp.measurement.artefact import Artefact

CPU_ARCH = "cpu"
_CPU_STANDS_ON = "mi300x"
"""A CPU has no rates in the catalogue. Ratios of measured over modelled absorb the difference; only shares inside a part are a GPU's."""


def cpu_cluster(ranks: int) -> Cluster:
    """A cluster of CPU processes: measured figures replace every time of it, so its own rates matter only as ratios."""
    gpu = replace(gpu_profile(_CPU_STANDS_ON), name=CPU_ARCH, arch=CPU_ARCH)
    return make_cluster(gpu, num_nodes=1, gpus_per_node=ranks, memory_safety_margin=0.0)


def device_cluster(artefact: Artefact) -> Cluster:
    """One node of the measured device. Raises InputError for a GPU that the catalogue does not know."""
    environment = artefact.environment
    if environment.device == "cpu":
        return cpu_cluster(artefact.ranks)
    if environment.gpu is None:
        problem = f"{environment.name} ({environment.arch}) is not in the catalogue: nothing to set its times against"
        raise InputError(problem, where="benchmark artefact", remedy="see `primus-mcp gpus`")
    return make_cluster(environment.gpu, num_nodes=1, gpus_per_node=artefact.ranks)


def require_same_device(artefact: Artefact, target: Cluster, *, benchmark_arch: str | None, force: bool) -> tuple[str, ...]:
    """Warnings about an artefact of another device than the target's GPU. Raises InputError unless it is the target's own, or
    `benchmark_arch` says that it is meant, or `force`.
    """
    environment = artefact.environment
    if environment.device == "cpu":
        if target.gpu.arch == CPU_ARCH:
            return ()
        problem = f"it was measured on device: cpu, the target is {target.gpu.name}"
        if not force:
            raise InputError(problem, where="benchmark artefact", remedy="measure on the GPU, or force it to try the path out")
        return (f"{problem}: forced, only ratios across shapes are used",)
    if environment.gpu == target.gpu.name:
        return ()
    told = f"it was measured on {environment.gpu or environment.name}, the target is {target.gpu.name}"
    meant = gpu_profile(benchmark_arch).name if benchmark_arch else None
    if meant is not None and meant == environment.gpu:
        return (f"{told}: measured over modelled is carried from one GPU to the other",)
    if force:
        return (f"{told}: forced",)
    remedy = "measure on the target's GPU, or set available_for_benchmark.benchmark_arch to the measured one"
    raise InputError(told, where="benchmark artefact", remedy=remedy)
