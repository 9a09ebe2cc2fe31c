"""`primus-mcp serve`: the MCP server, over stdio or streamable HTTP."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from primus_mcp.cli.common import budget_limits, positive_count, whole
from primus_mcp.errors import InputError
from primus_mcp.inputs.regular_file import read_regular

TOKEN_VARIABLE = "PRIMUS_MCP_TOKEN"  # noqa: S105  the name of a variable
MAX_TOKEN_FILE = 100_000
MAX_PORT, MAX_SESSIONS = 65_535, 10_000
ALL_TOOLSETS = ("evaluate", "search", "inspect", "notes", "benchmark", "llm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Session, safety, tools and transport."""
    session = parser.add_argument_group("a session that is open from the start (else: the tool open_session)")
    session.add_argument("--workload", metavar="YAML", help="Primus pretrain YAML, or a model of `primus-mcp models`")
    session.add_argument("--target-cluster", metavar="YAML", help="target-cluster YAML")
    session.add_argument("--out-dir", type=Path, metavar="DIR", help="out-dir of that session (default: HOME/runs/<cluster>-<workload>)")
    session.add_argument("--primus-root", type=Path, metavar="DIR", help="Primus checkout whose model and module files come first")
    session.add_argument("--mode", choices=("dry", "memory-real", "full"), default="full", help="evaluator, as in `primus-mcp tune`")
    session.add_argument("--allow-policy", action="store_true", help="lift the policy bounds of the search")
    session.add_argument("--budget", action="append", metavar="NAME=N", help="change a limit (repeatable), e.g. max_evaluations=500")
    safety = parser.add_argument_group("what clients may reach")
    safety.add_argument("--root", type=Path, action="append", metavar="DIR", help="folder whose files clients may name (repeatable)")
    safety.add_argument("--home", type=Path, metavar="DIR", help="where runs are kept (default ~/.primus-mcp)")
    safety.add_argument("--read-only", action="store_true", help="only tools that show: get_*, list_*, describe_config, explain_trial")
    safety.add_argument(
        "--toolsets", metavar="A,B", help=f"tools to offer besides the session's own: {','.join(ALL_TOOLSETS)} (default all)"
    )
    parser.add_argument(
        "--answer-within", type=whole(0, 45), default=45, metavar="S", help="long work answers with a job handle after S seconds (0 to 45)"
    )
    http = parser.add_argument_group("streamable HTTP (default: stdio)")
    http.add_argument("--http", action="store_true", help="serve http://HOST:PORT/mcp")
    http.add_argument("--host", default="127.0.0.1", help="address to listen on; beyond loopback only with a token")
    http.add_argument("--port", type=whole(0, MAX_PORT), default=8765, help="port (0: any free one)")
    http.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"bearer tokens, one a line ({TOKEN_VARIABLE} holds one); each sees its own sessions",
    )
    http.add_argument("--allowed-host", action="append", metavar="NAME", help="further Host name that requests may carry (repeatable)")
    http.add_argument("--allowed-origin", action="append", metavar="URL", help="web origin that may call (repeatable)")
    http.add_argument("--requests-per-minute", type=positive_count, default=6000, metavar="N", help="rate limit per token")
    http.add_argument("--max-sessions", type=whole(1, MAX_SESSIONS), default=64, metavar="N", help="sessions kept open per token")


def _tokens(arguments: argparse.Namespace) -> tuple[str, ...]:
    """From the environment, which is cleared of it, and the file; never from the command line, which every user of the machine can read."""
    found = [token.strip()] if (token := os.environ.pop(TOKEN_VARIABLE, "")).strip() else []
    if arguments.token_file is not None:
        try:
            text = read_regular(arguments.token_file, MAX_TOKEN_FILE).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = (isinstance(error, OSError) and error.strerror) or "not UTF-8"
            where = f"--token-file {arguments.token_file}"
            raise InputError(f"cannot be read ({why})", where=where, remedy="check the path and its permissions") from None
        found += [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return tuple(dict.fromkeys(found))


def run(arguments: argparse.Namespace) -> int:
    """Serve until the client or a signal ends it."""
    if hasattr(sys.stderr, "reconfigure"):
        sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")
    from primus_mcp.server.lifecycle import serve_stdio, stdout_kept_clean

    with stdout_kept_clean():
        from primus_mcp.server.options import ANSWER_WITHIN_S, TOOLSETS, ServeOptions, default_home

        wanted = [name.strip() for name in arguments.toolsets.split(",")] if arguments.toolsets else list(TOOLSETS)
        unknown = [name for name in wanted if name not in TOOLSETS]
        if unknown:
            raise InputError(f"there is no toolset {unknown[0]!r}", where="--toolsets", remedy=f"toolsets are {', '.join(ALL_TOOLSETS)}")
        options = ServeOptions(
            workload=arguments.workload,
            target_cluster=arguments.target_cluster,
            out_dir=arguments.out_dir,
            primus_root=arguments.primus_root,
            home=arguments.home or default_home(),
            roots=tuple(arguments.root or ()),
            mode=arguments.mode,
            allow_policy=arguments.allow_policy,
            read_only=arguments.read_only,
            toolsets=tuple(name for name in TOOLSETS if name in wanted),
            limits=budget_limits(arguments.budget),
            answer_within_s=min(float(arguments.answer_within), ANSWER_WITHIN_S),
            http=arguments.http,
            host=arguments.host,
            port=arguments.port,
            tokens=_tokens(arguments),
            allowed_hosts=tuple(arguments.allowed_host or ()),
            allowed_origins=tuple(arguments.allowed_origin or ()),
            requests_per_minute=arguments.requests_per_minute,
            max_sessions=arguments.max_sessions,
        )
    for root in options.roots:
        if not root.is_dir():
            print(f"WARNING: --root {root} is no folder (yet): clients reach nothing there", file=sys.stderr)
    if arguments.http:
        from primus_mcp.server.http import serve_http

        serve_http(options)
    else:
        serve_stdio(options)
    return 0
