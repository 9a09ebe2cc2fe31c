"""`primus-mcp`: parses the command line, runs one command, turns every failure into one line and an exit code.

Exit codes: see `primus_mcp.cli.codes`.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import stat
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NoReturn

from primus_mcp.cli.codes import EPILOG, EXIT_BAD_INPUT, EXIT_BUG, EXIT_OK, EXIT_STOPPED_EARLY
from primus_mcp.cli.flags import renamed
from primus_mcp.cli.stops import signals_stop
from primus_mcp.cli.streams import drop_output, only_visible_characters, open_missing_streams, say
from primus_mcp.errors import PrimusMcpError

MAX_LINE = 2000

COMMANDS: dict[str, str] = {
    "tune": "search for the fastest configuration that fits, and write its artefacts",
    "evaluate": "price one configuration: memory, time, verdict",
    "sweep": "the fastest configuration of the whole legal space, with the proof",
    "cache": "the best configurations that earlier runs found; inspect, export, clear",
    "report": "one self-contained report.html of an out-dir",
    "axes": "the legal values of every knob for this workload on this cluster",
    "check": "what would really run: the resolved model, and where it differs from the published one",
    "memory": "what every pipeline rank holds at its peak, and whether it fits",
    "performance": "how long an iteration takes and what it is made of; compares schedules, GPUs and sizes",
    "both": "memory and time of one configuration",
    "benchmark": "measure the layers of one configuration on this host, and project it from there",
    "calibrate": "fit a small correction from your own measured runs",
    "import-trace": "time by kernel of a torch profiler or rocprofv3 trace, and where a run differs from the projection",
    "validate": "score the projections against measured runs",
    "convert": "a Megatron-LM argument list to a Primus workload file, and back",
    "detect": "the GPUs, links and NICs of this host, or of saved tool output, as a cluster file",
    "models": "models in the catalogue",
    "gpus": "GPUs in the catalogue",
    "doctor": "what works on this machine, and the remedy for what does not",
    "serve": "the MCP server, over stdio or HTTP (also what a bare `primus-mcp` does when a host starts it)",
}
"""Each command lives in `primus_mcp.cli.<name>`, which has `add_arguments(parser)` and `run(arguments) -> int`."""


def one_line(text: str) -> str:
    """The text without line breaks and control characters, which a path or a value may hold; at most 2,000 characters."""
    clean = "".join(c if c.isprintable() else " " if c.isspace() else repr(c)[1:-1] for c in text).strip()
    return clean if len(clean) <= MAX_LINE else f"{clean[: MAX_LINE // 2]} ... {clean[-MAX_LINE // 2 :]}"


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, with a suggestion for a mistyped flag."""

    @property
    def actions(self) -> Sequence[argparse.Action]:
        """Its flags."""
        return self._actions

    def error(self, message: str) -> NoReturn:
        """Print one line and leave with exit code 2."""
        words = message.removeprefix("unrecognized arguments: ").split()
        if message.startswith("unrecognized") and words:
            flags = [flag for action in self.actions for flag in action.option_strings]
            near = get_close_matches(words[0].split("=")[0], flags, n=1)
            message = f"unknown argument {words[0]!r}" + (f"; did you mean {near[0]}?" if near else "")
        print(f"error: {one_line(message)} (see `{self.prog} --help`)", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT)


def _parsers(command: str | None) -> tuple[Parser, dict[str, Parser]]:
    parser = Parser(
        prog="primus-mcp",
        description="Finds the Primus training configuration with the most tokens/s/GPU that fits in memory.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    by_name: dict[str, Parser] = {}
    for name, text in COMMANDS.items():
        described = f"{text[0].upper()}{text[1:]}."
        by_name[name] = subparsers.add_parser(name, help=text, description=described, epilog=EPILOG, allow_abbrev=False)
    if command is not None:
        importlib.import_module(f"primus_mcp.cli.{command.replace('-', '_')}").add_arguments(by_name[command])
    return parser, by_name


def _started_by_a_host() -> bool:
    """Whether stdin is a pipe or socket, as MCP hosts connect it; not a terminal, a file or the null device."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _run(argv: Sequence[str]) -> int:
    command = next((word for word in argv if word in COMMANDS), None)
    parser, by_name = _parsers(command)
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        by_name.get(arguments.command or "", parser).error("unrecognized arguments: " + " ".join(unknown))
    if arguments.version:
        from primus_mcp.version import PACKAGE_VERSION

        print(f"primus-mcp {PACKAGE_VERSION}")
        return EXIT_OK
    if arguments.command is None and _started_by_a_host():
        return _run(["serve"])
    if arguments.command is None:
        parser.print_help()
        return EXIT_OK
    try:
        return int(importlib.import_module(f"primus_mcp.cli.{arguments.command.replace('-', '_')}").run(arguments))
    except PrimusMcpError as error:
        raise renamed(error, by_name[arguments.command].actions, arguments, argv) from error


def _flushed() -> bool:
    try:
        sys.stdout.flush()
    except OSError:
        return False
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. No traceback reaches the user unless PRIMUS_MCP_DEBUG is set."""
    debug = bool(os.environ.get("PRIMUS_MCP_DEBUG"))
    open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    with only_visible_characters():
        logging.basicConfig(stream=sys.stderr, level=logging.DEBUG if debug else logging.WARNING, format="%(levelname)s: %(message)s")
        return _ended(sys.argv[1:] if argv is None else argv, debug=debug)


def _ended(argv: Sequence[str], *, debug: bool) -> int:
    """The exit code, whatever happens."""
    try:
        with signals_stop(EXIT_STOPPED_EARLY):
            code = _run(argv)
            sys.stdout.flush()
        return code
    except SystemExit:
        if not _flushed():
            drop_output()
        raise
    except BrokenPipeError:
        drop_output()
        return EXIT_OK
    except KeyboardInterrupt:
        say("stopped")
        return EXIT_STOPPED_EARLY
    except PrimusMcpError as error:
        if debug:
            raise
        say(f"error: {one_line(str(error))}")
        return error.exit_code
    except OSError as error:
        if debug:
            raise
        drop_output()
        where = f"{error.filename}: " if error.filename else ""
        say(one_line(f"error: {where}{error.strerror or error}; check the path, its permissions and the free space"))
        return EXIT_BAD_INPUT
    except Exception as error:
        if debug:
            raise
        text = one_line(str(error)) or "no message"
        say(f"internal error: {type(error).__name__}: {text}; set PRIMUS_MCP_DEBUG=1 for the traceback and report it")
        return EXIT_BUG
