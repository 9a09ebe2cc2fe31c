"""`primus-mcp memory`: what every pipeline rank holds at its peak, and whether it fits."""

from __future__ import annotations

import argparse
import json
from typing import Any

from primus_mcp.cli.projected import Projected, add_projection_arguments, resolve_projection, tell_findings, write_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The projection's flags."""
    add_projection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the tree; exit 3 when it does not fit."""
    from primus_mcp.cli.main import EXIT_NOTHING_FITS, EXIT_OK

    cases = resolve_projection(arguments)
    if arguments.json:
        documents = [memory_document_of(case) for case in cases]
        print(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
    else:
        tell_findings(cases[0].workload)
        for case in cases:
            print_memory(case)
    if arguments.plot is not None:
        write_bytes(arguments.plot, memory_picture(cases[0]), "--plot")
    return EXIT_OK if all(fits(case) for case in cases) else EXIT_NOTHING_FITS


def fits(case: Projected) -> bool:
    """Whether the estimate is not beyond the GPU."""
    from primus_mcp.projection.memory import project_memory

    memory = project_memory(case.workload.architecture, case.config, case.cluster)
    return memory.fits(case.cluster.hbm_bytes) != "does_not_fit"


def memory_document_of(case: Projected) -> dict[str, Any]:
    """The projection as plain data."""
    from primus_mcp.projection.memory import project_memory
    from primus_mcp.reports.memory_tree import memory_document

    memory = project_memory(case.workload.architecture, case.config, case.cluster)
    return {"configuration": case.title, **memory_document(memory, case.cluster)}


def print_memory(case: Projected) -> None:
    """The tree of every rank."""
    from primus_mcp.projection.memory import project_memory
    from primus_mcp.reports.memory_tree import memory_lines

    print(case.title)
    memory = project_memory(case.workload.architecture, case.config, case.cluster)
    print("\n".join(memory_lines(memory, case.cluster)))


def memory_picture(case: Projected) -> bytes:
    """The stacked bars."""
    from primus_mcp.projection.memory import project_memory
    from primus_mcp.reports.memory_plot import memory_png

    memory = project_memory(case.workload.architecture, case.config, case.cluster)
    return memory_png(memory, case.cluster, title=case.title)
