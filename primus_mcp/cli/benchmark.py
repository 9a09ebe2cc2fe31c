"""`primus-mcp benchmark`: measure the layers of one configuration on this host, and project it from there."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from primus_mcp.cli.common import add_cluster_arguments, add_engine_arguments, add_workload_arguments, knob_values
from primus_mcp.cli.measuring import (
    add_measuring_arguments,
    measuring_settings,
    memory_document,
    memory_lines,
    operator_document,
    operator_lines,
    source_document,
    source_lines,
    time_document,
    time_lines,
)
from primus_mcp.errors import InputError, NothingLegalError

if TYPE_CHECKING:
    from primus_mcp.evaluation.measured import Measured
    from primus_mcp.inputs.hardware import Cluster
    from primus_mcp.inputs.training import TrainingConfig
    from primus_mcp.measurement.plan import ReducedRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Workload, cluster, knobs, what to measure with, the artefact."""
    add_workload_arguments(parser)
    add_cluster_arguments(parser)
    add_engine_arguments(parser)
    parser.add_argument("--set", action="append", metavar="KNOB=VALUE", help="one knob (repeatable); what is not set is the workload's own")
    add_measuring_arguments(parser)
    parser.add_argument("--plan-only", action="store_true", help="say what would be measured, and stop")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Print the plan, then simulate and benchmark side by side; the exit code is the verdict's."""
    from primus_mcp.cli.codes import EXIT_OK, verdict_code
    from primus_mcp.cli.setup import resolve_problem
    from primus_mcp.evaluation.measured import measured_projection, plan_for
    from primus_mcp.space.parsing import parse_trial

    problem = resolve_problem(arguments)
    legality = problem.rules.check(parse_trial(knob_values(arguments.set, "--set")))
    if not legality.legal or legality.config is None:
        raise NothingLegalError(f"the configuration is illegal: {legality.reason}", where="--set")
    arch, config, cluster = problem.workload.architecture, legality.config, problem.target.cluster
    host = problem.target.benchmark_host if arguments.target_cluster is not None else None
    if arguments.plan_only:
        gpus = arguments.benchmark_gpus or (host.benchmark_gpus if host is not None else 0) or 1
        _print_plan(plan_for(arch, config, cluster, gpus), as_json=arguments.json)
        return EXIT_OK
    settings = measuring_settings(arguments, host, asked=True)
    found = measured_projection(arch, config, cluster, settings, backend=arguments.gemm_backend)
    if arguments.json:
        print(json.dumps(document(found, config), indent=2))
    else:
        _print(found, cluster)
    if found.unsaved is not None:
        raise InputError(found.unsaved, where="--save-benchmark")
    return verdict_code([found.memory.verdict(cluster)])


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
    from primus_mcp.evaluation.measured import comparison_lines

    degrees = {name: getattr(config, name) for name in ("tp", "pp", "ep", "cp", "vpp", "mbs", "gbs")}
    parts = {**source_document(found), "operators": operator_document(found), **time_document(found), **memory_document(found)}
    return {"configuration": degrees, **parts, "summary": comparison_lines(found)}


def _print(found: Measured, cluster: Cluster) -> None:
    for line in (*source_lines(found), "", *operator_lines(found), "", *time_lines(found), "", *memory_lines(found, cluster)):
        print(line)
