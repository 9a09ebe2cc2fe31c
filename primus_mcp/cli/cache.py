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
    from primus_mcp.reports.tables import plain
    from primus_mcp.search.cache import TrialCache
    from primus_mcp.version import engine_version

    cache, engine = TrialCache(), engine_version()
    if arguments.action == "clear":
        print(f"{cache.clear(keep_engine=engine if arguments.outdated else None)} entries deleted from {cache.path}")
        return 0
    entries = cache.entries()
    if arguments.action == "export":
        kept = [entry.model_dump(mode="json") | ({} if entry.digests.engine == engine else {"result": None}) for entry in entries]
        print(json.dumps(kept, indent=2))
        return 0
    print(f"{len(entries)} entries in {cache.path}")
    for entry in entries:
        found = entry.result.tokens_per_s_per_gpu if entry.digests.engine == engine else None
        rate = f"{found:,.0f} tokens/s/GPU" if found is not None else "a proposal, which another engine version priced"
        print(plain(f"{entry.time}  {entry.name}: {rate}  {configuration_text(entry.result, entry.trial)}"))
    return 0
