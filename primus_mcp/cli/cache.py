"""`primus-mcp cache`: what earlier runs found, across projects."""

from __future__ import annotations

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """list, export or clear."""
    parser.add_argument(
        "action", choices=("list", "export", "clear"), nargs="?", default="list", help="list (default), export as JSON, clear"
    )
    parser.add_argument("--outdated", action="store_true", help="with clear: only what other engine versions priced")


def run(arguments: argparse.Namespace) -> int:
    """Print or delete."""
    from primus_mcp.reports.sweep_text import configuration_text
    from primus_mcp.search.cache import TrialCache
    from primus_mcp.version import engine_version

    cache, engine = TrialCache(), engine_version()
    if arguments.action == "clear":
        print(f"{cache.clear(keep_engine=engine if arguments.outdated else None)} entries deleted from {cache.path}")
        return 0
    entries = cache.entries()
    if arguments.action == "export":
        print(json.dumps([entry.model_dump(mode="json") for entry in entries], indent=2))
        return 0
    print(f"{len(entries)} entries in {cache.path}")
    for entry in entries:
        age = "" if entry.digests.engine == engine else "  (of another engine version: a proposal, not a number)"
        print(f"{entry.time}  {entry.name}: {entry.result.tokens_per_s_per_gpu:,.0f} tokens/s/GPU  ", end="")
        print(f"{configuration_text(entry.result, entry.trial)}{age}")
    return 0
