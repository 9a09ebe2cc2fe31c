"""`primus-mcp sweep`: the optimum of the whole legal space, proven under the model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from primus_mcp.cli.common import (
    MAX_LISTED,
    add_engine_arguments,
    add_workload_arguments,
    job_count,
    listed,
    listed_gpus,
    listed_nodes,
    new_folder,
    positive_count,
    positive_number,
    whole,
)
from primus_mcp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from primus_mcp.cli.setup import Problem
    from primus_mcp.search.pareto import FrontPoint
    from primus_mcp.search.sensitivity import Sensitivity
    from primus_mcp.search.sweep_result import SweepResult
    from primus_mcp.trials.storage import RunDirectory


MAX_TOP = 1000
"""Configurations that are shown: each is priced by itself."""
CACHED = 10
"""Configurations of earlier runs that are priced first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Workload, clusters, what may move, conditions."""
    add_workload_arguments(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--target-cluster", type=Path, metavar="YAML", help="target-cluster YAML")
    source.add_argument("--gpu", metavar="NAME[,NAME]", help="GPUs of the catalogue, each swept (see `primus-mcp gpus`)")
    parser.add_argument("--nodes", metavar="N[,N]", help="numbers of nodes, each swept (default: the cluster file's, else 1)")
    parser.add_argument("--gpus-per-node", type=positive_count, metavar="N", help="GPUs a node, with --gpu (default 8)")
    parser.add_argument("--axes", metavar="KNOB[,KNOB]", help="only these knobs move; the others are the workload's own (default: all)")
    parser.add_argument("--gbs-axis", action="store_true", help="let the global batch size move too (1/2, 1, 2, 4 x)")
    parser.add_argument("--overlap-axis", action="store_true", help="let the data-parallel overlap switches move too")
    parser.add_argument("--where", metavar="CONDITION", help='for example "tp<=8 and memory_per_gpu_gb<200"')
    parser.add_argument("--pin", action="append", metavar="KNOB=VALUE", help="hold a knob at a value (repeatable)")
    parser.add_argument(
        "--top", type=whole(1, MAX_TOP), default=10, metavar="K", help=f"configurations to show (default 10, at most {MAX_TOP:,})"
    )
    parser.add_argument(
        "--front", action="store_true", help="also the fastest configuration under ever less memory, and what cannot be beaten"
    )
    parser.add_argument(
        "--sensitivity", action="store_true", help="how sure the winner is: one step on each knob, each rate off by --swing"
    )
    parser.add_argument("--swing", type=positive_number, metavar="PERCENT", help="with --sensitivity: 1 to 50 (default 20)")
    parser.add_argument("--target-tokens", metavar="N", help="tokens to train, for example 1T: days and dollars of each configuration")
    parser.add_argument("--deadline", metavar="DAYS", help="for example 30d, with --target-tokens: how many of the swept nodes it takes")
    parser.add_argument(
        "--usd-per-gpu-hour", type=positive_number, metavar="X", help="your price (default: the cluster file's, else published quotes)"
    )
    parser.add_argument("--out-dir", type=new_folder, metavar="DIR", help="write sweep.json, report.html and the winner's YAML there")
    parser.add_argument("--no-cache", action="store_true", help="neither start from what earlier runs found nor keep what this one finds")
    crew = parser.add_mutually_exclusive_group()
    crew.add_argument("--jobs", type=job_count, metavar="N", help="processes (default: one a core); the answer does not depend on it")
    crew.add_argument("--ray", metavar="ADDRESS", help="spread over a Ray cluster that runs already, for example auto (extra [ray])")
    parser.add_argument("--max-seconds", type=positive_count, metavar="S", help="stop after S seconds with what is known")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    add_engine_arguments(parser)


def problems(arguments: argparse.Namespace) -> list[Problem]:
    """One resolved problem a GPU and number of nodes."""
    from primus_mcp.cli.setup import resolve_problem

    gpus: list[str | None] = [None] if arguments.target_cluster is not None else list(listed_gpus(arguments.gpu, "--gpu"))
    sizes: list[int | None] = [None] if arguments.nodes is None else list(listed_nodes(arguments.nodes, "--nodes"))
    if len(gpus) * len(sizes) > MAX_LISTED:
        raise InputError(f"{len(gpus) * len(sizes):,} clusters are too many", where="--nodes", remedy=f"sweep at most {MAX_LISTED} at once")
    return [resolve_problem(argparse.Namespace(**{**vars(arguments), "gpu": gpu, "nodes": nodes})) for gpu in gpus for nodes in sizes]


def _only(arguments: argparse.Namespace) -> list[str] | None:
    return None if arguments.axes is None else listed(arguments.axes, "--axes")


def _widened(problem: Problem, arguments: argparse.Namespace) -> Problem:
    """The problem with the axes that a flag switches on."""
    from dataclasses import replace

    from primus_mcp.evaluation.evaluators import make_evaluator

    wanted = {"gbs": arguments.gbs_axis, "overlap_grad_reduce": arguments.overlap_axis}
    on = {name: True for name, asked in wanted.items() if asked}
    if not on:
        return problem
    rules = replace(problem.rules, axes={**problem.rules.axes, **on})
    return replace(problem, rules=rules, evaluator=make_evaluator(rules, gemm_backend=arguments.gemm_backend))


def sweep_one(problem: Problem, arguments: argparse.Namespace) -> SweepResult:
    """One sweep with a progress bar on stderr, from what earlier runs found."""
    from primus_mcp.cli.known import BestKnown
    from primus_mcp.cli.start import swept
    from primus_mcp.evaluation.evaluators import FullEvaluator
    from primus_mcp.search.sweep_tools import check_axes
    from primus_mcp.session import session_digests
    from primus_mcp.space.knobs import TrialConfig

    assert isinstance(problem.evaluator, FullEvaluator)
    check_axes(problem.evaluator, _only(arguments) or ())
    known = BestKnown(enabled=not arguments.no_cache)
    digests = session_digests(problem.workload, problem.target, problem.rules.pins)
    free = arguments.axes is None and not problem.rules.pins
    result = swept(
        problem.evaluator,
        quiet=False,
        seconds=arguments.max_seconds,
        jobs=arguments.jobs,
        ray=arguments.ray,
        levels=arguments.front,
        first=[trial for trial, _ in known.proposals(digests, CACHED)] if free else [],
        only=_only(arguments),
        where=arguments.where,
        top=arguments.top,
        gemm_backend=arguments.gemm_backend,
    )
    entries = [(problem.evaluator.key(TrialConfig(**one.trial)), one.trial, one.result) for one in result.top]
    known.keep(digests, f"{result.workload} on {result.cluster}", entries)
    return result


def run(arguments: argparse.Namespace) -> int:
    """Sweep every cluster, print the answer over all of them and then the best of each; exit 3 when nothing fits, 4 when stopped early."""
    import json

    from primus_mcp.cli.codes import EXIT_NOTHING_FITS, EXIT_OK, EXIT_STOPPED_EARLY
    from primus_mcp.cli.setup import tell_notes
    from primus_mcp.cli.winner import keep_winner, winner_text
    from primus_mcp.reports.sweep_document import sweep_document
    from primus_mcp.reports.sweep_text import sensitivity_text, sweep_text

    tokens, days = _target(arguments)
    _swing(arguments)
    directory = _out_dir(arguments)
    asked = [_widened(problem, arguments) for problem in problems(arguments)]
    found: list[tuple[Problem, SweepResult, Sensitivity | None]] = []
    texts: list[str] = []
    for problem in asked:
        tell_notes(problem)
        result = sweep_one(problem, arguments)
        sure = _sensitivity(problem, result, arguments) if arguments.sensitivity and result.top else None
        found.append((problem, result, sure))
        parts = [sweep_text(result), *([f"{sensitivity_text(sure)}\n"] if sure else [])]
        texts.append("\n".join([*parts, winner_text(arguments, problem, result, directory, brief=len(asked) > 1)]))
        if result.stopped == "interrupted":
            break
    points = _points(found, arguments, tokens)
    wanted = arguments.json or directory is not None
    document = sweep_document([(problem.evaluator, result, sure) for problem, result, sure in found], points) if wanted else {}
    if arguments.json:
        print(json.dumps(document, indent=2))
    else:
        if arguments.front or tokens is not None or len(found) > 1:
            _print_front(points, tokens, days)
        print("\n".join(texts), end="")
    if directory is not None:
        for problem, result, _ in found:
            keep_winner(problem, result, directory)
        _write(directory, document)
    if any(result.stopped for _, result, _ in found):
        return EXIT_STOPPED_EARLY
    return EXIT_OK if any(result.top for _, result, _ in found) else EXIT_NOTHING_FITS


def _target(arguments: argparse.Namespace) -> tuple[float | None, float | None]:
    from primus_mcp.inputs.cluster_file import MAX_USD_PER_GPU_HOUR
    from primus_mcp.search.pareto import parse_days, parse_tokens

    if (arguments.usd_per_gpu_hour or 0.0) > MAX_USD_PER_GPU_HOUR:
        remedy = f"write USD for one GPU and one hour, at most {MAX_USD_PER_GPU_HOUR:,}"
        raise InputError(f"{arguments.usd_per_gpu_hour:g} is no price of a GPU hour", where="--usd-per-gpu-hour", remedy=remedy)
    if arguments.deadline is not None and arguments.target_tokens is None:
        raise InputError("is given without --target-tokens", where="--deadline", remedy="give both")
    tokens = None if arguments.target_tokens is None else parse_tokens(arguments.target_tokens)
    return tokens, None if arguments.deadline is None else parse_days(arguments.deadline)


def _sensitivity(problem: Problem, result: SweepResult, arguments: argparse.Namespace) -> Sensitivity:
    from primus_mcp.evaluation.evaluators import FullEvaluator
    from primus_mcp.search.sensitivity import sensitivity
    from primus_mcp.search.sweep_tools import asked_for
    from primus_mcp.space.knobs import TrialConfig

    assert isinstance(problem.evaluator, FullEvaluator)
    allowed = asked_for(problem.evaluator, _only(arguments) or (), arguments.where or "")
    centre, *rivals = (TrialConfig(**one.trial) for one in result.top)
    return sensitivity(
        problem.evaluator,
        centre,
        rivals=rivals[:4],
        allowed=allowed,
        gemm_backend=arguments.gemm_backend,
        ranges=True,
        swing=_swing(arguments),
    )


def _swing(arguments: argparse.Namespace) -> float:
    """The share that --swing says in percent. Raises InputError."""
    from primus_mcp.search.sensitivity import LEAST_SWING, MOST_SWING, SWING

    if arguments.swing is None:
        return SWING
    if not arguments.sensitivity:
        raise InputError("is given without --sensitivity", where="--swing", remedy="give both")
    share: float = arguments.swing / 100
    if not LEAST_SWING <= share <= MOST_SWING:
        wanted = f"write a percentage from {100 * LEAST_SWING:g} to {100 * MOST_SWING:g}"
        raise InputError(f"{arguments.swing:g} is no share of a rate", where="--swing", remedy=wanted)
    return share


def _points(found: Iterable[tuple[Problem, SweepResult, object]], arguments: argparse.Namespace, tokens: float | None) -> list[FrontPoint]:
    from primus_mcp.search.sweep_tools import cluster_points

    return [
        point
        for problem, result, _ in found
        for point in cluster_points(
            problem.evaluator, result, price=arguments.usd_per_gpu_hour or problem.target.price, target_tokens=tokens
        )
    ]


def _print_front(points: list[FrontPoint], tokens: float | None, days: float | None) -> None:
    from primus_mcp.reports.sweep_text import front_text
    from primus_mcp.search.pareto import deadline_text, pareto_front

    if tokens is not None and days is not None:
        print(deadline_text(points, tokens, days) + "\n")
    if points:
        print(front_text(pareto_front(points)) + "\n")


def _out_dir(arguments: argparse.Namespace) -> RunDirectory | None:
    """Made and locked once before the work, so that a folder that nothing can be written to is no surprise after it."""
    from primus_mcp.trials.storage import RunDirectory

    if arguments.out_dir is None:
        return None
    directory = RunDirectory(arguments.out_dir)
    with directory.locked():
        return directory


def _write(directory: RunDirectory, document: dict[str, object]) -> None:
    from primus_mcp.reports.sweep_document import keep_sweep, write_report

    keep_sweep(directory, document)
    print(f"report in {write_report(directory)}", file=sys.stderr)
