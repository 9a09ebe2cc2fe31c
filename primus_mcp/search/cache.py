"""Best known configurations across runs and projects: one SQLite file in the user's cache folder, safe with many processes.

Entries are kept by workload, cluster and engine digest. Only those of this engine are numbers; those of another version are proposals,
to be priced again. Losing the file loses nothing but time.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from primus_mcp.errors import RunDirectoryError
from primus_mcp.evaluation.rank import format_order, price_order
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.trials.log import Digests, utc_now

BUSY_S = 10.0
"""How long a locked file is waited for."""
KEPT_A_PROBLEM = 200
"""Fastest entries that are kept of one workload, cluster and engine."""
_READ_A_PROPOSAL = 32
"""Entries that are read for one proposal, since many are priced alike."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS best (
  workload TEXT NOT NULL, cluster TEXT NOT NULL, engine TEXT NOT NULL, key TEXT NOT NULL,
  name TEXT NOT NULL, time TEXT NOT NULL, rate REAL NOT NULL, memory_gb REAL, trial TEXT NOT NULL, result TEXT NOT NULL,
  PRIMARY KEY (workload, cluster, engine, key)
)"""

_COLUMNS = "SELECT workload, cluster, engine, key, name, time, trial, result FROM best"


class CachedTrial(BaseModel):
    """One entry. `name`: workload and cluster for people."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    digests: Digests
    key: str
    name: str
    time: str
    trial: dict[str, Any]
    result: EvaluationResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Knobs that an earlier run found best, and where they are from."""

    trial: dict[str, Any]
    name: str
    time: str


def _preference(entry: CachedTrial) -> tuple[float, float, int, int, str]:
    """Smaller is better: as a ranking orders, then by key."""
    return (*price_order(entry.result), format_order(entry.result), entry.key)


def cache_file() -> Path:
    """PRIMUS_MCP_CACHE_DIR, else the system's cache folder: XDG_CACHE_HOME, LOCALAPPDATA or ~/.cache."""
    chosen = os.environ.get("PRIMUS_MCP_CACHE_DIR")
    if chosen:
        return Path(chosen) / "best.sqlite"
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(base) if base else Path.home() / ".cache") / "primus-mcp" / "best.sqlite"


class TrialCache:
    """Opened anew for every operation, so that no process holds the file."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path if path is not None else cache_file()

    @contextmanager
    def _connection(self, *, reads: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction; one that only `reads` needs no right to write. Raises RunDirectoryError with the remedy where the file cannot be
        used.
        """
        try:
            if reads:
                name = f"{self.path.absolute().as_uri()}?mode=ro"
            else:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                name = self.path.absolute().as_uri()
            with closing(sqlite3.connect(name, timeout=BUSY_S, uri=True)) as connection, connection:
                if not reads:
                    connection.execute(_SCHEMA)
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise RunDirectoryError(f"the cache {self.path} cannot be used: {error}; delete it, or set PRIMUS_MCP_CACHE_DIR") from error

    def remember(self, digests: Digests, name: str, entries: Iterable[tuple[str, dict[str, Any], EvaluationResult]]) -> int:
        """Keep priced trials (key, knobs, result), the fastest KEPT_A_PROBLEM of a problem. Returns how many were given."""
        now = utc_now()
        rows = [
            (digests.workload, digests.cluster, digests.engine, key, name, now, result.tokens_per_s_per_gpu, result.memory_per_gpu_gb,
             json.dumps(trial), result.model_dump_json())
            for key, trial, result in entries
            if result.tokens_per_s_per_gpu is not None
        ]  # fmt: skip
        with self._connection() as connection:
            connection.executemany("INSERT OR REPLACE INTO best VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            problem = (digests.workload, digests.cluster, digests.engine)
            connection.execute(
                "DELETE FROM best WHERE workload = ?1 AND cluster = ?2 AND engine = ?3 AND key NOT IN (SELECT key FROM best WHERE "
                "workload = ?1 AND cluster = ?2 AND engine = ?3 ORDER BY rate DESC, key LIMIT ?4)",
                (*problem, KEPT_A_PROBLEM),
            )
        return len(rows)

    def best(self, digests: Digests, limit: int = 10) -> list[CachedTrial]:
        """Entries of this very problem and engine, fastest first; at one price as a ranking prefers them."""
        found = self._select(
            "WHERE workload = ? AND cluster = ? AND engine = ? ORDER BY rate DESC, key",
            (digests.workload, digests.cluster, digests.engine),
        )
        return sorted(found, key=_preference)[:limit]

    def proposals(self, digests: Digests, limit: int = 10) -> list[Proposal]:
        """Knobs of the best entries of this workload, of any engine, this cluster first: worth pricing again, not numbers.

        Of those that one engine priced alike to four digits, only the one with the least memory: spellings of one idea teach nothing.
        """
        found = self._select(
            "WHERE workload = ? ORDER BY cluster = ? DESC, engine = ? DESC, rate DESC, memory_gb, key LIMIT ?",
            (digests.workload, digests.cluster, digests.engine, limit * _READ_A_PROPOSAL),
        )
        alike: dict[tuple[str, str, str], CachedTrial] = {}
        for entry in found:
            kind = (entry.digests.cluster, entry.digests.engine, f"{entry.result.tokens_per_s_per_gpu:.4g}")
            alike[kind] = min(alike.get(kind, entry), entry, key=lambda one: _preference(one)[1:])
        distinct: dict[str, Proposal] = {}
        for entry in alike.values():
            distinct.setdefault(json.dumps(entry.trial, sort_keys=True), Proposal(trial=entry.trial, name=entry.name, time=entry.time))
        return list(distinct.values())[:limit]

    def entries(self) -> list[CachedTrial]:
        """Everything, newest first."""
        return self._select("ORDER BY time DESC, rate DESC, key", ())

    def clear(self, *, keep_engine: str | None = None) -> int:
        """Delete everything, or everything of other engines. Returns how many entries went."""
        with self._connection() as connection:
            if keep_engine is None:
                return connection.execute("DELETE FROM best").rowcount
            return connection.execute("DELETE FROM best WHERE engine != ?", (keep_engine,)).rowcount

    def _select(self, tail: str, values: tuple[Any, ...]) -> list[CachedTrial]:
        """Rows as records; one that this version cannot read is left out. `tail` is written in this file only."""
        if not self.path.exists():
            return []
        with self._connection(reads=True) as connection:
            made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'best'").fetchone()
            rows = connection.execute(f"{_COLUMNS} {tail}", values).fetchall() if made else []
        found = []
        for workload, cluster, engine, key, name, time, trial, result in rows:
            try:
                found.append(
                    CachedTrial(
                        digests=Digests(workload=workload, cluster=cluster, engine=engine),
                        key=key,
                        name=name,
                        time=time,
                        trial=json.loads(trial),
                        result=EvaluationResult.model_validate_json(result),
                    )
                )
            except (ValueError, TypeError, RecursionError):
                continue
        return found
