"""Several projections side by side: a table of GPUs and sizes, and all schedules of one configuration."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from primus_mcp.cli.performance import band_of, memory_fields_of, performance_document, project
from primus_mcp.cli.projected import Projected, memory_of, print_documents, resolve_projection, verdict_of
from primus_mcp.errors import NothingLegalError, PrimusMcpError
from primus_mcp.units import bytes_to_gb, seconds_to_ms

if TYPE_CHECKING:
    from primus_mcp.projection.memory import Word

_WHAT_IF = "what-if: "


def print_table(cases: list[tuple[str, Projected]], backend: Any) -> None:
    """One line a configuration: throughput with its band, bubble, memory, verdict."""
    from primus_mcp.projection.memory import MEANINGS, cache_note

    beyond = []
    print(f"{'':30} {'tokens/s/GPU':>13} {'band':>17} {'ms':>11} {'MFU':>7} {'bubble':>7} {'GB':>8}  verdict")
    for name, case in cases:
        try:
            found = project(case, backend)
            memory = memory_of(case)
        except PrimusMcpError as error:
            print(f"{name:30} {error}")
            continue
        band = band_of(case, found)["throughput_band"]
        spread = f"{band[0]:,.0f} to {band[1]:,.0f}" if band else "-"
        memory_gb = bytes_to_gb(memory.device_bytes)
        numbers = f"{seconds_to_ms(found.iteration_s):11,.1f} {found.mfu:7.1%} {found.bubble_ratio:7.1%} {memory_gb:8.1f}"
        print(f"{name:30} {found.tokens_per_s_per_gpu:13,.0f} {spread:>17} {numbers}  {memory.verdict(case.cluster)}")
        if note := cache_note(memory.fits(case.cluster.hbm_bytes), memory.device_bytes, case.cluster.hbm_bytes):
            beyond.append(f"{name}: {note}")
    print("band: tokens/s/GPU by the errors of the published runs most like it, or of all AMD runs where none validates a part (--json)")
    print(f"verdict: {'; '.join(f'{found} = {meaning}' for found, meaning in MEANINGS.items())}")
    print("\n".join(beyond), end="\n" if beyond else "")


def _documents(cases: list[tuple[str, Projected]], backend: Any) -> Iterator[dict[str, Any]]:
    """The table's lines as plain data."""
    for name, case in cases:
        try:
            document = performance_document(case, backend)
            told = memory_fields_of(case)
        except PrimusMcpError as error:
            yield {"schedule": name.removeprefix(_WHAT_IF), "what_if": name.startswith(_WHAT_IF), "error": str(error)}
            continue
        named = {"schedule": name.removeprefix(_WHAT_IF), "what_if": name.startswith(_WHAT_IF)}
        yield {**named, **document, **told}


def compare_schedules(arguments: argparse.Namespace, case: Projected) -> list[Word]:
    """Every schedule with the virtual stages that it needs, or why it does not exist here: a table, or with --json a list. The verdicts of
    those that a trainer runs.
    """
    from primus_mcp.space.what_if import WHAT_IF_SCHEDULES

    found, refused = _schedules(arguments, case)
    if arguments.json:
        print_documents([{"schedules": list(_documents(found, arguments.gemm_backend)), "refused": refused}])
        return _verdicts(found)
    print(case.title)
    print_table(found, arguments.gemm_backend)
    for line in (*(f"{name:30} not here: {reason}" for name, reason in refused.items()), *_left_out_by_policy(found)):
        print(line)
    for name, shown in found:
        if shown.config.schedule in WHAT_IF_SCHEDULES:
            print(f"{name}: {WHAT_IF_SCHEDULES[shown.config.schedule]}{_gap(shown, arguments.gemm_backend)}")
    return _verdicts(found)


def _verdicts(found: list[tuple[str, Projected]]) -> list[Word]:
    verdicts = []
    for name, case in found:
        if not name.startswith(_WHAT_IF):
            with suppress(PrimusMcpError):
                verdicts.append(verdict_of(case))
    return verdicts


def _schedules(arguments: argparse.Namespace, case: Projected) -> tuple[list[tuple[str, Projected]], dict[str, str]]:
    """(name, configuration) of those that exist here; why the others do not. Raises NothingLegalError where none does."""
    from primus_mcp.projection.pipeline.rules import order_problem
    from primus_mcp.space.knobs import SCHEDULE_OF_KNOB, schedule_text

    found: list[tuple[str, Projected]] = []
    refused: dict[str, str] = {}
    stages = sorted({2, case.config.vpp} - {1})
    wanted: list[tuple[str, dict[str, Any]]] = [("1f1b", {"pp_schedule": "auto", "vpp": 1})]
    wanted += [(f"{schedule_text('interleaved')}, VPP {vpp}", {"pp_schedule": "auto", "vpp": vpp}) for vpp in stages]
    for knob, schedule in SCHEDULE_OF_KNOB.items():
        two = order_problem(schedule, 2, 1, 64) is not None
        wanted.append((knob, {"pp_schedule": knob, "vpp": 2 if two else 1}))
    for name, changes in wanted:
        try:
            found.append((name, resolve_projection(arguments, changes)[0]))
        except PrimusMcpError as error:
            refused[name] = str(error)
    found += _what_ifs(found)
    if not found:
        raise NothingLegalError(
            "no schedule exists for this configuration",
            where="--schedule all",
            remedy="; ".join(f"{name}: {reason}" for name, reason in refused.items()),
        )
    return found, refused


def _left_out_by_policy(found: list[tuple[str, Projected]]) -> list[str]:
    """What `tune` and `sweep` do not propose although it is priced here, by reason."""
    from primus_mcp.space.legality import check_legality
    from primus_mcp.space.what_if import WHAT_IF_SCHEDULES

    reasons: dict[str, list[str]] = {}
    for name, shown in found:
        verdict = check_legality(shown.workload, shown.trial, shown.cluster)
        if not verdict.legal and shown.config.schedule not in WHAT_IF_SCHEDULES:
            reasons.setdefault(verdict.reason or "policy", []).append(name)
    return [f"{', '.join(names)}: tune and sweep leave this out: {reason}" for reason, names in reasons.items()]


def _gap(case: Projected, backend: Any) -> str:
    """How far a solved order may be from the best."""
    try:
        warnings = dict(project(case, backend).warnings)
    except PrimusMcpError:
        return ""
    return f"; {warnings['schedule-gap']}" if "schedule-gap" in warnings else ""


def _what_ifs(found: list[tuple[str, Projected]]) -> list[tuple[str, Projected]]:
    """Orders that no trainer runs, on the configuration of a split-backward schedule that it could run."""
    from primus_mcp.space.what_if import WHAT_IF_SCHEDULES, what_if

    runnable = {shown.config.schedule: shown for _, shown in reversed(found)}
    split = [runnable[name] for name in ("zero-bubble", "zbv-formatted", "v-half") if name in runnable]
    if not split:
        return []
    bases = [(name, split[-1 if name == "dualpipe-v" else 0]) for name in WHAT_IF_SCHEDULES]
    return [(_WHAT_IF + name, replace(base, config=what_if(base.config, name))) for name, base in bases]
