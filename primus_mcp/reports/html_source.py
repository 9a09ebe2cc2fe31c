"""What a report is made of, read leniently from an out-dir: a half-written or partly foreign log still reports, and says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from primus_mcp.errors import RunDirectoryError
from primus_mcp.evaluation.rank import Ranking, rank
from primus_mcp.reports.summary import overlay_name
from primus_mcp.trials.log import LOG_NAME, TrialRecord

SWEEP_NAME = "sweep.json"
"""What `primus-mcp sweep --out-dir` leaves: {"sweeps": [...], "front": [...]}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSource:
    """`unread`: lines of the log that could not be read. The documents are {} where there is none."""

    folder: Path
    records: tuple[TrialRecord, ...]
    unread: int
    summary: Mapping[str, Any]
    session: Mapping[str, Any]
    sweep: Mapping[str, Any]

    @property
    def ranking(self) -> Ranking:
        """The best trial of the log."""
        return rank([record.result for record in self.records])

    @property
    def cap_gb(self) -> float | None:
        """The memory cap of the search; None where nothing states it."""
        cap = self.summary.get("memory_cap_gb")
        return float(cap) if isinstance(cap, int | float) else None

    def record(self, trial_id: int | None) -> TrialRecord | None:
        """A trial by its number."""
        return next((record for record in self.records if record.trial_id == trial_id), None)

    @property
    def sweeps(self) -> list[Mapping[str, Any]]:
        """What `sweep.json` says of each cluster."""
        return [entry for entry in self.sweep.get("sweeps", []) if isinstance(entry, dict)]

    @property
    def front(self) -> list[Mapping[str, Any]]:
        """The points of `sweep.json` that none other beats."""
        return [point for point in self.sweep.get("front", []) if isinstance(point, dict)]

    @property
    def baseline(self) -> TrialRecord | None:
        """The trial that changes nothing."""
        return next((record for record in self.records if not record.trial), None)

    def overlay(self, trial_id: int) -> str | None:
        """The overlay file of a trial."""
        try:
            return (self.folder / overlay_name(trial_id)).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None


def _document(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def read_report(folder: Path) -> ReportSource:
    """Everything there is. Raises RunDirectoryError where there is neither a log nor a sweep."""
    log, sweep = folder / LOG_NAME, _document(folder / SWEEP_NAME)
    records: list[TrialRecord] = []
    unread = 0
    try:
        lines = log.read_bytes().splitlines()
    except FileNotFoundError:
        lines = []
        if not sweep:
            raise RunDirectoryError(f"{folder} holds neither {LOG_NAME} nor {SWEEP_NAME}; run `primus-mcp tune` or `sweep` first") from None
    except OSError as error:
        raise RunDirectoryError(f"cannot read {log}: {error.strerror or error}") from error
    for line in lines:
        if not line.strip():
            continue
        try:
            records.append(TrialRecord.model_validate_json(line))
        except ValueError:
            unread += 1
    return ReportSource(
        folder=folder,
        records=tuple(records),
        unread=unread,
        summary=_document(folder / "summary.json"),
        session=_document(folder / "session.json"),
        sweep=sweep,
    )
