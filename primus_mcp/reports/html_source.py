"""What a report is made of, read leniently from an out-dir: a half-written or partly foreign log still reports, and says so."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from primus_mcp.errors import RunDirectoryError
from primus_mcp.evaluation.rank import Ranking, rank
from primus_mcp.inputs.regular_file import read_regular
from primus_mcp.reports.charts.words import known, plural
from primus_mcp.reports.summary import overlay_name
from primus_mcp.search.pareto import FrontPoint
from primus_mcp.search.sensitivity import Sensitivity
from primus_mcp.search.sweep_result import SweepResult
from primus_mcp.search.sweep_timeline import Task
from primus_mcp.trials.log import LOG_NAME, TrialRecord

Model = TypeVar("Model", bound=BaseModel)
SWEEP_NAME = "sweep.json"
"""What `primus-mcp sweep --out-dir` leaves: {"sweeps": [...], "front": [...]}."""


class Swept(SweepResult):
    """What `sweep.json` says of one cluster: the result, how sure it is, and the pipeline of its first."""

    sensitivity: Sensitivity | None = None
    timeline: tuple[Task, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSource:
    """`unread`: lines of the log that could not be read, `unread_sweeps`: parts of sweep.json, of which `lost_clusters` are named. The
    documents are {} where there is none.
    """

    folder: Path
    records: tuple[TrialRecord, ...]
    unread: int
    summary: Mapping[str, Any]
    sweeps: tuple[Swept, ...]
    front: tuple[FrontPoint, ...]
    unread_sweeps: int
    lost_clusters: tuple[str, ...] = ()

    @property
    def left_out(self) -> list[str]:
        """What of the out-dir a page of it does not show, and why."""
        ends = "could not be read: broken or of another version; left out here"
        named = f" ({', '.join(self.lost_clusters)})" if self.lost_clusters else ""
        log = plural(self.unread, "line of the log", "lines of the log")
        parts = plural(self.unread_sweeps, "part of sweep.json", "parts of sweep.json")
        return [*([f"{log} {ends}."] if log else []), *([f"{parts}{named} {ends}; run the sweep again."] if parts else [])]

    @property
    def ranking(self) -> Ranking:
        """The best trial of the log."""
        return rank([record.result for record in self.records])

    @property
    def cap_gb(self) -> float | None:
        """The memory cap of the search; None where nothing states it."""
        cap = self.summary.get("memory_cap_gb")
        return cap if isinstance(cap, float) and known(cap) and cap > 0 else None

    def record(self, trial_id: int | None) -> TrialRecord | None:
        """A trial by its number."""
        return next((record for record in self.records if record.trial_id == trial_id), None)

    @property
    def baseline(self) -> TrialRecord | None:
        """The trial that changes nothing."""
        return next((record for record in self.records if not record.trial), None)

    def overlay(self, trial_id: int) -> str | None:
        """The overlay file of a trial."""
        try:
            return read_regular(self.folder / overlay_name(trial_id)).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            return None


def _document(path: Path) -> Mapping[str, Any] | None:
    """None: there is a file, and it is no document."""
    try:
        content = json.loads(read_regular(path).decode("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _read(model: type[Model], document: Mapping[str, Any], name: str) -> tuple[tuple[Model, ...], list[Any]]:
    """(the entries of a list that are what this version writes, those that are not)."""
    listed = document.get(name, [])
    found, lost = [], []
    for entry in listed if isinstance(listed, list) else [listed]:
        try:
            found.append(model.model_validate(entry))
        except ValidationError:
            lost.append(entry)
    return tuple(found), lost


def _clusters(entries: Sequence[Any]) -> tuple[str, ...]:
    """The names that they give, each once."""
    names = (entry.get("cluster") for entry in entries if isinstance(entry, Mapping))
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str)))


def _record(line: bytes) -> TrialRecord | None:
    """None: half a line, another version's, or a throughput that nothing has."""
    try:
        record = TrialRecord.model_validate_json(line)
    except ValueError:
        return None
    return record if (record.result.tokens_per_s_per_gpu or 0.0) >= 0 else None


def read_report(folder: Path) -> ReportSource:
    """Everything there is. Raises RunDirectoryError where there is neither a log nor a sweep."""
    log, sweep = folder / LOG_NAME, _document(folder / SWEEP_NAME)
    (sweeps, lost), (front, lost_points) = _read(Swept, sweep or {}, "sweeps"), _read(FrontPoint, sweep or {}, "front")
    unread_sweeps = len(lost) + len(lost_points) + (sweep is None)
    records: list[TrialRecord] = []
    unread = 0
    try:
        lines = read_regular(log).splitlines()
    except FileNotFoundError:
        lines = []
        if not sweeps:
            if unread_sweeps:
                raise RunDirectoryError(f"{folder / SWEEP_NAME} is broken or of another version; run `primus-mcp sweep` again") from None
            raise RunDirectoryError(f"{folder} holds neither {LOG_NAME} nor {SWEEP_NAME}; run `primus-mcp tune` or `sweep` first") from None
    except OSError as error:
        raise RunDirectoryError(f"cannot read {log}: {error.strerror or error}") from error
    for line in lines:
        if not line.strip():
            continue
        record = _record(line)
        unread += record is None
        records += [record] if record else []
    return ReportSource(
        folder=folder,
        records=tuple(records),
        unread=unread,
        summary=_document(folder / "summary.json") or {},
        sweeps=sweeps,
        front=front,
        unread_sweeps=unread_sweeps,
        lost_clusters=_clusters(lost),
    )
