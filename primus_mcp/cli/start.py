"""Where `primus-mcp tune` starts from: what earlier runs found, and a sweep of the whole space before the search."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from primus_mcp.cli.common import job_count, positive_count
from primus_mcp.cli.streams import terminal
from primus_mcp.errors import PrimusMcpError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from primus_mcp.cli.known import BestKnown
    from primus_mcp.evaluation.evaluators import FullEvaluator
    from primus_mcp.search.seeds import Seed
    from primus_mcp.search.sweep_result import SweepResult, SweptTrial
    from primus_mcp.session import TuningSession

CACHED_SEEDS = 3
"""Configurations of earlier runs that are priced before the seed plan."""
START_TOP = 5
"""Fastest configurations of the sweep that become trials, beside the fastest under less memory."""
START_SECONDS = 120
NOTE = (
    "{mark}: {legal:,} legal configurations. Trial {trial} is {proof}. Worth a proposal: what the projection does not price, such as less "
    "memory risk, rivals within its error, runs that are worth measuring."
)


def add_start_arguments(parser: argparse.ArgumentParser) -> None:
    """--start, --start-seconds, --jobs, --no-cache."""
    parser.add_argument(
        "--start",
        choices=("sweep", "seeds"),
        default="sweep",
        help="before the search after the seeds: sweep the whole space where the evaluator is analytic (default), or not",
    )
    parser.add_argument(
        "--start-seconds", type=positive_count, default=START_SECONDS, metavar="S", help=f"limit of that sweep (default {START_SECONDS})"
    )
    parser.add_argument("--jobs", type=job_count, metavar="N", help="processes of that sweep (default: one a core)")
    parser.add_argument("--no-cache", action="store_true", help="neither start from what earlier runs found nor keep what this one finds")


def seeds_with_known(session: TuningSession, known: BestKnown) -> Iterator[Seed]:
    """What earlier runs found and may run here, then the seed plan. All are priced by this engine."""
    from primus_mcp.search.seeds import Seed

    useful = not session.pins and session.evaluator.fidelity in ("simulate", "benchmark")
    for trial, proposal in known.proposals(session.digests, CACHED_SEEDS) if useful else []:
        if session.evaluator.rules.check(trial).legal:
            yield Seed(trial=trial, label=f"best known of an earlier run: {proposal.name}, {proposal.time[:10]}")
    yield from session.seed_plan()


def keep_best(session: TuningSession, known: BestKnown) -> None:
    """The fastest projected trials of the session, for later runs."""
    from primus_mcp.cli.known import KEPT_A_RUN
    from primus_mcp.evaluation.rank import ordered

    by_id = {record.trial_id: record for record in session.history()}
    best = ordered([record.result for record in by_id.values()], "simulate")[:KEPT_A_RUN]
    records = [by_id[result.trial_id] for result in best if result.trial_id is not None]
    if records and not session.pins:
        name = f"{session.workload.name} on {session.target.cluster.name}"
        known.keep(session.digests, name, [(record.key, dict(record.trial), record.result) for record in records])


def sweep_start(arguments: argparse.Namespace, session: TuningSession) -> None:
    """Sweep the whole space and price its best as trials of the log, so that the search starts from there. Ctrl-C passes through.

    Nothing where the evaluator measures or projects no time, or where a sweep stands in the log already.
    """
    from primus_mcp.evaluation.evaluators import FullEvaluator
    from primus_mcp.search.sweep_result import sweep_mark

    evaluator = session.evaluator
    if arguments.start != "sweep" or not isinstance(evaluator, FullEvaluator) or evaluator.fidelity != "simulate":
        return
    if sweep_mark() in session.scratchpad.read():
        return
    try:
        result = swept(
            evaluator,
            quiet=arguments.quiet,
            seconds=arguments.start_seconds,
            jobs=arguments.jobs,
            top=START_TOP,
            levels=True,
            gemm_backend=arguments.gemm_backend,
        )
    except PrimusMcpError as error:
        print(f"note: the search starts from the seeds, without a sweep: {error}", file=sys.stderr)
        return
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    _into_log(session, result)


def _into_log(session: TuningSession, result: SweepResult) -> None:
    from primus_mcp.search.sweep_result import sweep_mark
    from primus_mcp.space.knobs import TrialConfig
    from primus_mcp.trials.journal import Swept

    if result.best is None:
        early = ", and nothing is proven: time ran out" if result.stopped else ""
        print(f"note: the sweep found nothing legal that fits{early}", file=sys.stderr)
        return
    first: int | None = None
    for label, one in _labelled(result):
        priced = session.evaluate(TrialConfig(**one.trial), origin="sweep", label=label)
        first = priced.trial_id if first is None else first
    if first is not None:
        session.journal.append(
            Swept(trial_id=first, proven=result.proven, legal=result.counts.legal, digests=session.digests),
        )
    proof = "the optimum, proven under the model" if result.proven else "the best when time ran out, nothing is proven"
    session.scratchpad.append(NOTE.format(mark=sweep_mark(), legal=result.counts.legal, trial=first, proof=proof))
    print(f"note: sweep of {result.counts.legal:,} legal configurations: trial #{first} is {proof}", file=sys.stderr)


def _labelled(result: SweepResult) -> Iterator[tuple[str, SweptTrial]]:
    optimum = "optimum of all legal ones, proven under the model" if result.proven else "best when time ran out"
    for place, one in enumerate(result.top):
        yield f"sweep: {optimum if place == 0 else f'number {place + 1}'}", one
    for one in result.by_memory:
        yield "sweep: fastest under its memory", one


def swept(evaluator: FullEvaluator, *, quiet: bool, seconds: int | None, jobs: int | None, levels: bool = False, **how: Any) -> SweepResult:
    """A sweep with a progress bar on stderr."""
    import time

    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    from primus_mcp.search.sweep import sweep
    from primus_mcp.search.sweep_crew import cores
    from primus_mcp.search.sweep_tools import LEVELS

    console = terminal()
    until = None if seconds is None else time.monotonic() + seconds
    late: Callable[[], bool] = lambda: until is not None and time.monotonic() > until  # noqa: E731
    columns = (TextColumn("sweep"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[state]}"))
    with Bar(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as bar:
        task = bar.add_task("sweep", total=None, state="")

        def show(done: int, total: int, legal: int, best: float) -> None:
            bar.update(task, completed=done, total=total, state=f"{legal:,} legal, best {best:,.0f} tokens/s/GPU")

        return sweep(evaluator, levels=LEVELS if levels else (), jobs=jobs or cores(), progress=show, should_stop=late, **how)
