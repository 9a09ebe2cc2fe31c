"""trials.jsonl: every configuration that was tried and its result, one a line, in the order of their ids."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from primus_mcp.errors import RunDirectoryError
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.trials.lines import JsonLines
from primus_mcp.trials.storage import RunDirectory

LOG_NAME = "trials.jsonl"
OVERLAY_FOLDER = "trials"
Origin = Literal["seed", "llm", "coordinate", "sweep", "user"]


def utc_now() -> str:
    """UTC time in ISO 8601, to the second. For people: order comes from ids, so a clock that goes back does no harm."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class Digests(BaseModel):
    """What a log belongs to. Trials priced under other digests cannot be compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: str = Field(description="digest of the resolved workload")
    cluster: str = Field(description="digest of the target cluster, the axes that are off and the pinned knobs")
    engine: str = Field(description="version and digest of the projection engine")

    def differing(self, other: Digests) -> list[str]:
        """Names of the parts that differ, in order."""
        return [name for name in type(self).model_fields if getattr(self, name) != getattr(other, name)]


class TrialRecord(BaseModel):
    """One line of the log."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = Field(default=1, description="version of this line's format")
    trial_id: int = Field(ge=0, description="number of the trial, from 0, in order of completion")
    time: str = Field(description="UTC time of completion, ISO 8601")
    origin: Origin = Field(description="who proposed it")
    label: str = Field(default="", description="what the proposal is meant to show")
    key: str = Field(description="digest of the resolved configuration and its evaluator: equal keys are one trial")
    digests: Digests
    trial: dict[str, Any] = Field(description="the knobs as given; what is absent is inherited from the workload")
    result: EvaluationResult


class TrialLog:
    """The log of one out-dir. Opening it refuses a log of another workload, cluster or engine."""

    def __init__(self, folder: RunDirectory, digests: Digests) -> None:
        self._digests = digests
        self._lines: JsonLines[TrialRecord] = JsonLines(folder, LOG_NAME, TrialRecord.model_validate_json)
        self.path = self._lines.path
        self._by_key: dict[str, TrialRecord] = {}
        self._indexed = 0
        records = self._lines.read()
        for record in records:
            self._require_ours(record)
        self._require_each_once(records)

    def _require_ours(self, record: TrialRecord) -> None:
        differing = record.digests.differing(self._digests)
        if differing:
            what = " and ".join("cluster (or other axes or pins)" if name == "cluster" else name for name in differing)
            raise RunDirectoryError(
                f"{self.path} holds trials of another {what} (trial {record.trial_id}); "
                "use another --out-dir, or --resume --reprice to price them again"
            )

    def _require_each_once(self, records: Sequence[TrialRecord]) -> None:
        """Ids must rise and keys differ: a result is found by its id, so two trials of one id would be taken for each other."""
        keys: set[str] = set()
        for before, record in zip((None, *records), records, strict=False):
            if record.key in keys or (before is not None and record.trial_id <= before.trial_id):
                what = "is there twice" if record.key in keys else f"stands after trial {before.trial_id if before else '-'}"
                raise RunDirectoryError(
                    f"{self.path}: trial {record.trial_id} {what}, so the file was edited or joined from several; "
                    "use another --out-dir, or --resume --reprice to number and price its trials again"
                )
            keys.add(record.key)

    def records(self) -> Sequence[TrialRecord]:
        """All trials, by id."""
        return self._lines.read()

    def find(self, key: str) -> TrialRecord | None:
        """The trial with this key, if it was evaluated before."""
        records = self.records()
        if len(records) < self._indexed:
            self._by_key, self._indexed = {}, 0
        self._by_key.update((record.key, record) for record in records[self._indexed :])
        self._indexed = len(records)
        return self._by_key.get(key)

    def append(
        self, *, key: str, trial: dict[str, Any], result: EvaluationResult, origin: Origin, label: str = ""
    ) -> tuple[TrialRecord, bool]:
        """Add a trial under the next id; if another writer was faster with the same key, return its record and False."""
        found: list[TrialRecord] = []

        def make(records: Sequence[TrialRecord]) -> TrialRecord | None:
            if records:
                self._require_ours(records[-1])
            if (known := self.find(key)) is not None:
                found.append(known)
                return None
            number = records[-1].trial_id + 1 if records else 0
            return TrialRecord(
                trial_id=number,
                time=utc_now(),
                origin=origin,
                label=label,
                key=key,
                digests=self._digests,
                trial=trial,
                result=result.model_copy(update={"trial_id": number}),
            )

        made = self._lines.append(make)
        return (made, True) if made is not None else (found[0], False)
