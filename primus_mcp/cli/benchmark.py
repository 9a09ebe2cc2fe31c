"""`primus-mcp benchmark`: measure the layers of one configuration on this host, and project it from there."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primus_mcp.cli.common import (
    add_cluster_arguments,
    add_engine_arguments,
    add_workload_arguments,
    knob_values,
    positive_count,
    positive_number,
)
from primus_mcp.errors import InputError

if TYPE_CHECKING:
    from primus_mcp.evaluation.measured import BenchmarkSettings, Measured
    from primus_mcp.inputs.hardware import Cluster
    from primus_mcp.inputs.training import TrainingConfig
    from primus_mcp.measurement.plan import ReducedRun

SHOWN_MS = 0.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Workload, cluster, knobs, what to measure with, the artefact."""
    add_workload_arguments(parser)
    add_cluster_arguments(parser)
    add_engine_arguments(parser)
    parser.add_argument("--set", action="append", metavar="KNOB=VALUE", help="one knob (repeatable); what is not set is the workload's own")
    parser.add_argument(
        "--benchmark-gpus", type=positive_count, metavar="N", help="GPUs of this host (default: of the cluster file, else 1)"
    )
    parser.add_argument("--benchmark-arch", metavar="GPU", help="the measured GPU, where it is not the target's")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu", help="cpu: gloo and plain torch, to try the path out")
    parser.add_argument("--precision", choices=("bf16", "fp8"), default="bf16", help="number format of the linears, where the kernels can")
    parser.add_argument("--save-benchmark", type=Path, metavar="JSON", help="write the artefact (read first where it exists)")
    parser.add_argument("--load-benchmark", type=Path, metavar="JSON", help="measure only what this artefact does not know")
    parser.add_argument("--repeats", type=positive_count, default=20, metavar="N", help="timed runs of each part (default 20, at least 3)")
    parser.add_argument("--limit-minutes", type=positive_number, default=15.0, metavar="M", help="time limit of the run (default 15)")
    parser.add_argument("--force", action="store_true", help="use figures of another device: good for trying the path out only")
    parser.add_argument("--plan-only", action="store_true", help="say what would be measured, and stop")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _settings(arguments: argparse.Namespace, host_gpus: int, host_arch: str | None) -> BenchmarkSettings:
    from primus_mcp.evaluation.measured import BenchmarkSettings
    from primus_mcp.measurement.artefact import load
    from primus_mcp.measurement.measure import MeasureSettings

    if arguments.repeats < 3:
        raise InputError(f"{arguments.repeats} is less than 3", where="--repeats", remedy="give 3 or more")
    measure = MeasureSettings(
        device=arguments.device, number=arguments.precision, limit_s=arguments.limit_minutes * 60, repeats=arguments.repeats
    )
    return BenchmarkSettings(
        gpus=arguments.benchmark_gpus or host_gpus or 1,
        benchmark_arch=arguments.benchmark_arch or host_arch,
        both=True,
        measure=measure,
        known=load(arguments.load_benchmark) if arguments.load_benchmark else None,
        store=arguments.save_benchmark,
        force=arguments.force,
        progress=lambda text: print(text, file=sys.stderr),
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the plan, then simulate and benchmark side by side; exit 3 when it does not fit."""
    from primus_mcp.cli.main import EXIT_NOTHING_FITS, EXIT_OK
    from primus_mcp.cli.setup import resolve_problem
    from primus_mcp.evaluation.measured import measured_projection, plan_for
    from primus_mcp.space.parsing import parse_trial

    problem = resolve_problem(arguments)
    host = problem.target.benchmark_host
    legality = problem.rules.check(parse_trial(knob_values(arguments.set, "--set")))
    if not legality.legal or legality.config is None:
        raise InputError(f"the configuration is illegal: {legality.reason}", where="--set")
    arch, config, cluster = problem.workload.architecture, legality.config, problem.target.cluster
    settings = _settings(arguments, host.benchmark_gpus, host.benchmark_arch)
    if arguments.plan_only:
        _print_plan(plan_for(arch, config, cluster, settings.gpus), as_json=arguments.json)
        return EXIT_OK
    found = measured_projection(arch, config, cluster, settings, backend=arguments.gemm_backend)
    if arguments.json:
        print(json.dumps(document(found, config), indent=2))
    else:
        _print(found, cluster)
    return EXIT_OK if found.memory.fits(cluster.hbm_bytes) != "does_not_fit" else EXIT_NOTHING_FITS


def _print_plan(plan: ReducedRun, *, as_json: bool) -> None:
    if as_json:
        names = {"ranks": plan.ranks, "kernels": plan.kernels, "reductions": plan.reductions}
        print(json.dumps({**names, "units": [u.key for u in plan.units], "transfers": [t.key for t in plan.transfers]}, indent=2))
        return
    print(f"{plan.ranks} ranks; kernels of the target: {', '.join(f'{name} {family}' for name, family in plan.kernels.items())}")
    for line in (*plan.reductions, *(unit.key for unit in plan.units), *(transfer.key for transfer in plan.transfers)):
        print(f"- {line}")


def document(found: Measured, config: TrainingConfig) -> dict[str, Any]:
    """Everything as plain data: times in ms, memory in GB."""
    from primus_mcp.evaluation.measured import comparison_lines, deltas
    from primus_mcp.units import bytes_to_gb, seconds_to_ms

    parts = deltas(found.simulated.time_breakdown_s, found.performance.time_breakdown_s)
    memory = deltas(found.simulated_memory.worst.components, found.memory.worst.components)
    return {
        "anchor": found.anchor.kind,
        "device": found.artefact.environment.model_dump(),
        "kernels": found.artefact.kernels,
        "configuration": {name: getattr(config, name) for name in ("tp", "pp", "ep", "cp", "vpp", "mbs", "gbs")},
        "iteration_ms": {"simulate": seconds_to_ms(found.simulated.iteration_s), "benchmark": seconds_to_ms(found.performance.iteration_s)},
        "tokens_per_s_per_gpu": {"simulate": found.simulated.tokens_per_s_per_gpu, "benchmark": found.performance.tokens_per_s_per_gpu},
        "memory_gb": {"simulate": bytes_to_gb(found.simulated_memory.device_bytes), "benchmark": bytes_to_gb(found.memory.device_bytes)},
        "memory_upper_gb": bytes_to_gb(found.memory.upper_bytes),
        "time_ms": {name: {"simulate": seconds_to_ms(a), "benchmark": seconds_to_ms(b)} for name, a, b in parts},
        "memory_components_gb": {name: {"simulate": bytes_to_gb(a), "benchmark": bytes_to_gb(b)} for name, a, b in memory},
        "factors": {part: {group: asdict(factor) for group, factor in groups.items()} for part, groups in found.anchor.factors.items()},
        "reductions": found.plan.reductions,
        "notes": found.notes,
        "summary": comparison_lines(found),
    }


def _print(found: Measured, cluster: Cluster) -> None:
    from primus_mcp.evaluation.measured import comparison_lines, deltas
    from primus_mcp.units import bytes_to_gb, seconds_to_ms

    environment = found.artefact.environment
    print(
        f"measured on     {environment.name} (device: {environment.device}), torch {environment.torch} {environment.runtime or ''}".rstrip()
    )
    print(f"kernels         {', '.join(f'{name} {family}' for name, family in found.artefact.kernels.items())}")
    print(f"anchor          {found.anchor.kind}")
    for line in (*found.plan.reductions, *found.notes):
        print(f"- {line}")
    print(f"\n{'ms an iteration':32} {'simulate':>12} {'benchmark':>12} {'simulate is':>12}")
    for name, simulated, measured in deltas(found.simulated.time_breakdown_s, found.performance.time_breakdown_s):
        if max(simulated, measured) * 1000 >= SHOWN_MS:
            print(f"{name:32} {seconds_to_ms(simulated):12,.2f} {seconds_to_ms(measured):12,.2f} {_off(simulated, measured):>12}")
    print(f"\n{'GB on the worst rank':32} {'simulate':>12} {'benchmark':>12}")
    for name, simulated, measured in deltas(found.simulated_memory.worst.components, found.memory.worst.components):
        print(f"{name:32} {bytes_to_gb(simulated):12,.3f} {bytes_to_gb(measured):12,.3f}")
    print("")
    print("\n".join(comparison_lines(found)))
    verdict = found.memory.fits(cluster.hbm_bytes).replace("_", " ")
    print(f"throughput      {found.performance.tokens_per_s_per_gpu:,.0f} tokens/s/GPU")
    print(f"memory          at most {bytes_to_gb(found.memory.upper_bytes):.1f} GB: {verdict}")


def _off(simulated: float, measured: float) -> str:
    return f"{simulated / measured - 1:+.0%}" if measured else "not measured"
