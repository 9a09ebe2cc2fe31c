"""The search after the seeds, on the command line: which strategy, what the user is told, the live view."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from primus_mcp.errors import InputError

if TYPE_CHECKING:
    from primus_mcp.driver.settings import LanguageModel
    from primus_mcp.driver.stage import StageEnd
    from primus_mcp.reports.summary import AgentSummary, StoppedBecause
    from primus_mcp.session import TuningSession

NO_AGENT = "WARNING: cannot import agent ({}); skipping LLM stage"
NO_MODEL = "WARNING: no language model ({}); skipping LLM stage"
COORDINATE = "note: coordinate search runs instead (--strategy coordinate; --seed-only runs neither)"


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the search after the seeds."""
    parser.add_argument(
        "--strategy", choices=("auto", "llm", "coordinate"), default="auto", help="after the seeds; auto: llm where one can be asked"
    )
    add_model_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    parser.add_argument("--json", action="store_true", help="print summary.json instead of tables")


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Which language model, for every command that asks one."""
    parser.add_argument(
        "--llm-model", metavar="PROVIDER/NAME", help="language model (default: LLM_MODEL, else the cluster file's, else openai/gpt-4o)"
    )
    parser.add_argument("--llm-base-url", metavar="URL", help="endpoint of the language model, OpenAI-compatible")


def find_model(arguments: argparse.Namespace, session: TuningSession, proven: str = "") -> LanguageModel | None:
    """The language model to search with; None where there is none, which is said with the remedy, and with what was `proven` anyway."""
    from primus_mcp.driver.settings import NoLanguageModelError, env_folders, resolve_language_model
    from primus_mcp.driver.stage import missing_dspy

    if arguments.strategy == "coordinate":
        return None
    if (missing := missing_dspy()) is not None:
        print(NO_AGENT.format(missing) + proven, file=sys.stderr)
        return None
    try:
        return resolve_language_model(
            session.target.agent,
            where=f"{session.target.where}:",
            model=arguments.llm_model,
            base_url=arguments.llm_base_url,
            folders=env_folders(arguments.primus_root),
        )
    except NoLanguageModelError as error:
        print(NO_MODEL.format(error) + proven, file=sys.stderr)
        return None


def run_search(arguments: argparse.Namespace, session: TuningSession) -> tuple[StoppedBecause, AgentSummary | None]:
    """Search by the chosen strategy. Ctrl-C ends it; what was evaluated stays."""
    from primus_mcp.cli.live import live_view
    from primus_mcp.driver.review import no_gain_text, proven_optimum
    from primus_mcp.driver.stage import run_coordinate_stage, run_llm_stage

    optimum = proven_optimum(session)
    model = find_model(arguments, session, "" if optimum is None else f"; {no_gain_text(optimum)}")
    if model is None and arguments.strategy == "llm":
        return "agent finished", None
    if model is None and arguments.strategy == "auto":
        if optimum is not None:
            stage = run_coordinate_stage(session)
            return stage.end.ending, stage.summary
        print(COORDINATE, file=sys.stderr)
    try:
        with live_view(session, quiet=arguments.quiet) as view:
            if model is None:
                return _told(run_coordinate_stage(session, observer=view))
            view.say(f"language model: {model.text}")
            return _told(run_llm_stage(session, model, observer=view, tell=view.say))
    except KeyboardInterrupt:
        return "interrupted", None


def _told(stage: StageEnd) -> tuple[StoppedBecause, AgentSummary]:
    print(f"note: search ended: {stage.end.reason}", file=sys.stderr)
    return stage.end.ending, stage.summary


def require_known_trials(log: Path) -> None:
    """`--agent-only` works on what is there. Raises InputError where nothing is."""
    if not os.path.exists(log) or not os.path.getsize(log):  # noqa: PTH110, PTH202 - False where it may not be read
        raise InputError("there are no trials in the out-dir", where="--agent-only", remedy="run once without it, or with --seed-only")
