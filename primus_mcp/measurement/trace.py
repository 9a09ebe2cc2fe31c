"""GPU traces: a torch profiler (Kineto) JSON or a rocprofv3 kernel CSV to time by kind of operator, idle time, and bytes exchanged.

A trace is untrusted input: bounded in size, and every number is checked. What no pattern names is `other`, never guessed.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from primus_mcp.errors import InputError
from primus_mcp.inputs.catalogue import catalogue_yaml
from primus_mcp.inputs.regular_file import open_regular
from primus_mcp.measurement.calibration import TERMS, Term
from primus_mcp.units import NS, US

MAX_TRACE_BYTES = 2 << 30
_GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_ELEMENT_BYTES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "byte": 1, "char": 1, "int": 4, "long": 8}
OTHER = "other"
TERM_OF_KIND: Mapping[str, Term] = {
    "gemm": "gemm",
    "grouped_gemm": "gemm",
    "attention": "attention",
    "a2a": "communication",
    "collective": "communication",
}
"""Every other kind is bound by memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One run of a kernel. `sent_bytes`: of a collective, where the trace says (what this rank puts in). `device`: as it is named there."""

    name: str
    start_s: float
    duration_s: float
    sent_bytes: float | None = None
    device: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindTime:
    """All kernels of one kind."""

    kind: str
    time_s: float
    count: int
    sent_bytes: float
    top: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """`busy_s`: at least one kernel runs; `span_s`: first start to last end; `overlapped_s`: communication beside other kernels."""

    kinds: tuple[KindTime, ...]
    span_s: float
    busy_s: float
    overlapped_s: float

    def seconds(self, kind: str) -> float:
        """Time of a kind, 0 where none ran."""
        return next((found.time_s for found in self.kinds if found.kind == kind), 0.0)


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[str, tuple[str, ...]], ...]:
    kinds = catalogue_yaml("engine/kernels.yaml")["kinds"]
    return tuple((entry["kind"], tuple(pattern.lower() for pattern in entry["patterns"])) for entry in kinds)


@lru_cache(maxsize=65_536)
def kind_of(name: str) -> str:
    """The kind of a kernel by its name."""
    plain = name.lower()
    return next((kind for kind, patterns in _patterns() if any(pattern in plain for pattern in patterns)), OTHER)


def _number(value: object) -> float | None:
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def _sent_bytes(arguments: Mapping[str, Any]) -> float | None:
    """Elements x width of what a collective takes in, as torch's NCCL annotations give them."""
    elements, width = _number(arguments.get("In msg nelems")), _ELEMENT_BYTES.get(str(arguments.get("dtype", "")).lower())
    return None if elements is None or elements < 0 or width is None else elements * width


def kineto_kernels(document: object) -> Iterator[Kernel]:
    """GPU events of a torch profiler trace (times in us)."""
    events = document.get("traceEvents") if isinstance(document, Mapping) else document
    if not isinstance(events, list):
        raise InputError("has no traceEvents", where="trace", remedy="export it with torch.profiler's export_chrome_trace")
    for event in events:
        if not isinstance(event, Mapping) or event.get("ph") != "X" or event.get("cat") not in _GPU_CATEGORIES:
            continue
        start, duration = _number(event.get("ts")), _number(event.get("dur"))
        if start is None or duration is None or duration < 0:
            continue
        arguments = event.get("args")
        told: Mapping[str, Any] = arguments if isinstance(arguments, Mapping) else {}
        # one RCCL kernel serves several collectives, so what torch called counts, not the kernel's name
        collective = told.get("Collective name")
        name = f"nccl {collective}" if collective else str(event.get("name", ""))
        yield Kernel(
            name=name, start_s=start * US, duration_s=duration * US, sent_bytes=_sent_bytes(told), device=str(told.get("device", ""))
        )


def rocprof_kernels(text: str) -> Iterator[Kernel]:
    """Rows of `rocprofv3 --kernel-trace --output-format csv` (times in ns)."""
    reader = csv.DictReader(io.StringIO(text))
    needed = {"Kernel_Name", "Start_Timestamp", "End_Timestamp"}
    missing = needed - set(reader.fieldnames or ())
    if missing:
        raise InputError(
            f"has no column {', '.join(sorted(missing))}",
            where="trace",
            remedy="give the kernel_trace.csv of rocprofv3, or the JSON of torch's profiler",
        )
    for row in reader:
        start, end = _number(row["Start_Timestamp"]), _number(row["End_Timestamp"])
        if start is not None and end is not None and end >= start:
            device = row.get("Agent_Id") or ""
            yield Kernel(name=row["Kernel_Name"] or "", start_s=start * NS, duration_s=(end - start) * NS, device=device)


def _covered_s(intervals: Iterable[tuple[float, float]]) -> float:
    total, reached = 0.0, -math.inf
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def summarise(kernels: Iterable[Kernel]) -> TraceSummary:
    """Time by kind, busy and overlapped time. Raises InputError where there is no kernel, or where they ran on several GPUs."""
    found = list(kernels)
    if not found:
        raise InputError("has no GPU kernel", where="trace", remedy="profile with GPU activity, on the rank that trains")
    if len(devices := {kernel.device for kernel in found}) > 1:
        raise InputError(f"has kernels of {len(devices)} GPUs", where="trace", remedy="give the trace of one rank")
    by_kind: dict[str, list[Kernel]] = {}
    for kernel in found:
        by_kind.setdefault(kind_of(kernel.name), []).append(kernel)
    spans = {kind: [(k.start_s, k.start_s + k.duration_s) for k in members] for kind, members in by_kind.items()}
    communication = [span for kind in ("a2a", "collective") for span in spans.get(kind, ())]
    compute = [span for kind, members in spans.items() if kind not in ("a2a", "collective") for span in members]
    busy_s = _covered_s([*communication, *compute])
    kinds = sorted((_kind_time(kind, members) for kind, members in by_kind.items()), key=lambda item: -item.time_s)
    return TraceSummary(
        kinds=tuple(kinds),
        span_s=max(end for members in spans.values() for _, end in members)
        - min(start for members in spans.values() for start, _ in members),
        busy_s=busy_s,
        overlapped_s=_covered_s(communication) + _covered_s(compute) - busy_s,
    )


def _kind_time(kind: str, members: list[Kernel]) -> KindTime:
    names: dict[str, float] = {}
    for kernel in members:
        names[kernel.name] = names.get(kernel.name, 0.0) + kernel.duration_s
    return KindTime(
        kind=kind,
        time_s=sum(names.values()),
        count=len(members),
        sent_bytes=sum(kernel.sent_bytes or 0.0 for kernel in members),
        top=tuple(sorted(names.items(), key=lambda item: -item[1])[:3]),
    )


def _text(path: Path) -> str:
    """The file, unpacked where it is gzip, never more than MAX_TRACE_BYTES."""
    try:
        with open_regular(path) as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with gzip.open(raw, "rb") if packed else raw as file:
                data = file.read(MAX_TRACE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        said = error.strerror if isinstance(error, OSError) else None
        raise InputError(f"cannot be read: {said or error}", where=str(path), remedy="name the trace of one rank") from None
    if len(data) > MAX_TRACE_BYTES:
        raise InputError("is larger than 2 GiB", where=str(path), remedy="profile fewer iterations")
    return data.decode("utf-8", errors="replace")


def read_trace(path: Path) -> TraceSummary:
    """Either format, by content. Raises InputError."""
    text = _text(path)
    try:
        if text.lstrip()[:1] in ("{", "["):
            return summarise(kineto_kernels(json.loads(text)))
        return summarise(rocprof_kernels(text))
    except InputError as error:
        raise InputError(error.problem, where=str(path), remedy=error.remedy) from None
    except (ValueError, RecursionError, csv.Error) as error:
        problem = f"is neither a torch profiler trace nor a rocprofv3 CSV: {error}"
        raise InputError(problem, where=str(path), remedy="export it with torch.profiler, or with rocprofv3 --kernel-trace") from None


def terms_of_trace(summary: TraceSummary, iterations: int) -> dict[Term, float]:
    """Seconds an iteration by the terms that calibration knows. Overlapped communication counts once; idle time is the host's."""
    terms: dict[Term, float] = dict.fromkeys(TERMS, 0.0)
    for kind in summary.kinds:
        terms[TERM_OF_KIND.get(kind.kind, "memory_bound")] += kind.time_s / iterations
    terms["communication"] -= summary.overlapped_s / iterations
    terms["host_and_bubble"] = (summary.span_s - summary.busy_s) / iterations
    return terms
