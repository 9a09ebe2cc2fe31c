"""`primus-mcp both`: memory and time of one configuration."""

from __future__ import annotations

import argparse
from pathlib import Path

from primus_mcp.cli.memory import memory_document_of, print_memory, print_memory_beside, tell_source, write_memory_picture
from primus_mcp.cli.performance import performance_document, print_performance, print_time_beside, write_pictures
from primus_mcp.cli.projected import add_projection_arguments, measured_cases, print_documents, tell_findings, verdict_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The projection's flags and --trace."""
    add_projection_arguments(parser)
    parser.add_argument("--trace", type=Path, metavar="JSON", help="write the pipeline as a Chrome / Perfetto trace")


def run(arguments: argparse.Namespace) -> int:
    """Print both; the exit code is the verdicts'. --plot draws memory, and the pipeline beside it in FILE_time."""
    from primus_mcp.cli.codes import verdict_code

    cases = measured_cases(arguments)
    if arguments.json:
        documents = [
            {"memory": memory_document_of(case, arguments.gemm_backend), "performance": performance_document(case, arguments.gemm_backend)}
            for case in cases
        ]
        print_documents(documents)
    else:
        tell_findings(cases[0].workload)
        for case in cases:
            tell_source(case)
            print_memory(case, arguments.gemm_backend)
            print()
            print_performance(case, arguments.gemm_backend)
            if arguments.profiling_mode == "both":
                print_memory_beside(case)
                print_time_beside(case)
    if arguments.plot is not None:
        write_memory_picture(arguments.plot, cases[0])
    timed = {} if arguments.plot is None else {"plot": arguments.plot.with_stem(f"{arguments.plot.stem}_time")}
    write_pictures(argparse.Namespace(**{**vars(arguments), **timed}), cases[0])
    return verdict_code(verdict_of(case) for case in cases)
