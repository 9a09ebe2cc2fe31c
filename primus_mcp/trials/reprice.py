"""Pricing the trials of an old log again, after the workload, the cluster or the engine has changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from primus_mcp.errors import PrimusMcpError, RunDirectoryError
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.inputs.regular_file import read_regular
from primus_mcp.space.knobs import TrialConfig, set_knobs
from primus_mcp.trials.journal import JOURNAL_NAME, Done, Journal
from primus_mcp.trials.log import LOG_NAME, OVERLAY_FOLDER, Digests, Origin, TrialLog
from primus_mcp.trials.storage import RunDirectory, repair_tail, storage_error

Price = Callable[[TrialConfig, Origin], tuple[TrialConfig, str, EvaluationResult]]
"""The trial with the pins of today, its key and its result, as whoever proposed it would get them."""


class _OldTrial(BaseModel):
    """What of an old line is the proposal."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    trial: TrialConfig
    origin: Origin = "user"
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repriced:
    """`kept_as`: where the old log lies now (None: there was none). `dropped`: trials that this version cannot price, and why."""

    trials: int
    kept_as: Path | None
    dropped: tuple[str, ...]


def _old_lines(path: Path) -> list[dict[str, Any]]:
    try:
        lines = read_regular(path).splitlines()
    except OSError as error:
        raise storage_error(error, path, "read") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line) if line.strip() else None
        except ValueError as error:
            raise RunDirectoryError(f"{path}: line {number} is not JSON; remove that line or use another --out-dir") from error
        if isinstance(entry, dict):
            found.append(entry)
    return found


def _set_aside(path: Path) -> Path:
    number = 1
    while (target := path.with_name(f"{path.stem}.before-{number}{path.suffix}")).exists():
        number += 1
    try:
        path.rename(target)
    except OSError as error:
        raise storage_error(error, path, "set aside") from error
    return target


def reprice_log(folder: RunDirectory, digests: Digests, price: Price) -> Repriced:
    """Price every trial of the log again, under new ids in the old order; the old log, journal and overlays are kept beside the new ones.

    Everything is priced before anything is renamed, so a kill on the way leaves the old log as it was.
    """
    path = folder.path / LOG_NAME
    with folder.locked():
        repair_tail(path)
        if not path.exists():
            return Repriced(trials=0, kept_as=None, dropped=())
        priced: list[tuple[_OldTrial, TrialConfig, str, EvaluationResult]] = []
        dropped: list[str] = []
        for entry in _old_lines(path):
            try:
                old = _OldTrial.model_validate(entry)
                priced.append((old, *price(old.trial, old.origin)))
            except (ValidationError, PrimusMcpError) as error:
                dropped.append(f"trial {entry.get('trial_id')}: {' '.join(str(error).split())[:160]}")
        kept_as = _set_aside(path)
        for name in (JOURNAL_NAME, OVERLAY_FOLDER):
            if (folder.path / name).exists():
                _set_aside(folder.path / name)
        log, journal = TrialLog(folder, digests), Journal(folder)
        for old, trial, key, result in priced:
            record, new = log.append(key=key, trial=set_knobs(trial), result=result, origin=old.origin, label=old.label)
            journal.append(Done.of(record, old.origin, repeated=not new))
        return Repriced(trials=len(log.records()), kept_as=kept_as, dropped=tuple(dropped))
