"""Files that survive a kill, a full disk and several writers: one lock a folder, fsynced appends, atomic replacement.

Every `OSError` becomes a `RunDirectoryError` of one line. This module is the only one that knows about file descriptors.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock, get_ident
from typing import BinaryIO

from filelock import FileLock, Timeout

from primus_mcp.errors import RunDirectoryError

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

LOCK_NAME = ".lock"
LOCK_TIMEOUT_S = 60.0
_CHUNK_BYTES = 65536
_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
_log = logging.getLogger(__name__)


def storage_error(error: OSError, path: Path, doing: str) -> RunDirectoryError:
    """What happened to which file, and the remedy, in one line."""
    if error.errno in _FULL:
        remedy = "free space and run again (tune: with --resume): nothing that was logged is lost"
    elif isinstance(error, NotADirectoryError | FileExistsError | IsADirectoryError):
        remedy = "choose another --out-dir: a file or folder of that name is in the way"
    else:
        remedy = "choose a writable --out-dir"
    return RunDirectoryError(f"cannot {doing} {path}: {error.strerror or error}; {remedy}")


class RunDirectory:
    """A folder that several processes and threads may write to; `locked()` gives one of them the right to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._identity = self._identify()
        except OSError as error:
            raise storage_error(error, path, "create") from error
        self._thread_lock = RLock()
        self._held = False
        self._lock = FileLock(path / LOCK_NAME, timeout=LOCK_TIMEOUT_S)

    def _identify(self) -> tuple[int, int]:
        stat = self.path.stat()
        return stat.st_dev, stat.st_ino

    def _require_present(self) -> None:
        """A folder that was deleted, or put in its place, lacks the trials that this run knows: writing on would make half a log."""
        try:
            present = self._identify() == self._identity
        except FileNotFoundError:
            present = False
        except OSError as error:
            raise storage_error(error, self.path, "write to") from error
        if not present:
            raise RunDirectoryError(f"{self.path} was removed or replaced while this run was writing to it; run again")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock, against other threads and other processes; reentrant; freed by the system when a process dies."""
        with self._thread_lock:
            if self._held:
                yield
                return
            self._require_present()
            try:
                descriptor = self._lock_if_free()
                if descriptor is None:
                    self._lock.acquire()
            except Timeout as error:
                raise RunDirectoryError(
                    f"{self.path} has been locked by another process for {LOCK_TIMEOUT_S:.0f} s; stop it or use another --out-dir"
                ) from error
            except OSError as error:
                raise storage_error(error, self.path, "write to") from error
            try:
                self._held = True
                yield
            finally:
                self._held = False
                if descriptor is None:
                    self._lock.release()
                else:
                    _unlock(descriptor)

    def _lock_if_free(self) -> int | None:
        """The lock as it mostly is to be had, without a wait: a descriptor. None: another holds it, or the system knows no `flock`; then
        FileLock, which takes the same lock of the same file, waits or finds another way. Raises OSError where the file cannot be.
        """
        descriptor = os.open(self.path / LOCK_NAME, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
        except OSError:
            pass
        os.close(descriptor)
        return None

    def write(self, name: str, content: str | bytes, *, durable: bool = True) -> None:
        """Replace a file of the folder as a whole."""
        with self.locked():
            write_atomic(self.path / name, content, durable=durable)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Hold the thread lock only: for reads, which never wait for other processes."""
        with self._thread_lock:
            yield


def _unlock(descriptor: int) -> None:
    """Also where a process that was forked meanwhile has a copy of the descriptor."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Make a new or renamed entry durable; systems that cannot open a folder (Windows) do it by themselves."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _require_replaceable(path: Path) -> None:
    """A device, pipe or folder is neither replaced by a file nor written to, which might wait for ever."""
    if path.exists() and not path.is_file():
        raise RunDirectoryError(f"cannot write {path}: not a regular file; name another file or folder")


def _swap_in(path: Path, temporary: Path, content: str | bytes, *, durable: bool) -> None:
    """Write beside the file, fsync where `durable`, rename. Raises OSError; the temporary file never stays."""
    _require_replaceable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temporary.open("wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        _sync_folder(path.parent)


def write_atomic(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Replace a file: temporary file beside it, fsync, rename. A reader sees the old file or the new one, never half of it.

    The caller holds the folder's lock. The temporary file's name is fixed, so what a kill leaves is taken up by the next write.
    Not `durable`: without fsync, for files that can be made again; a kill does no harm, a power cut may empty them.
    """
    try:
        _swap_in(path, path.with_name(f".{path.name}.tmp"), content, durable=durable)
    except OSError as error:
        raise storage_error(error, path, "write") from error


def write_unlocked(path: Path, content: str | bytes, remedy: str) -> None:
    """Replace a file of a folder that is no out-dir of ours and in which no lock file is to stay: each writer has a temporary file of its
    own, and the last one's content stays. Raises RunDirectoryError that ends with the remedy.
    """
    try:
        _swap_in(path, path.with_name(f".{path.name}.{os.getpid()}-{get_ident()}.tmp"), content, durable=False)
    except OSError as error:
        raise RunDirectoryError(f"cannot write {path}: {error.strerror or error}; {remedy}") from error


def append_whole(path: Path, data: bytes, *, durable: bool = True) -> int:
    """Append and fsync (not `durable`: left to the next durable append), and return the offset; the caller holds the folder's lock.

    What a failed or interrupted append left is cut off again.
    """
    try:
        new = not path.exists()
        _require_replaceable(path)
        with path.open("ab", buffering=0) as file:
            before, written = file.seek(0, os.SEEK_END), 0
            try:
                while written < len(data):
                    written += file.write(data[written:]) or 0
                if durable:
                    os.fsync(file.fileno())
            finally:
                if written < len(data):
                    with suppress(OSError):
                        file.truncate(before)
        if new:
            _sync_folder(path.parent)
    except OSError as error:
        raise storage_error(error, path, "append to") from error
    return before


def _tail_start(file: BinaryIO, size: int) -> int:
    """Offset just after the last newline (0 when there is none), found from the end, where it mostly is."""
    end, chunk = size, 1
    while end > 0:
        start = max(0, end - chunk)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end, chunk = start, _CHUNK_BYTES
    return 0


def _is_complete(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def repair_tail(path: Path) -> None:
    """Drop what an append cut short by a kill left after the last newline (the caller holds the folder's lock).

    Only bytes after the last newline are touched. A last line that is complete and lacks only its newline gets it and stays.
    """
    try:
        if path.exists() and not path.is_file():
            remedy = "choose another --out-dir: a file or folder of that name is in the way"
            raise RunDirectoryError(f"cannot use {path}: not a regular file; {remedy}")
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            start = _tail_start(file, size)
            if start == size:
                return
            file.seek(start)
            if _is_complete(file.read()):
                file.write(b"\n")
            else:
                file.truncate(start)
                _log.warning("%s: dropped %d bytes of an entry that was cut short; it will be made again", path, size - start)
            file.flush()
            os.fsync(file.fileno())
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error(error, path, "repair") from error
