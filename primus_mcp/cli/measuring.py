"""What `benchmark`, and `memory`, `performance` and `both` with --profiling-mode benchmark | both share: flags of measured runs, and the
table that puts simulate beside benchmark.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primus_mcp.cli.common import minutes, whole
from primus_mcp.errors import InputError
from primus_mcp.units import S_PER_MINUTE, bytes_to_gb, seconds_to_ms

if TYPE_CHECKING:
    from primus_mcp.evaluation.measured import BenchmarkSettings, Measured
    from primus_mcp.inputs.cluster_file import BenchmarkHost
    from primus_mcp.inputs.hardware import Cluster

SHOWN_MS, SHOWN_GB = 0.01, 0.0005
DEFAULT_REPEATS, DEFAULT_MINUTES = 20, 15.0
MAX_REPEATS = 10_000


def add_measuring_arguments(parser: argparse.ArgumentParser) -> None:
    """What to measure with, and the artefact."""
    parser.add_argument(
        "--benchmark-gpus", type=whole(1, 1024), metavar="N", help="GPUs of this host (default: of the cluster file, else 1)"
    )
    parser.add_argument("--benchmark-arch", metavar="GPU", help="the measured GPU, where it is not the target's")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu", help="cpu: gloo and plain torch, to try the path out")
    parser.add_argument(
        "--kernels", choices=("turbo", "te", "megatron-core", "torch"), help="kernels to measure with instead of the target's own"
    )
    parser.add_argument("--precision", choices=("bf16", "fp8"), default="bf16", help="number format of the linears, where the kernels can")
    parser.add_argument("--save-benchmark", type=Path, metavar="JSON", help="write the artefact (read first where it exists)")
    parser.add_argument(
        "--load-benchmark",
        type=Path,
        metavar="JSON",
        help="measure only what this artefact does not know; without a GPU (has_gpu false) nothing is measured and it has to do",
    )
    parser.add_argument(
        "--repeats",
        type=whole(3, MAX_REPEATS),
        default=DEFAULT_REPEATS,
        metavar="N",
        help="timed runs of each part (at least 3; default 20)",
    )
    parser.add_argument("--limit-minutes", type=minutes, default=DEFAULT_MINUTES, metavar="M", help="time limit of the run (default 15)")
    parser.add_argument("--force", action="store_true", help="use figures of another device: good for trying the path out only")


def measuring_settings(arguments: argparse.Namespace, host: BenchmarkHost | None, *, asked: bool = False) -> BenchmarkSettings:
    """What may be measured. `host`: of the cluster file, None where there is none. Without its permission, and without a flag that gives it
    (or a command that is nothing else, `asked`, where no file forbids it), only what --load-benchmark holds is used. Raises InputError with
    the remedy where there is none.
    """
    from primus_mcp.evaluation.evaluators import NO_GPU, NO_GPU_REMEDY
    from primus_mcp.evaluation.measured import BenchmarkSettings
    from primus_mcp.measurement.artefact import load
    from primus_mcp.measurement.measure import MeasureSettings
    from primus_mcp.measurement.residuals import cache_file

    granted = host.has_gpu if host is not None else asked
    allowed = granted or arguments.benchmark_gpus is not None or arguments.device == "cpu"
    known = load(arguments.load_benchmark) if arguments.load_benchmark else None
    if not allowed and known is None:
        remedy = f"{NO_GPU_REMEDY}; or say --benchmark-gpus N on a host that has them, or --load-benchmark FILE"
        raise InputError(NO_GPU if host is not None else "no GPU is named to measure on", where="--profiling-mode", remedy=remedy)
    measure = MeasureSettings(
        device=arguments.device,
        number=arguments.precision,
        limit_s=arguments.limit_minutes * S_PER_MINUTE,
        repeats=arguments.repeats,
        family=arguments.kernels,
    )
    return BenchmarkSettings(
        gpus=arguments.benchmark_gpus or (host.benchmark_gpus if host is not None else 0) or 1,
        benchmark_arch=arguments.benchmark_arch or (host.benchmark_arch if host is not None else None),
        both=True,
        measure=measure,
        known=known,
        store=arguments.save_benchmark,
        measures=allowed,
        force=arguments.force,
        residuals=(cache_file(),),
        progress=lambda text: print(text, file=sys.stderr),
    )


def source_document(found: Measured) -> dict[str, Any]:
    """What the figures come from."""
    return {
        "anchor": found.anchor.kind,
        "device": found.artefact.environment.model_dump(),
        "kernels": found.artefact.kernels,
        "factors": {
            part: {group: {key: asdict(factor)[key] for key in ("forward", "backward")} for group, factor in groups.items()}
            for part, groups in found.anchor.factors.items()
        },
        "reductions": found.plan.reductions,
        "notes": found.notes,
    }


def time_document(found: Measured) -> dict[str, Any]:
    """Time of both modes, ms."""
    from primus_mcp.evaluation.measured import deltas

    parts = deltas(found.simulated.time_breakdown_s, found.performance.time_breakdown_s)
    return {
        "iteration_ms": {"simulate": seconds_to_ms(found.simulated.iteration_s), "benchmark": seconds_to_ms(found.performance.iteration_s)},
        "tokens_per_s_per_gpu": {"simulate": found.simulated.tokens_per_s_per_gpu, "benchmark": found.performance.tokens_per_s_per_gpu},
        "time_ms": {name: {"simulate": seconds_to_ms(a), "benchmark": seconds_to_ms(b)} for name, a, b in parts},
    }


def memory_document(found: Measured) -> dict[str, Any]:
    """Memory of both modes, GB."""
    from primus_mcp.evaluation.measured import deltas

    parts = deltas(found.simulated_memory.worst.components, found.memory.worst.components)
    return {
        "memory_gb": {"simulate": bytes_to_gb(found.simulated_memory.device_bytes), "benchmark": bytes_to_gb(found.memory.device_bytes)},
        "memory_upper_gb": bytes_to_gb(found.memory.upper_bytes),
        "memory_components_gb": {name: {"simulate": bytes_to_gb(a), "benchmark": bytes_to_gb(b)} for name, a, b in parts},
    }


def source_lines(found: Measured) -> list[str]:
    """Device, kernels, anchor, what was left out."""
    environment = found.artefact.environment
    told = f"{environment.name} (device: {environment.device}), torch {environment.torch} {environment.runtime or ''}".rstrip()
    kernels = ", ".join(f"{name} {family}" for name, family in found.artefact.kernels.items())
    head = [f"measured on     {told}", f"kernels         {kernels}", f"anchor          {found.anchor.kind}"]
    return [*head, *(f"- {line}" for line in (*found.plan.reductions, *found.notes))]


def operator_document(found: Measured) -> list[dict[str, Any]]:
    """Forward and backward of each measured unit against the model of the measured device, ms, whatever was anchored."""
    return [
        {
            "operator": line.kind,
            "shape": line.key.partition(":")[2],
            "modelled_ms": seconds_to_ms(sum(line.terms_s.values())),
            "measured_ms": seconds_to_ms(line.measured_s),
        }
        for line in found.anchor.stored
    ]


def operator_lines(found: Measured) -> list[str]:
    """The same as a table; `model is`: by how much the model is off."""
    lines = [f"{'ms, forward and backward':32} {'modelled':>12} {'measured':>12} {'model is':>12}"]
    for unit in operator_document(found):
        modelled, measured = unit["modelled_ms"], unit["measured_ms"]
        lines.append(f"{unit['operator']:32} {modelled:12,.3f} {measured:12,.3f} {_off(modelled, measured):>12}")
    return lines


def time_lines(found: Measured) -> list[str]:
    """Every component of the iteration in both modes, with the difference."""
    from primus_mcp.evaluation.measured import comparison_lines, deltas
    from primus_mcp.reports.part_words import part_text

    lines = [f"{'ms an iteration':32} {'simulate':>12} {'benchmark':>12} {'difference':>12} {'simulate is':>12}"]
    for name, simulated, measured in deltas(found.simulated.time_breakdown_s, found.performance.time_breakdown_s):
        a, b = seconds_to_ms(simulated), seconds_to_ms(measured)
        if max(a, b) >= SHOWN_MS:
            lines.append(f"{part_text(name):32} {a:12,.2f} {b:12,.2f} {b - a:+12,.2f} {_off(a, b):>12}")
    throughput = f"throughput      {found.performance.tokens_per_s_per_gpu:,.0f} tokens/s/GPU"
    return [*lines, comparison_lines(found)[0], f"{throughput} ({found.simulated.tokens_per_s_per_gpu:,.0f} simulated)"]


def memory_lines(found: Measured, cluster: Cluster) -> list[str]:
    """Every component of the worst rank in both modes, with the difference and the verdict."""
    from primus_mcp.evaluation.measured import comparison_lines, deltas
    from primus_mcp.reports.part_words import part_text

    lines = [f"{'GB on the worst rank':32} {'simulate':>12} {'benchmark':>12} {'difference':>12}"]
    for name, simulated, measured in deltas(found.simulated_memory.worst.components, found.memory.worst.components):
        a, b = bytes_to_gb(simulated), bytes_to_gb(measured)
        if max(abs(a), abs(b)) >= SHOWN_GB:
            lines.append(f"{part_text(name):32} {a:12,.3f} {b:12,.3f} {b - a:+12,.3f}")
    return [*lines, comparison_lines(found)[1], f"memory          {found.memory.verdict_text(cluster)}"]


def _off(simulated: float, measured: float) -> str:
    return f"{simulated / measured - 1:+.0%}" if measured else "not measured"
