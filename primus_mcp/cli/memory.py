"""`primus-mcp memory`: what every pipeline rank holds at its peak, whether it fits, and what would make it fit."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from primus_mcp.cli.measuring import memory_document as memory_beside
from primus_mcp.cli.measuring import memory_lines as lines_beside
from primus_mcp.cli.measuring import source_document, source_lines
from primus_mcp.cli.projected import (
    Projected,
    add_projection_arguments,
    measured_cases,
    memory_of,
    print_documents,
    tell_findings,
    tell_picture,
    verdict_of,
    write_bytes,
)

if TYPE_CHECKING:
    from pathlib import Path

    from primus_mcp.evaluation.cheapest import Fitting
    from primus_mcp.projection.memory import MemoryProjection
    from primus_mcp.projection.ops.backend import GemmBackend


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The projection's flags."""
    add_projection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the tree; the exit code is the verdicts'."""
    from primus_mcp.cli.codes import verdict_code

    cases = measured_cases(arguments)
    if arguments.json:
        documents = [memory_document_of(case, arguments.gemm_backend) for case in cases]
        print_documents(documents)
    else:
        tell_findings(cases[0].workload)
        for case in cases:
            tell_source(case)
            print_memory(case, arguments.gemm_backend)
            if arguments.profiling_mode == "both":
                print_memory_beside(case)
    if arguments.plot is not None:
        write_memory_picture(arguments.plot, cases[0])
    return verdict_code(verdict_of(case) for case in cases)


def _fitting(case: Projected, memory: MemoryProjection, backend: GemmBackend) -> list[Fitting]:
    """What one or two knobs would do about a configuration that is over the cap."""
    from primus_mcp.evaluation.cheapest import cheapest_fitting_change, fitting_changes
    from primus_mcp.evaluation.evaluators import FullEvaluator, Rules

    if memory.device_bytes <= case.cluster.memory_cap_bytes:
        return []
    evaluator = FullEvaluator(Rules(workload=case.workload, cluster=case.cluster, axes={}, pins={}), gemm_backend=backend)
    if found := fitting_changes(evaluator, case.trial):
        return found
    pair = cheapest_fitting_change(evaluator, case.trial)
    return [pair] if pair is not None else []


def memory_document_of(case: Projected, backend: GemmBackend) -> dict[str, Any]:
    """The projection as plain data."""
    from primus_mcp.projection.memory import memory_by_load
    from primus_mcp.reports.memory_explain import explain_document
    from primus_mcp.reports.memory_tree import memory_document

    memory = memory_of(case)
    loads = memory_by_load(case.workload.architecture, case.config, case.cluster)
    explained = explain_document(memory, loads, _fitting(case, memory, backend))
    beside = {} if case.measured is None else {"benchmark": {**source_document(case.measured), **memory_beside(case.measured)}}
    return {"configuration": case.title, **memory_document(memory, case.cluster), **explained, **beside}


def tell_source(case: Projected) -> None:
    """What an anchored answer was measured on."""
    if case.measured is not None:
        print("\n".join(source_lines(case.measured)))


def print_memory_beside(case: Projected) -> None:
    """Simulate and benchmark, component by component."""
    if case.measured is not None:
        print("\n".join(["", *lines_beside(case.measured, case.cluster)]))


def print_memory(case: Projected, backend: GemmBackend) -> None:
    """The tree of every rank, then why and what would help."""
    from primus_mcp.projection.memory import memory_by_load
    from primus_mcp.reports.memory_explain import explain_lines
    from primus_mcp.reports.memory_tree import memory_lines

    print(case.title)
    memory = memory_of(case)
    loads = memory_by_load(case.workload.architecture, case.config, case.cluster)
    print("\n".join(memory_lines(memory, case.cluster)))
    print("\n".join(explain_lines(memory, case.config, case.cluster, loads, _fitting(case, memory, backend))))
    for caveat in memory.caveats:
        print(f"- {caveat.code}: {caveat.text}")


def write_memory_picture(path: Path, case: Projected) -> None:
    """--plot: the stacked bars, as the kind of file that the name says."""
    from primus_mcp.reports.charts.render import picture
    from primus_mcp.reports.memory_plot import memory_chart

    write_bytes(path, picture(memory_chart(memory_of(case), case.cluster, title=case.title), path.suffix), "--plot")
    tell_picture(path, "chart of memory")
