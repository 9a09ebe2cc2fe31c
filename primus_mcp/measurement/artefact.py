"""The artefact of measured runs: one JSON file that serves memory and time, and many trials, because layers are kept by their shape."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from primus_mcp.errors import InputError
from primus_mcp.inputs.regular_file import read_regular
from primus_mcp.measurement.job import (
    DeviceMemory,
    Environment,
    Job,
    Kernels,
    Number,
    RankReport,
    Record,
    TransferTime,
    UnitFailure,
    UnitTime,
)

VERSION = 1
MAX_BYTES = 64 << 20


class Residual(Record):
    """Measured over modelled seconds of one unit, under the engine that modelled it: what calibration and ratios across shapes use."""

    key: str
    kind: str
    model: str
    engine: str
    forward: float = Field(gt=0)
    backward: float | None = Field(default=None, gt=0)


class Artefact(Record):
    """Everything measured on one device with one set of kernels: those that the target runs (`wanted`) and those that were there."""

    format: Literal["primus-mcp-benchmark"] = "primus-mcp-benchmark"
    version: Literal[1] = 1
    created: str
    environment: Environment
    wanted: Kernels
    kernels: Kernels
    number: Number
    ranks: int
    units: tuple[UnitTime, ...]
    transfers: tuple[TransferTime, ...]
    memory: tuple[DeviceMemory, ...]
    residuals: tuple[Residual, ...] = ()
    failures: tuple[UnitFailure, ...] = Field(default=(), description="units that gave no figures; tried again, last")

    def unit(self, key: str) -> UnitTime | None:
        """The measured unit of a shape."""
        return next((unit for unit in self.units if unit.key == key), None)

    def transfer(self, key: str) -> TransferTime | None:
        """The measured collective of a size."""
        return next((transfer for transfer in self.transfers if transfer.key == key), None)


def _slowest(reports: Sequence[RankReport]) -> tuple[UnitTime, ...]:
    """Each unit as the slowest rank ran it: the others wait for that rank."""
    by_key: dict[str, UnitTime] = {}
    for unit in (unit for report in reports for unit in report.units):
        known = by_key.get(unit.key)
        if known is None or unit.forward_s + unit.backward_s > known.forward_s + known.backward_s:
            by_key[unit.key] = unit
    return tuple(by_key.values())


def from_reports(reports: Sequence[RankReport], job: Job) -> Artefact:
    """What the ranks of one run say, as an artefact."""
    first = reports[0]
    failures = {failure.key: failure for report in reports for failure in report.failures}
    return Artefact(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=first.environment,
        wanted=job.kernels,
        kernels=first.kernels,
        number=job.number,
        ranks=len(reports),
        units=tuple(unit for unit in _slowest(reports) if unit.key not in failures),
        transfers=tuple({transfer.key: transfer for report in reports for transfer in report.transfers}.values()),
        memory=tuple(report.memory for report in reports),
        failures=tuple(failures.values()),
    )


def _same_machine(first: Environment, second: Environment) -> bool:
    fields = ("device", "name", "arch", "torch", "runtime", "driver", "python")
    return all(getattr(first, field) == getattr(second, field) for field in fields)


def require_same_machine(known: Artefact, environment: Environment) -> None:
    """Raises InputError where an artefact comes from another device or software."""
    if not _same_machine(known.environment, environment):
        text = f"it was measured on {_described(known.environment)}, not on this {_described(environment)}"
        raise InputError(text, where="benchmark artefact", remedy="start a new one with another file name")


def _described(environment: Environment) -> str:
    return f"{environment.name} with torch {environment.torch} {environment.runtime or ''}".strip()


def merged(known: Artefact | None, new: Artefact) -> Artefact:
    """Both, the newer figure where a shape was measured twice. Raises InputError when they come from different machines or kernels."""
    if known is None:
        return new
    require_same_machine(known, new.environment)
    if known.kernels != new.kernels or known.wanted != new.wanted or known.number != new.number:
        text = f"it was measured with {known.kernels} in {known.number}, this run with {new.kernels} in {new.number}"
        raise InputError(text, where="benchmark artefact", remedy="start a new one with another file name")
    units = {unit.key: unit for unit in (*known.units, *new.units)}
    transfers = {transfer.key: transfer for transfer in (*known.transfers, *new.transfers)}
    failures = {failure.key: failure for failure in (*known.failures, *new.failures) if failure.key not in units}
    return new.model_copy(
        update={
            "units": tuple(units.values()),
            "transfers": tuple(transfers.values()),
            "memory": _memory(known, new),
            "residuals": known.residuals,
            "failures": tuple(failures.values()),
        }
    )


def _memory(known: Artefact, new: Artefact) -> tuple[DeviceMemory, ...]:
    """The newer counters, unless they are of a run without layers, or of one that did not come to its end."""
    told = any(memory.device_bytes is not None for memory in new.memory)
    return new.memory if new.units and (told or all(memory.device_bytes is None for memory in known.memory)) else known.memory


def with_residuals(artefact: Artefact, residuals: Iterable[Residual]) -> Artefact:
    """The artefact with these residuals; one a shape and model."""
    table = {(residual.key, residual.model): residual for residual in (*artefact.residuals, *residuals)}
    return artefact.model_copy(update={"residuals": tuple(table.values())})


def save(artefact: Artefact, path: Path) -> None:
    """The whole file or the old one. Raises InputError (unwritable, full)."""
    write_whole(path, artefact.model_dump_json(indent=1))


def write_whole(path: Path, text: str) -> None:
    """Temporary file beside it, fsync, rename. Raises InputError."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
    except OSError as error:
        problem = f"cannot be written: {error.strerror or error}"
        raise InputError(problem, where=str(path), remedy="free space or name another file; nothing was replaced") from None


def load(path: Path) -> Artefact:
    """An artefact file. Raises InputError for anything that is not one of this version."""
    try:
        data = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path), remedy="name a file of --save-benchmark") from None
    try:
        return Artefact.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "file"
        problem = f"is no benchmark artefact of version {VERSION}: {place}: {first['msg']}"
        raise InputError(problem, where=str(path), remedy="measure again with --save-benchmark") from None
