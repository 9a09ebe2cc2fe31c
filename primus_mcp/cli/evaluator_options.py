"""The flags that choose who prices a configuration: our projection, one anchored on measured layers, or Primus's own."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from primus_mcp.errors import InputError

if TYPE_CHECKING:
    from primus_mcp.api import Problem
    from primus_mcp.evaluation.measured import BenchmarkSettings
    from primus_mcp.inputs.cluster import TargetCluster


def add_evaluator_arguments(parser: argparse.ArgumentParser) -> None:
    """--profiling-mode, --evaluator and the artefact of measured runs."""
    parser.add_argument(
        "--profiling-mode",
        choices=("simulate", "benchmark", "both"),
        default="simulate",
        help="analytic, or anchored on layers measured on this host (both: with the difference)",
    )
    parser.add_argument("--save-benchmark", type=Path, metavar="JSON", help="keep measured layers here (read first where it exists)")
    parser.add_argument("--load-benchmark", type=Path, metavar="JSON", help="measure only what this artefact does not know")
    parser.add_argument(
        "--evaluator",
        choices=("projection", "primus"),
        default="projection",
        help="primus: the projection of the checkout in --primus-root",
    )


def require_no_artefact(arguments: argparse.Namespace) -> None:
    """Measured layers change nothing where nothing is anchored on them. Raises InputError for a flag that would be passed over."""
    for name in ("load_benchmark", "save_benchmark"):
        if getattr(arguments, name, None) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise InputError("goes with measured layers only", where=flag, remedy="add --profiling-mode benchmark or both, or leave it out")


def benchmark_settings(arguments: argparse.Namespace, target: TargetCluster) -> BenchmarkSettings | None:
    """What measured runs may use; None where nothing is measured, and for `benchmark`, which has no mode and settings of its own."""
    mode = getattr(arguments, "profiling_mode", None)
    if mode == "simulate":
        require_no_artefact(arguments)
    if mode in (None, "simulate"):
        return None
    from primus_mcp.evaluation.measured import BenchmarkSettings
    from primus_mcp.measurement.artefact import load

    told = BenchmarkSettings.of_host(
        target.benchmark_host, store=arguments.save_benchmark, progress=lambda text: print(f"measuring: {text}", file=sys.stderr)
    )
    return replace(told, known=load(arguments.load_benchmark)) if arguments.load_benchmark else told


def with_evaluator(arguments: argparse.Namespace, problem: Problem) -> Problem:
    """The problem, priced by Primus where --evaluator says so. Raises InputError without a checkout."""
    if getattr(arguments, "evaluator", "projection") != "primus":
        return problem
    if arguments.primus_root is None:
        raise InputError("needs a checkout", where="--evaluator primus", remedy="name one with --primus-root")
    from primus_mcp.evaluation.primus_cli import PrimusEvaluator, PrimusSettings

    profiling, host = arguments.profiling_mode, problem.target.benchmark_host
    if profiling == "both":
        raise InputError("is not known to Primus as evaluator", where="--profiling-mode both", remedy="use simulate or benchmark")
    if profiling == "benchmark" and not (host.has_gpu and host.benchmark_gpus):
        raise InputError("needs has_gpu: true and benchmark_gpus in the cluster file", where="--profiling-mode benchmark")
    settings = PrimusSettings(
        root=arguments.primus_root,
        profiling=profiling,
        gpus=max(1, host.benchmark_gpus),
        hardware_config=problem.target.hardware_config_path,
    )
    return replace(problem, evaluator=PrimusEvaluator(problem.rules, settings))
