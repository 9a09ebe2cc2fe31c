"""A file of JSON lines that several writers append to: read incrementally, appended under the folder's lock, torn tail repaired."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from primus_mcp.errors import RunDirectoryError
from primus_mcp.inputs.regular_file import open_regular
from primus_mcp.trials.storage import RunDirectory, append_whole, repair_tail, storage_error

Record = TypeVar("Record", bound=BaseModel)


def _why(error: ValueError) -> tuple[str, str]:
    """What is wrong with a line, in few words, and the remedy."""
    remedy = "remove that line or use another --out-dir"
    if not isinstance(error, ValidationError):
        return " ".join(str(error).split())[:200], remedy
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    if place == "schema_version":
        remedy = "use another --out-dir, or --resume --reprice to price its trials again"
    return f"{place}: {first['msg']}" if place else str(first["msg"]), remedy


class JsonLines(Generic[Record]):
    """`parse(line) -> record` raises ValueError for a foreign line; the error that users see names the file and the line."""

    def __init__(self, folder: RunDirectory, name: str, parse: Callable[[bytes], Record]) -> None:
        self.path: Path = folder.path / name
        self._folder, self._parse = folder, parse
        self._records: list[Record] = []
        self._all: tuple[Record, ...] = ()
        self._offset = self._line = self._inode = 0
        with folder.locked():
            repair_tail(self.path)
            self.read()

    def read(self) -> Sequence[Record]:
        """Every complete line so far; only what is new since the last call is parsed. A line in the making is left for later.

        The same object as before where nothing is new.
        """
        with self._folder.guarded():
            try:
                stat = os.stat(self.path)  # noqa: PTH116 - asked before every event
                if (stat.st_size, stat.st_ino) == (self._offset, self._inode):
                    return self._all
                with open_regular(self.path) as file:
                    stat = os.fstat(file.fileno())
                    if stat.st_size < self._offset or stat.st_ino != self._inode:
                        self._records, self._offset, self._line, self._inode = [], 0, 0, stat.st_ino
                    file.seek(self._offset)
                    fresh = file.read()
            except FileNotFoundError:
                self._records, self._offset, self._line, self._all = [], 0, 0, ()
                return ()
            except OSError as error:
                raise storage_error(error, self.path, "read") from error
            return self._take(fresh)

    def _take(self, fresh: bytes) -> Sequence[Record]:
        """Add the complete lines of what stands in the file after those that are known; all records."""
        for line in fresh[: fresh.rfind(b"\n") + 1].splitlines(keepends=True):
            self._line += 1
            if line.strip():
                self._records.append(self._parsed(line))
            self._offset += len(line)
        self._all = tuple(self._records)
        return self._all

    def _parsed(self, line: bytes) -> Record:
        try:
            return self._parse(line)
        except ValueError as error:
            number, self._line = self._line, self._line - 1
            text, remedy = _why(error)
            raise RunDirectoryError(f"{self.path}: line {number} is not an entry of this version ({text}); {remedy}") from error

    def append(self, make: Callable[[Sequence[Record]], Record | None], *, durable: bool = True) -> Record | None:
        """Under the lock: read what others wrote, let `make` decide from all of it, append its record (None: nothing) and fsync."""
        with self._folder.locked():
            repair_tail(self.path)
            record = make(self.read())
            if record is not None:
                line = record.model_dump_json().encode("utf-8") + b"\n"
                if append_whole(self.path, line, durable=durable) == self._offset > 0:
                    self._take(line)
                else:
                    self.read()
            return record
