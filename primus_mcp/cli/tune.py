"""`primus-mcp tune`: the whole search, headless, with its artefacts."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from primus_mcp.cli.common import (
    add_cluster_arguments,
    add_engine_arguments,
    add_workload_arguments,
    budget_limits,
    count,
    new_folder,
    positive_number,
)
from primus_mcp.cli.evaluator_options import add_evaluator_arguments
from primus_mcp.cli.out_dir import default_out_dir
from primus_mcp.cli.search_stage import add_search_arguments, require_known_trials, run_search
from primus_mcp.cli.start import add_start_arguments
from primus_mcp.cli.stops import signals_wait
from primus_mcp.cli.streams import print_rich, terminal

if TYPE_CHECKING:
    from primus_mcp.cli.known import BestKnown
    from primus_mcp.cli.setup import Problem
    from primus_mcp.reports.measured import MeasuredComparison
    from primus_mcp.reports.summary import AgentSummary, StoppedBecause
    from primus_mcp.session import TuningSession

PIPE_COLUMNS = 140


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Every flag of the reference's tuning agent, and ours."""
    add_workload_arguments(parser)
    add_cluster_arguments(parser)
    parser.add_argument(
        "--out-dir",
        type=new_folder,
        metavar="DIR",
        help="where trials and artefacts go (default tuning_runs/CLUSTER-WORKLOAD, with what flags change of the workload)",
    )
    parser.add_argument("--mode", choices=("dry", "memory-real", "full"), default="full", help="dry: synthetic; memory-real: memory only")
    add_evaluator_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="the same as --mode dry")
    stage = parser.add_mutually_exclusive_group()
    stage.add_argument("--seed-only", "--no-agent", action="store_true", help="evaluate the seed plan only, without an LLM")
    stage.add_argument("--agent-only", action="store_true", help="skip the seed plan; run the LLM stage on the existing trials")
    parser.add_argument("--resume", action="store_true", help="continue with the trials that lie in --out-dir")
    parser.add_argument("--reprice", action="store_true", help="price trials of another engine, cluster or workload version again")
    parser.add_argument("--seed-budget", type=count, metavar="N", help="seeds to price (default 12; illegal and infeasible ones are free)")
    parser.add_argument("--pin", action="append", metavar="KNOB=VALUE", help="hold a knob at a value (repeatable), for example --pin tp=8")
    parser.add_argument("--budget", action="append", metavar="NAME=N", help="change a limit of the cluster file (repeatable)")
    parser.add_argument("--measured-tokens-per-s", type=positive_number, metavar="X", help="tokens/s/GPU of your own run of the baseline")
    parser.add_argument("--measured-memory-gb", type=positive_number, metavar="Y", help="GB/GPU of your own run of the baseline")
    add_search_arguments(parser)
    add_start_arguments(parser)
    add_engine_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Seeds, then the LLM stage where there is one; artefacts in every case."""
    from primus_mcp.cli.known import BestKnown
    from primus_mcp.cli.setup import resolve_problem, tell_notes
    from primus_mcp.cli.start import keep_best
    from primus_mcp.reports.summary import summary_json

    mode = "dry" if arguments.dry_run else arguments.mode
    problem = resolve_problem(arguments, mode=mode, profiling_mode=arguments.profiling_mode)
    tell_notes(problem)
    measured = _measured(arguments, problem)
    session = _open(arguments, problem)
    known = BestKnown(enabled=not arguments.no_cache)
    stopped, agent = _search(arguments, session, known)
    with signals_wait() as asked_to_stop:
        outcome = session.finish(stopped, agent=agent)
        keep_best(session, known)
    if arguments.json:
        print(summary_json(outcome), end="")
        if measured is not None:
            print("\n".join(f"note: {text}" for text in (measured.text, measured.caution) if text), file=sys.stderr)
    else:
        _report(session, agent, measured)
    if stopped == "interrupted":
        print("note: stopped early; the same command with --resume continues", file=sys.stderr)
    return _exit_code(session, interrupted=stopped == "interrupted" or asked_to_stop())


def _search(arguments: argparse.Namespace, session: TuningSession, known: BestKnown) -> tuple[StoppedBecause, AgentSummary | None]:
    """What was asked for of seeds and LLM stage. A signal ends it, wherever it falls; what was evaluated stays."""
    from primus_mcp.cli.start import sweep_start

    stopped: StoppedBecause = "seed plan finished"
    try:
        if not arguments.agent_only:
            stopped = _seeds(session, known, quiet=arguments.quiet)
        if arguments.seed_only or stopped == "interrupted" or session.impossible_pins is not None:
            return stopped, None
        sweep_start(arguments, session)
        return run_search(arguments, session)
    except KeyboardInterrupt:
        return "interrupted", None


def _measured(arguments: argparse.Namespace, problem: Problem) -> MeasuredComparison | None:
    """The user's own run against the projection; checked before anything is written."""
    from primus_mcp.session import compare_baseline

    if arguments.measured_tokens_per_s is None and arguments.measured_memory_gb is None:
        return None
    return compare_baseline(problem.evaluator, problem.target, arguments.measured_tokens_per_s, arguments.measured_memory_gb)


def _limits(arguments: argparse.Namespace) -> dict[str, float | None]:
    limits = budget_limits(arguments.budget)
    return limits if arguments.seed_budget is None else {**limits, "seed_budget": arguments.seed_budget}


def _open(arguments: argparse.Namespace, problem: Problem) -> TuningSession:
    from primus_mcp.session import TuningSession
    from primus_mcp.trials.log import LOG_NAME

    out_dir = arguments.out_dir if arguments.out_dir is not None else default_out_dir(arguments, problem)
    log = out_dir / LOG_NAME
    if arguments.agent_only:
        require_known_trials(log)
    if os.path.exists(log) and not arguments.resume:  # noqa: PTH110 - Path.exists raises for a folder that may not be read
        print(f"WARNING: {log} exists; re-using (pass --resume to say so, or another --out-dir)", file=sys.stderr)
    return TuningSession.open(
        problem.workload,
        problem.target,
        problem.evaluator,
        out_dir,
        reprice=arguments.reprice,
        limits=_limits(arguments),
        pins=problem.rules.pins,
    )


def _seeds(session: TuningSession, known: BestKnown, *, quiet: bool) -> StoppedBecause:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from primus_mcp.cli.start import seeds_with_known

    console = terminal()
    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[best]}"))
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as bar:
        task = bar.add_task("seeds", total=None, best="")

        def show(done: int, total: int, best: object) -> None:
            rate = getattr(best, "tokens_per_s_per_gpu", None)
            bar.update(task, completed=done, total=total, best="" if rate is None else f"best {rate:,.0f} tokens/s/GPU")

        outcome = session.run_seeds(seeds_with_known(session, known), progress=show)
    for label, reason in outcome.skipped:
        print(f"note: seed {label!r} could not be priced: {reason}", file=sys.stderr)
    if outcome.priced == 0 and outcome.note is not None:
        print(f"note: {outcome.note}", file=sys.stderr)
    return outcome.stopped_because


def _report(session: TuningSession, agent: AgentSummary | None, measured: MeasuredComparison | None) -> None:
    from primus_mcp.reports.tables import trials_table

    records = session.history()
    if records:
        print_rich(trials_table(records), columns=PIPE_COLUMNS)
        print()
    if measured is not None:
        print(f"{measured.text}\n")
    print(session.report(measured))
    if agent is not None:
        print(f"\n{agent.text}")
    print(f"\nartefacts in {session.folder.path}")


def _exit_code(session: TuningSession, *, interrupted: bool) -> int:
    from primus_mcp.cli.codes import EXIT_NOTHING_FITS, EXIT_OK, EXIT_STOPPED_EARLY

    if interrupted:
        return EXIT_STOPPED_EARLY
    return EXIT_OK if session.best().best is not None else EXIT_NOTHING_FITS
