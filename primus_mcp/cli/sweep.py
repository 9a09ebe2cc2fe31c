"""`primus-mcp sweep`: the optimum of the whole legal space, proven under the model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from primus_mcp.cli.common import add_engine_arguments, add_workload_arguments, positive_count
from primus_mcp.errors import InputError

if TYPE_CHECKING:
    from primus_mcp.cli.setup import Problem
    from primus_mcp.search.sweep_result import SweepResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Workload, clusters, what may move, conditions."""
    add_workload_arguments(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--target-cluster", type=Path, metavar="YAML", help="target-cluster YAML")
    source.add_argument("--gpu", metavar="NAME[,NAME]", help="GPUs of the catalogue, each swept (see `primus-mcp gpus`)")
    parser.add_argument("--nodes", metavar="N[,N]", help="numbers of nodes, each swept, with --gpu (default 1)")
    parser.add_argument("--gpus-per-node", type=positive_count, metavar="N", help="GPUs a node, with --gpu (default 8)")
    parser.add_argument("--axes", metavar="KNOB[,KNOB]", help="only these knobs move; the others are the workload's own (default: all)")
    parser.add_argument("--gbs-axis", action="store_true", help="let the global batch size move too (1/2, 1, 2, 4 x)")
    parser.add_argument("--overlap-axis", action="store_true", help="let the data-parallel overlap switches move too")
    parser.add_argument("--where", metavar="CONDITION", help='for example "tp<=8 and memory_per_gpu_gb<200"')
    parser.add_argument("--pin", action="append", metavar="KNOB=VALUE", help="hold a knob at a value (repeatable)")
    parser.add_argument("--top", type=positive_count, default=10, metavar="K", help="configurations to show (default 10)")
    parser.add_argument("--max-seconds", type=positive_count, metavar="S", help="stop after S seconds with what is known")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    add_engine_arguments(parser)


def problems(arguments: argparse.Namespace) -> list[Problem]:
    """One resolved problem a GPU and number of nodes."""
    from primus_mcp.cli.setup import resolve_problem

    if arguments.target_cluster is not None:
        return [resolve_problem(arguments)]
    found = []
    for gpu in _words(arguments.gpu, "--gpu"):
        for nodes in _words(arguments.nodes or "1", "--nodes"):
            if not nodes.isdecimal() or int(nodes) < 1:
                raise InputError(f"{nodes!r} is not a number of nodes", where="--nodes", remedy="write for example 4,8,16")
            found.append(resolve_problem(argparse.Namespace(**{**vars(arguments), "gpu": gpu, "nodes": int(nodes)})))
    return found


def _words(text: str, flag: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words) or len(set(words)) != len(words):
        raise InputError(f"{text!r} is not a list of different values", where=flag, remedy="separate them by commas")
    return words


def _only(arguments: argparse.Namespace) -> list[str] | None:
    from primus_mcp.space.knobs import KNOBS
    from primus_mcp.space.parsing import suggest_knob

    if arguments.axes is None:
        return None
    names = _words(arguments.axes, "--axes")
    for name in names:
        if name not in KNOBS:
            raise InputError(f"there is no knob {name!r}", where="--axes", remedy=suggest_knob(name))
    return names


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
    """One sweep with a progress bar on stderr."""
    import time

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    from primus_mcp.evaluation.evaluators import FullEvaluator
    from primus_mcp.search.sweep import sweep

    problem = _widened(problem, arguments)
    assert isinstance(problem.evaluator, FullEvaluator)
    console = Console(stderr=True)
    until = None if arguments.max_seconds is None else time.monotonic() + arguments.max_seconds
    columns = (TextColumn("sweep"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[state]}"))
    with Bar(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("sweep", total=None, state="")

        def show(done: int, total: int, legal: int, best: float) -> None:
            bar.update(task, completed=done, total=total, state=f"{legal:,} legal, best {best:,.0f} tokens/s/GPU")

        return sweep(
            problem.evaluator,
            only=_only(arguments),
            where=arguments.where,
            top=arguments.top,
            gemm_backend=arguments.gemm_backend,
            progress=show,
            should_stop=lambda: until is not None and time.monotonic() > until,
        )


def run(arguments: argparse.Namespace) -> int:
    """Sweep every cluster, print the best of each; exit 3 when nothing fits, 4 when stopped early."""
    from primus_mcp.cli.main import EXIT_NOTHING_FITS, EXIT_OK, EXIT_STOPPED_EARLY
    from primus_mcp.cli.setup import tell_notes
    from primus_mcp.reports.sweep_text import sweep_text

    found = []
    for problem in problems(arguments):
        tell_notes(problem)
        result = sweep_one(problem, arguments)
        found.append(result)
        if not arguments.json:
            print(sweep_text(result))
        if result.stopped == "interrupted":
            break
    if arguments.json:
        import json

        print(json.dumps([result.model_dump(mode="json") for result in found], indent=2))
    if any(result.stopped for result in found):
        return EXIT_STOPPED_EARLY
    return EXIT_OK if any(result.top for result in found) else EXIT_NOTHING_FITS
