"""`primus-mcp validate`: how far the projections are from measured runs, the package's own or yours."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from primus_mcp.errors import InputError

if TYPE_CHECKING:
    from primus_mcp.validation.score import What


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Rows, what of them, and how."""
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="measured runs as JSON Lines (default: the published runs in the package)"
    )
    parser.add_argument("--suite", metavar="NAME", help="only the rows of this suite")
    parser.add_argument("--what", choices=("memory", "time"), help="only memory or only time (default: both)")
    parser.add_argument("--backend", choices=("auto", "roofline", "origami"), default="auto", help="GEMM model")
    parser.add_argument("--profile", metavar="NAME", help="software profile instead of the one of the row's date, where its GPU has it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write rows and groups as JSON (- for standard output)")
    parser.add_argument(
        "--leave-out",
        metavar="FAMILY",
        help="score this family with every constant that runs of it set fitted to the others (each: all in turn, and by halves)",
    )
    parser.add_argument("--groups-only", action="store_true", help="print groups, skipped rows and assumptions, not every row")


def run(arguments: argparse.Namespace) -> int:
    """Print the report; write the JSON."""
    from primus_mcp.cli.codes import EXIT_OK
    from primus_mcp.validation.refit import SUITES, leave_out
    from primus_mcp.validation.report import document, leave_out_report, report
    from primus_mcp.validation.rows import read_rows, shipped_rows
    from primus_mcp.validation.score import score

    rows = read_rows(arguments.rows) if arguments.rows else shipped_rows()
    if arguments.suite and not any(arguments.suite in row.suite for row in rows):
        known = sorted({suite for row in rows for suite in row.suite})
        raise InputError(f"no row of suite {arguments.suite!r}", where="--suite", remedy=f"known: {', '.join(known) or 'none'}")
    if arguments.leave_out is not None:
        suites = (arguments.suite,) if arguments.suite else SUITES
        print(leave_out_report(leave_out(rows, arguments.leave_out, suites=suites, backend=arguments.backend)))
        return EXIT_OK
    what: tuple[What, ...] = (arguments.what,) if arguments.what else ("time", "memory")
    scored = score(rows, what=what, suite=arguments.suite, backend=arguments.backend, profile=arguments.profile)
    if arguments.json is not None:
        text = json.dumps(document(scored), indent=1, allow_nan=False)
        if str(arguments.json) == "-":
            print(text)
            return EXIT_OK
        try:
            arguments.json.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot be written: {error}", where="--json", remedy="name a writable file") from None
    print(report(scored, rows=not arguments.groups_only))
    return EXIT_OK
