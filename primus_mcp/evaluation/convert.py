"""Projections (SI units) to the fields of a result (GB, ms)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from primus_mcp.evaluation.digest import plain
from primus_mcp.evaluation.result import ResultWarning
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.memory import WORDS, MemoryProjection
from primus_mcp.projection.performance import PerformanceProjection
from primus_mcp.units import bytes_to_gb, seconds_to_ms


def resolved_fields(config: TrainingConfig) -> dict[str, Any]:
    """The configuration as one flat mapping: recompute's fields get the prefix `recompute_`."""
    fields: dict[str, Any] = {}
    for name, value in plain(config).items():
        if name == "recompute":
            fields |= {f"recompute_{part}": item for part, item in value.items()}
        else:
            fields[name] = value
    return fields


def settings_changed(resolved: Mapping[str, Any], own: Mapping[str, Any]) -> int:
    """How many entries of a resolved configuration differ from those of the workload's own."""
    return sum(value != own.get(name) for name, value in resolved.items())


AT_EXPERT_LOAD = "memory_at_expert_load"
"""Code of the warning that says what a hotter expert rank needs."""
FITS_ONLY_BALANCED = "fits_only_balanced"
"""Code of the same warning where that rank fits less surely than the estimate at the first of those loads."""


def load_text(config: TrainingConfig, loads: Mapping[float, MemoryProjection], cluster: Cluster) -> str:
    """What the answer says about the balance of a mixture of experts."""
    priced = "forced to be balanced" if config.forced_balance else f"priced at {config.expert_load_imbalance:g} times the mean"
    found = [
        f"{bytes_to_gb(memory.device_bytes):.1f} GB at {load:g} times the mean ({memory.verdict(cluster)})"
        for load, memory in loads.items()
    ]
    return f"expert load is {priced}; with a hotter rank the worst one needs {', '.join(found)}"


def load_warning(
    config: TrainingConfig, memory: MemoryProjection, loads: Mapping[float, MemoryProjection], cluster: Cluster
) -> ResultWarning:
    """`load_text` as a warning; its code says whether the first of the loads changes the verdict."""
    own, hotter = (WORDS.index(found.verdict(cluster)) for found in (memory, loads[min(loads)]))
    return ResultWarning(code=FITS_ONLY_BALANCED if hotter < own else AT_EXPERT_LOAD, text=load_text(config, loads, cluster))


def memory_fields(memory: MemoryProjection, cluster: Cluster) -> dict[str, Any]:
    """Memory of the worst rank, its parts, every rank, and the verdict against the GPU itself."""
    worst = memory.worst
    return {
        "memory_per_gpu_gb": bytes_to_gb(memory.device_bytes),
        "param_optimizer_gb": bytes_to_gb(worst.param_optimizer_bytes),
        "activation_gb": bytes_to_gb(worst.activation_bytes),
        "memory_breakdown": {name: bytes_to_gb(size) for name, size in worst.components.items()},
        "per_rank_memory_gb": [bytes_to_gb(rank.device_bytes) for rank in memory.ranks],
        "memory_upper_gb": bytes_to_gb(memory.upper_bytes),
        "fits_physically": memory.fits(cluster.hbm_bytes),
        "warnings": [ResultWarning(code=caveat.code, text=caveat.text) for caveat in memory.caveats],
    }


def _ms(times: Mapping[str, float]) -> dict[str, float]:
    return {name: seconds_to_ms(time_s) for name, time_s in times.items()}


def performance_fields(performance: PerformanceProjection) -> dict[str, Any]:
    """Throughput, what the iteration is made of, and communication by collective with its total."""
    communication = _ms(performance.communication_s)
    return {
        "iteration_ms": seconds_to_ms(performance.iteration_s),
        "tokens_per_s_per_gpu": performance.tokens_per_s_per_gpu,
        "tflops_per_s_per_gpu": performance.tflops_per_s_per_gpu,
        "mfu": performance.mfu,
        "bubble_ratio": performance.bubble_ratio,
        "comm_breakdown": {**communication, "total": sum(communication.values())},
        "comm_exposed_ms": seconds_to_ms(sum(performance.exposed_s.values())),
        "time_breakdown": _ms(performance.time_breakdown_s),
        "source": "simulate",
        "backend": performance.backend,
        "warnings": [ResultWarning(code=code, text=text) for code, text in performance.warnings],
    }
