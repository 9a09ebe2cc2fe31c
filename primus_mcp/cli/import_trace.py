"""`primus-mcp import-trace`: time by kind of kernel of a profiled run, and where it differs from the projection."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primus_mcp.cli.common import add_engine_arguments, add_model_sources, add_reading_arguments, knob_values, positive_count
from primus_mcp.errors import InputError, NothingLegalError
from primus_mcp.units import MB, seconds_to_ms

if TYPE_CHECKING:
    from primus_mcp.api import Problem
    from primus_mcp.measurement.calibration import Term
    from primus_mcp.measurement.trace import TraceSummary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The trace; and, to compare, the configuration that ran."""
    parser.add_argument("trace", type=Path, metavar="FILE", help="torch profiler JSON (also .gz) or rocprofv3 kernel CSV")
    parser.add_argument("--iterations", type=positive_count, default=1, metavar="N", help="training iterations in the trace (default 1)")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--workload", type=Path, metavar="YAML", help="compare with the projection of this workload")
    add_model_sources(source)
    add_reading_arguments(parser, vocab="the vocabulary that ran")
    parser.add_argument("--target-cluster", type=Path, metavar="YAML", help="the cluster that ran it")
    parser.add_argument("--gpu", metavar="NAME", help="or its GPU")
    parser.add_argument("--nodes", type=positive_count, metavar="N", help="nodes, with --gpu")
    parser.add_argument("--gpus-per-node", type=positive_count, metavar="N", help="GPUs a node, with --gpu")
    parser.add_argument("--set", action="append", metavar="KNOB=VALUE", help="one knob of the run (repeatable)")
    parser.add_argument("--save", type=Path, metavar="JSON", help="write measured over projected as a calibration, for `--calibration`")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    add_engine_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print kinds, idle and overlapped time, and the comparison."""
    from primus_mcp.cli.codes import EXIT_OK
    from primus_mcp.measurement.trace import read_trace, terms_of_trace

    summary = read_trace(arguments.trace)
    problem = _problem(arguments)
    projected = _projected(arguments, problem) if problem is not None else None
    measured = terms_of_trace(summary, arguments.iterations)
    if arguments.save is not None:
        _save(arguments, problem, measured, projected)
    if arguments.json:
        print(json.dumps(document(summary, arguments.iterations, measured, projected), indent=2))
    else:
        _print(summary, arguments.iterations, measured, projected)
    return EXIT_OK


def _problem(arguments: argparse.Namespace) -> Problem | None:
    if arguments.workload is None and arguments.model is None and arguments.hf is None:
        return None
    if arguments.target_cluster is None and arguments.gpu is None:
        raise InputError("is needed to compare with the projection", where="--target-cluster", remedy="or name the GPU with --gpu")
    from primus_mcp.cli.setup import resolve_problem

    return resolve_problem(arguments)


def _projected(arguments: argparse.Namespace, problem: Problem) -> dict[Term, float]:
    from primus_mcp.measurement.calibration import terms_of
    from primus_mcp.projection.performance import project_performance
    from primus_mcp.space.parsing import parse_trial

    legality = problem.rules.check(parse_trial(knob_values(arguments.set, "--set")))
    if not legality.legal or legality.config is None:
        raise NothingLegalError(f"the configuration is illegal: {legality.reason}", where="--set")
    arch, cluster = problem.workload.architecture, problem.target.cluster
    found = project_performance(arch, legality.config, cluster, gemm_backend=arguments.gemm_backend)
    return terms_of(found.time_breakdown_s)


def _save(arguments: argparse.Namespace, problem: Problem | None, measured: dict[Term, float], projected: dict[Term, float] | None) -> None:
    from primus_mcp.measurement.calibration import calibration_of_trace, save_calibration
    from primus_mcp.version import engine_version

    if problem is None or projected is None:
        remedy = "name what ran with --workload or --model, and --gpu or --target-cluster"
        raise InputError("needs a projection to compare with", where="--save", remedy=remedy)
    cluster = problem.target.cluster
    found = calibration_of_trace(
        measured, projected, name=arguments.trace.name, gpu=cluster.gpu.name, profile=cluster.profile.name, engine=engine_version()
    )
    save_calibration(found, arguments.save)


def document(summary: TraceSummary, iterations: int, measured: dict[Term, float], projected: dict[Term, float] | None) -> dict[str, Any]:
    """Plain data: ms an iteration."""
    kinds = [
        {
            "kind": kind.kind,
            "ms": seconds_to_ms(kind.time_s) / iterations,
            "kernels": kind.count / iterations,
            "sent_mb": kind.sent_bytes / MB / iterations,
            "top": [{"name": name[:120], "ms": seconds_to_ms(seconds) / iterations} for name, seconds in kind.top],
        }
        for kind in summary.kinds
    ]
    whole = {name: seconds_to_ms(seconds) / iterations for name, seconds in (("span_ms", summary.span_s), ("busy_ms", summary.busy_s))}
    terms = {
        term: {"measured_ms": seconds_to_ms(seconds), "projected_ms": None if projected is None else seconds_to_ms(projected[term])}
        for term, seconds in measured.items()
    }
    return {**whole, "overlapped_ms": seconds_to_ms(summary.overlapped_s) / iterations, "kinds": kinds, "terms": terms}


def _print(summary: TraceSummary, iterations: int, measured: dict[Term, float], projected: dict[Term, float] | None) -> None:
    print(
        f"{seconds_to_ms(summary.span_s) / iterations:,.2f} ms an iteration, {summary.busy_s / summary.span_s:.1%} busy"
        if summary.span_s
        else "no time"
    )
    for kind in summary.kinds:
        sent = f", {kind.sent_bytes / MB / iterations:,.1f} MB sent" if kind.sent_bytes else ""
        print(f"{kind.kind:16} {seconds_to_ms(kind.time_s) / iterations:12,.3f} ms {kind.count / iterations:10,.0f} kernels{sent}")
    print(f"{'overlapped':16} {seconds_to_ms(summary.overlapped_s) / iterations:12,.3f} ms of communication beside compute")
    if projected is None:
        return
    print(f"\n{'ms an iteration':20} {'measured':>12} {'projected':>12} {'difference':>12}")
    for term, seconds in sorted(measured.items(), key=lambda item: -abs(item[1] - projected[item[0]])):
        print(_line(term, seconds, projected[term]))
    print(_line("sum", sum(measured.values()), sum(projected.values())))


def _line(name: str, measured_s: float, projected_s: float) -> str:
    measured, projected = seconds_to_ms(measured_s), seconds_to_ms(projected_s)
    return f"{name:20} {measured:12,.2f} {projected:12,.2f} {measured - projected:+12,.2f}"
