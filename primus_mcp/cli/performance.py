"""`primus-mcp performance`: how long an iteration takes, what it is made of, and how schedules, GPUs and sizes compare."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primus_mcp.cli.measuring import source_document, source_lines, time_document, time_lines
from primus_mcp.cli.projected import (
    Projected,
    add_projection_arguments,
    expert_replicas,
    measured_cases,
    memory_of,
    print_documents,
    tell_findings,
    tell_picture,
    verdict_of,
    write_bytes,
)
from primus_mcp.errors import InputError
from primus_mcp.units import bytes_to_gb, seconds_to_ms

if TYPE_CHECKING:
    from primus_mcp.projection.performance import PerformanceProjection

_PLOTTED_MICRO_BATCHES_A_RANK = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The projection's flags and --trace."""
    add_projection_arguments(parser)
    parser.add_argument("--trace", type=Path, metavar="JSON", help="write the pipeline as a Chrome / Perfetto trace")


def run(arguments: argparse.Namespace) -> int:
    """Print the breakdown, or a table when several configurations are named; the exit code is the verdicts' on memory."""
    from primus_mcp.cli.codes import verdict_code
    from primus_mcp.cli.compared import compare_schedules, print_table

    if arguments.schedule == "all" and arguments.profiling_mode != "simulate":
        raise InputError("compares projections of simulate only", where="--schedule all", remedy="name one schedule, or use simulate")
    cases = measured_cases(arguments)
    backend = arguments.gemm_backend
    tell_findings(cases[0].workload)
    verdicts = []
    if arguments.schedule == "all":
        verdicts = compare_schedules(arguments, cases[0])
    elif arguments.json:
        documents = [performance_document(case, backend) | memory_fields_of(case) for case in cases]
        print_documents(documents)
    elif len(cases) > 1:
        print_table([(case.place, case) for case in cases], backend)
    else:
        if cases[0].measured is not None:
            print("\n".join(source_lines(cases[0].measured)))
        print_performance(cases[0], backend, memory=True)
    if arguments.profiling_mode == "both" and not arguments.json:
        for case in cases:
            print_time_beside(case)
    write_pictures(arguments, cases[0])
    return verdict_code(verdicts or map(verdict_of, cases))


def memory_fields_of(case: Projected) -> dict[str, Any]:
    """Whether it fits, beside its time."""
    memory = memory_of(case)
    return {
        "memory_gb": bytes_to_gb(memory.device_bytes),
        "verdict": memory.verdict(case.cluster),
        "verdict_text": memory.verdict_text(case.cluster),
        "fits_physically": memory.fits(case.cluster.hbm_bytes),
        "within_margin": memory.device_bytes <= case.cluster.memory_cap_bytes,
    }


def project(case: Projected, backend: Any) -> PerformanceProjection:
    """The time of one configuration."""
    from primus_mcp.projection.performance import project_performance

    if case.measured is not None:
        return case.measured.performance
    return project_performance(case.workload.architecture, case.config, case.cluster, gemm_backend=backend)


def performance_document(case: Projected, backend: Any) -> dict[str, Any]:
    """The projection as plain data: times in ms, warnings by code."""
    from primus_mcp.evaluation.convert import performance_fields

    found = project(case, backend)
    fields, band = performance_fields(found), band_of(case, found)
    fields |= {"throughput_band": band["throughput_band"]}
    fields["warnings"] = [warning.model_dump() for warning in (*fields["warnings"], *band["warnings"])]
    sizes = {"dp": found.dp, "expert_dp": found.expert_dp, "micro_batches": found.micro_batches, "profile": found.profile}
    if case.measured is None:
        return {"configuration": case.title, **fields, **sizes}
    fields["source"] = "benchmark"
    beside = {**source_document(case.measured), **time_document(case.measured)}
    return {"configuration": case.title, **fields, **sizes, "benchmark": beside}


def band_of(case: Projected, found: PerformanceProjection) -> dict[str, Any]:
    """`throughput_band` and `warnings` of the published runs most like it; none where layers were measured."""
    from primus_mcp.evaluation.nearest import band_fields

    if case.measured is not None:
        return {"throughput_band": None, "warnings": []}
    return band_fields(
        case.workload.architecture, case.config, case.cluster, found.tokens_per_s_per_gpu, [code for code, _ in found.warnings]
    )


def print_time_beside(case: Projected) -> None:
    """Simulate and benchmark, component by component."""
    if case.measured is not None:
        print("\n".join(["", case.place, *time_lines(case.measured)]))


def print_performance(case: Projected, backend: Any, *, memory: bool = False) -> None:
    """Throughput, what the iteration is made of, communication, warnings; with `memory` also whether it fits."""
    from primus_mcp.evaluation.nearest import band_words
    from primus_mcp.reports.part_words import collective_text

    found = project(case, backend)
    band = band_of(case, found)
    print(case.title)
    print(f"throughput      {found.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, {seconds_to_ms(found.iteration_s):,.1f} ms an iteration")
    if band["throughput_band"]:
        low, high = band["throughput_band"]
        print(f"band            {low:,.0f} to {high:,.0f} tokens/s/GPU {band_words(warning.code for warning in band['warnings'])}")
    print(
        f"efficiency      {found.tflops_per_s_per_gpu:,.0f} TFLOP/s/GPU, MFU {found.mfu:.1%} of {found.gemm_precision},"
        f" bubble {found.bubble_ratio:.1%} over all ranks"
    )
    experts = expert_replicas(found.expert_dp, moe=case.workload.architecture.is_moe)
    print(f"replicas        dp {found.dp}{experts}, {found.micro_batches} micro-batches")
    if memory:
        print(f"memory          {memory_of(case).verdict_text(case.cluster)}")
    print("iteration, ms, of the busiest rank")
    _print_shares(found.time_breakdown_s, found.iteration_s)
    print("communication, ms in all / exposed")
    for name, total in sorted(found.communication_s.items(), key=lambda item: -item[1]):
        if total:
            print(f"  {collective_text(name):34} {seconds_to_ms(total):10,.1f} {seconds_to_ms(found.exposed_s.get(name, 0.0)):10,.1f}")
    print(f"priced by       {found.backend}, profile {found.profile}")
    for code, text in (*found.warnings, *((warning.code, warning.text) for warning in band["warnings"])):
        print(f"- {code}: {text}")


def _print_shares(parts: Mapping[str, float], total_s: float) -> None:
    from primus_mcp.reports.part_words import part_text

    for name, time_s in sorted(parts.items(), key=lambda item: -item[1]):
        if time_s:
            print(f"  {part_text(name):34} {seconds_to_ms(time_s):10,.1f} {time_s / total_s:7.1%}")


def write_pictures(arguments: argparse.Namespace, case: Projected) -> None:
    """--trace and --plot."""
    from primus_mcp.reports.charts.render import picture
    from primus_mcp.reports.pipeline_trace import chrome_trace, pipeline_chart, pipeline_trace
    from primus_mcp.space.knobs import schedule_text

    arch, backend = case.workload.architecture, arguments.gemm_backend
    if arguments.trace is not None:
        document = chrome_trace(pipeline_trace(arch, case.config, case.cluster, backend=backend))
        write_bytes(arguments.trace, json.dumps(document).encode(), "--trace")
        tell_picture(arguments.trace, f"trace of schedule {schedule_text(case.config.schedule)}")
    if arguments.plot is not None:
        most = max(1, _PLOTTED_MICRO_BATCHES_A_RANK * case.config.pp)
        shown = pipeline_trace(arch, case.config, case.cluster, backend=backend, most=most)
        title = f"{case.title}\n{schedule_text(shown.schedule)}, {shown.micro_batches} of {shown.all_micro_batches} micro-batches"
        write_bytes(arguments.plot, picture(pipeline_chart(shown, title=title), arguments.plot.suffix), "--plot")
        others = " alone (any other: --plot with that --schedule)" if arguments.schedule == "all" else ""
        tell_picture(arguments.plot, f"chart of the pipeline, schedule {schedule_text(shown.schedule)}{others},")
