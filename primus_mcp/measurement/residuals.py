"""Residual files: measured against modelled seconds of every operator kind that was ever measured, by model and GPU.

One lies in the out-dir of a session, one in the user's cache, so that evidence gathers over sessions. Nothing reads them unasked:
`primus-mcp calibrate --residuals` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock
from pydantic import Field, ValidationError

from primus_mcp.errors import InputError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.regular_file import read_regular
from primus_mcp.measurement.artefact import Artefact, write_whole
from primus_mcp.measurement.calibration import TERMS, Point, Term
from primus_mcp.measurement.factors import Factor
from primus_mcp.measurement.job import Record
from primus_mcp.measurement.launch import cache_folder
from primus_mcp.version import engine_version

FILE_NAME = "residuals.jsonl"
MAX_BYTES = 64 << 20
LOCK_S = 10.0


class StoredResidual(Record):
    """One operator kind of one shape: seconds of forward and backward, measured, and modelled by term. `own_kernels`: the target's."""

    gpu: str
    profile: str
    engine: str
    model: str
    kind: str
    key: str
    own_kernels: bool
    device: str
    torch: str
    measured_s: float = Field(gt=0)
    terms_s: dict[Term, float]
    created: str

    @property
    def identity(self) -> tuple[str, ...]:
        """What a newer figure replaces."""
        return (self.gpu, self.profile, self.engine, self.model, self.kind, self.key, str(self.own_kernels), self.torch)


def cache_file() -> Path:
    """The user's own, over all sessions."""
    return cache_folder() / FILE_NAME


def stored_residual(
    arch: Architecture, measured: Cluster, artefact: Artefact, kind: str, key: str, factor: Factor, *, own: bool
) -> StoredResidual:
    """A measured factor as a line. `measured`: the device whose model it was held against."""
    environment = artefact.environment
    return StoredResidual(
        gpu=environment.gpu or environment.arch,
        profile=measured.profile.name,
        engine=engine_version(),
        model=arch.name,
        kind=kind,
        key=key,
        own_kernels=own,
        device=environment.device,
        torch=environment.torch,
        measured_s=factor.measured_s,
        terms_s=dict(factor.terms_s),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def read_residuals(path: Path) -> tuple[StoredResidual, ...]:
    """The lines of a file; none where it does not exist. Raises InputError with the line."""
    try:
        lines = read_regular(path, MAX_BYTES).decode("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path), remedy=f"name a {FILE_NAME}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(StoredResidual.model_validate_json(line))
        except ValidationError as error:
            problem = f"line {number} is no residual: {error.errors(include_url=False)[0]['msg']}"
            raise InputError(problem, where=str(path), remedy="remove the line, or the file") from None
    return tuple(found)


def keep_residuals(new: Iterable[StoredResidual], path: Path) -> None:
    """Add lines, a newer figure of the same shape in the place of the older. The whole file or the old one. Raises InputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock"), timeout=LOCK_S):
            table: Mapping[tuple[str, ...], StoredResidual] = {line.identity: line for line in (*read_residuals(path), *new)}
            write_whole(path, "".join(line.model_dump_json() + "\n" for line in table.values()))
    except (OSError, TimeoutError) as error:
        raise InputError(f"cannot be written: {error}", where=str(path), remedy="free space, or set XDG_CACHE_HOME") from None


def points_of_residuals(
    residuals: Sequence[StoredResidual], gpu: str | None = None, profile: str | None = None
) -> tuple[list[Point], str, str]:
    """(points, GPU, profile) of residuals of the target's own kernels under this engine. Raises InputError where GPUs or profiles mix."""
    engine = engine_version()
    own = (line for line in residuals if line.own_kernels and line.engine == engine)
    chosen = [line for line in own if gpu in (None, line.gpu) and profile in (None, line.profile)]
    machines = sorted({(line.gpu, line.profile) for line in chosen})
    if len(machines) > 1:
        names = ", ".join(f"{name} ({dated})" for name, dated in machines)
        raise InputError(f"residuals are of several machines: {names}", where="--residuals", remedy="choose one with --gpu and --profile")
    points = [
        Point(
            name=f"{line.model} {line.kind}",
            measured_s=line.measured_s,
            terms_s={term: line.terms_s.get(term, 0.0) for term in TERMS},
        )
        for line in chosen
    ]
    name, dated = machines[0] if machines else ("", "")
    return points, name, dated
