"""The one way to open a file that a user names: regular files only, so that a pipe never waits and a device never ends."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))


def _require_regular(mode: int, path: Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))


def open_regular(path: Path) -> BinaryIO:
    """The file for reading. Raises OSError, also for a folder, pipe, socket or device, whose `strerror` says so; never waits."""
    try:
        _require_regular(path.stat().st_mode, path)
    except ValueError as error:
        raise FileNotFoundError(errno.ENOENT, "is a name that no file can have", str(path)) from error
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - a path's own open takes no opener; the caller closes it
    try:
        _require_regular(os.fstat(file.fileno()).st_mode, path)
    except OSError:
        file.close()
        raise
    return file


def read_regular(path: Path, most: int | None = None) -> bytes:
    """Its bytes. Raises OSError as `open_regular` does, and where there are more than `most`."""
    with open_regular(path) as file:
        data = file.read() if most is None else file.read(most + 1)
    if most is not None and len(data) > most:
        raise OSError(errno.EFBIG, f"has more than {most:,} bytes", str(path))
    return data
