"""`primus-mcp cache`: what earlier runs found, across projects."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from primus_mcp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from primus_mcp.search.cache import CachedTrial

SHOWN = 20
"""Entries of a list, newest first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """list, export or clear."""
    parser.add_argument(
        "action", choices=("list", "export", "clear"), nargs="?", default="list", help="list (default), export as JSON, clear"
    )
    parser.add_argument("--all", action="store_true", help=f"with list: every entry, not only the {SHOWN} newest")
    parser.add_argument("--json", action="store_true", help="with list: every entry as one JSON document, as export has it")
    parser.add_argument("--outdated", action="store_true", help="with clear: only what other engine versions priced")


def run(arguments: argparse.Namespace) -> int:
    """Print or delete."""
    from primus_mcp.search.cache import TrialCache
    from primus_mcp.version import engine_version

    for flag, action in (("all", "list"), ("json", "list"), ("outdated", "clear")):
        if getattr(arguments, flag) and arguments.action != action:
            raise InputError(f"goes with {action} only", where=f"--{flag}", remedy="leave it out")
    cache, engine = TrialCache(), engine_version()
    if arguments.action == "clear":
        print(f"{cache.clear(keep_engine=engine if arguments.outdated else None)} entries deleted from {cache.path}")
        return 0
    entries = cache.entries()
    if arguments.action == "export" or arguments.json:
        kept = [entry.model_dump(mode="json") | ({} if entry.digests.engine == engine else {"result": None}) for entry in entries]
        print(json.dumps(kept, indent=2))
        return 0
    shown = entries if arguments.all else entries[:SHOWN]
    newest = f", the {len(shown)} newest" if len(shown) < len(entries) else ""
    print(f"{len(entries)} entries in {cache.path}{newest}")
    _print(shown, engine)
    if len(shown) < len(entries):
        print(f"{len(entries) - len(shown)} more: `primus-mcp cache list --all`, or `--json`")
    return 0


def _print(entries: Sequence[CachedTrial], engine: str) -> None:
    from primus_mcp.reports.sweep_text import configuration_text
    from primus_mcp.reports.tables import plain

    for entry in entries:
        found = entry.result.tokens_per_s_per_gpu if entry.digests.engine == engine else None
        rate = f"{found:,.0f} tokens/s/GPU" if found is not None else "a proposal, which another engine version priced"
        print(plain(f"{entry.time}  {entry.name}: {rate}  {configuration_text(entry.result, entry.trial)}"))
