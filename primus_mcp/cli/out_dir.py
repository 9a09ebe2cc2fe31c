"""Where `tune` keeps a run when no --out-dir is given: a folder a problem, so that two problems do not meet in one log."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from primus_mcp.cli.setup import Problem
    from primus_mcp.trials.log import Digests

RUNS = Path("tuning_runs")
LONGEST = 150
_DIGITS = 8


def _safe(text: str) -> str:
    from primus_mcp.evaluation.digest import digest

    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in text).lstrip(".")
    return safe if len(safe.encode()) <= LONGEST else f"{safe[: LONGEST // 4]}-{digest(text)[:_DIGITS]}"


def asked_words(arguments: argparse.Namespace, problem: Problem) -> list[str]:
    """What flags changed of the workload, a word each: another sequence length, batch, vocabulary, pinned knobs."""
    words = [f"seq{arguments.seq_length}"] if arguments.seq_length is not None else []
    words += [f"gbs{problem.workload.baseline.gbs}"] if arguments.gbs is not None or arguments.scale_gbs else []
    words += [arguments.vocab] if arguments.vocab != "as-run" else []
    return words + [f"{name}_{str(value).lower()}" for name, value in sorted(problem.rules.pins.items())]


def _is_about(folder: Path, digests: Digests) -> bool:
    """Whether a run of this workload and cluster lies there, of whatever engine."""
    from primus_mcp.inputs.regular_file import read_regular
    from primus_mcp.trials.session_file import SESSION_NAME

    try:
        kept = json.loads(read_regular(folder / SESSION_NAME).decode("utf-8"))["digests"]
        return bool(kept["workload"] == digests.workload and kept["cluster"] == digests.cluster)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return False


def default_out_dir(arguments: argparse.Namespace, problem: Problem) -> Path:
    """tuning_runs/CLUSTER-WORKLOAD, and what flags changed of the workload; without the latter where such a run lies there already."""
    from primus_mcp.session import session_digests

    name = f"{problem.target.cluster.name}-{problem.workload.name}"
    words = asked_words(arguments, problem)
    plain, own = RUNS / _safe(name), RUNS / _safe("-".join([name, *words]))
    return plain if words and _is_about(plain, session_digests(problem.workload, problem.target, problem.rules.pins)) else own
