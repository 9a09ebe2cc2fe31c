"""From command-line arguments to what a search needs: workload, cluster, adapted baseline, evaluator."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from primus_mcp.cli.common import load_cluster, load_workload
from primus_mcp.evaluation.evaluators import Evaluator, Rules, make_evaluator
from primus_mcp.space.adapted import AdaptedBaseline, adapt_baseline
from primus_mcp.space.parsing import parse_pins

if TYPE_CHECKING:
    from primus_mcp.inputs.cluster import TargetCluster
    from primus_mcp.inputs.workload import Workload


TOLD = ("model-defaults", "differs-from-published", "mtp-without-layout")
"""Findings that change what the answer is about; `primus-mcp check` shows all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The resolved problem. `workload` is the adapted one, whose baseline runs on the cluster."""

    workload: Workload
    target: TargetCluster
    adapted: AdaptedBaseline
    rules: Rules
    evaluator: Evaluator
    notes: tuple[str, ...]


def axes_of(target: TargetCluster) -> dict[str, bool]:
    """The cluster file's axis toggles."""
    return dict(target.axes.model_dump())


def resolve_problem(arguments: argparse.Namespace, *, mode: str = "full", profiling_mode: str = "simulate") -> Problem:
    """Read both files, adapt the baseline, build the evaluator. Raises InputError."""
    original, target = load_workload(arguments), load_cluster(arguments)
    adapted = adapt_baseline(original, target.cluster, gbs=arguments.gbs, scale_gbs=arguments.scale_gbs)
    workload = adapted.workload
    rules = Rules(
        workload=workload,
        cluster=target.cluster,
        axes=axes_of(target),
        pins=parse_pins(getattr(arguments, "pin", None) or ()),
        allow_policy=arguments.allow_policy,
    )
    evaluator = make_evaluator(
        rules,
        mode=mode,  # type: ignore[arg-type]
        profiling_mode=profiling_mode,  # type: ignore[arg-type]
        has_gpu=target.benchmark_host.has_gpu,
        gemm_backend=arguments.gemm_backend,
    )
    return Problem(
        workload=workload,
        target=target,
        adapted=adapted,
        rules=rules,
        evaluator=evaluator,
        notes=(*(finding.text for finding in original.findings if finding.code in TOLD), *target.warnings, *adapted.lines),
    )


def tell_notes(problem: Problem) -> None:
    """What the user must know before the numbers, to stderr."""
    for line in problem.notes:
        print(f"note: {line}", file=sys.stderr)
