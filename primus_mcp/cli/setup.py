"""From command-line arguments to what a search needs: workload, cluster, adapted baseline, evaluator."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, cast

from primus_mcp.api import Problem, resolve
from primus_mcp.cli.common import load_cluster, load_workload
from primus_mcp.cli.evaluator_options import benchmark_settings, with_evaluator
from primus_mcp.space.parsing import parse_pins

if TYPE_CHECKING:
    from primus_mcp.evaluation.evaluators import Mode, ProfilingMode

__all__ = ["Problem", "resolve_problem", "tell_notes"]


def resolve_problem(
    arguments: argparse.Namespace, *, mode: str = "full", profiling_mode: str = "simulate", single: bool = False
) -> Problem:
    """Read both files, adapt the baseline, build the evaluator; of a `single` evaluation the trainer's rules alone. Raises InputError."""
    target = load_cluster(arguments)
    problem = resolve(
        load_workload(arguments),
        target,
        gbs=arguments.gbs,
        scale_gbs=arguments.scale_gbs,
        pins=parse_pins(getattr(arguments, "pin", None) or ()),
        allow_policy=single or arguments.allow_policy,
        mode=cast("Mode", mode),
        profiling_mode=cast("ProfilingMode", profiling_mode),
        gemm_backend=arguments.gemm_backend,
        benchmark=benchmark_settings(arguments, target),
    )
    return with_evaluator(arguments, problem)


def tell_notes(problem: Problem) -> None:
    """What the user must know before the numbers, to stderr."""
    for line in problem.notes:
        print(f"note: {line}", file=sys.stderr)
