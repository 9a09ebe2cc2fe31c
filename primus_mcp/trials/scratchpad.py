"""scratchpad.txt: notes that are carried from round to round, and to the reader of the run."""

from __future__ import annotations

from primus_mcp.inputs.regular_file import read_regular
from primus_mcp.trials.storage import RunDirectory, append_whole, storage_error

SCRATCHPAD_NAME = "scratchpad.txt"


class Scratchpad:
    """Append-only text; exists, empty, as soon as the out-dir does."""

    def __init__(self, folder: RunDirectory) -> None:
        self._folder = folder
        self.path = folder.path / SCRATCHPAD_NAME
        if not self.path.exists():
            with folder.locked():
                append_whole(self.path, b"")

    def append(self, text: str) -> None:
        """Add a note, ending in one newline."""
        with self._folder.locked():
            append_whole(self.path, text.rstrip("\n").encode("utf-8", "replace") + b"\n")

    def read(self) -> str:
        """All notes."""
        try:
            return read_regular(self.path).decode("utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise storage_error(error, self.path, "read") from error
