"""Files of an out-dir: whole or absent, one line of error, nothing lost."""

from __future__ import annotations

import errno
import logging
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from primus_mcp.errors import RunDirectoryError
from primus_mcp.trials.scratchpad import Scratchpad
from primus_mcp.trials.storage import LOCK_NAME, RunDirectory, append_whole, repair_tail, storage_error, write_atomic


def one_line(error: pytest.ExceptionInfo[RunDirectoryError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert "--out-dir" in text or "--resume" in text
    return text


def test_an_out_dir_that_is_a_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    with pytest.raises(RunDirectoryError) as error:
        RunDirectory(tmp_path / "taken")
    assert "taken" in one_line(error)
    with pytest.raises(RunDirectoryError):
        RunDirectory(tmp_path / "taken" / "below")


def test_a_read_only_out_dir_is_refused_in_one_line(tmp_path: Path) -> None:
    """In a process without the right to write (a superuser may write anywhere)."""
    tmp_path.chmod(0o555)
    code = (
        "import os, sys, pathlib\n"
        "from primus_mcp.errors import RunDirectoryError\n"
        "from primus_mcp.trials.storage import RunDirectory\n"
        "os.geteuid() or os.setuid(65534)\n"
        "try:\n"
        "    with RunDirectory(pathlib.Path(sys.argv[1])).locked(): pass\n"
        "except RunDirectoryError as error:\n"
        "    print(error)\n"
    )
    for folder in (tmp_path, tmp_path / "new"):
        shown = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True).stdout
        assert shown.count("\n") == 1 and "--out-dir" in shown and "denied" in shown.lower(), shown


def test_a_disk_that_fills_up_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """A file size limit makes the system refuse a write half-way, as a full disk does."""
    path = tmp_path / "log.jsonl"
    append_whole(path, b'{"a": 1}\n')
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, hard))
    try:
        with pytest.raises(RunDirectoryError) as error:
            append_whole(path, b'{"b": 2}\n')
        with pytest.raises(RunDirectoryError):
            write_atomic(path, b"x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "--resume" in one_line(error)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["log.jsonl"]


def test_a_full_disk_says_that_space_is_the_remedy() -> None:
    error = storage_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), Path("x"), "append to")
    assert "No space left" in str(error) and "free space" in str(error)


@pytest.mark.parametrize("tail", [b'{"c": ', b"\x00\x00\x00", b'{"c": 3', b'"half'])
def test_a_torn_last_line_is_dropped_with_a_warning_and_complete_lines_stay(
    tmp_path: Path, tail: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log.jsonl"
    whole = b'{"a": 1}\n{"b": 2}\n'
    path.write_bytes(whole + tail)
    with caplog.at_level(logging.WARNING):
        repair_tail(path)
    assert path.read_bytes() == whole
    assert str(len(tail)) in caplog.text


def test_a_complete_last_line_without_its_newline_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b": 2}')
    repair_tail(path)
    assert path.read_bytes() == b'{"a": 1}\n{"b": 2}\n'


def test_a_torn_line_longer_than_a_chunk_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a": 1}\n' + b'{"b": "' + b"x" * 200_000)
    repair_tail(path)
    assert path.read_bytes() == b'{"a": 1}\n'


def test_atomic_writes_replace_whole_files_and_leave_nothing_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "summary.json"
    write_atomic(path, "one")
    write_atomic(path, "zwei ✓")
    assert path.read_text(encoding="utf-8") == "zwei ✓"
    assert len(list(path.parent.iterdir())) == 1


def test_the_scratchpad_exists_at_once_and_keeps_what_is_appended(tmp_path: Path) -> None:
    folder = RunDirectory(tmp_path / "run")
    pad = Scratchpad(folder)
    assert pad.path.read_text() == "" and pad.read() == ""
    pad.append("first\n\n")
    Scratchpad(folder).append("second ✓ \ud800")
    assert pad.read() == "first\nsecond ✓ ?\n"


@pytest.mark.parametrize("name", ["trials.jsonl", "journal.jsonl"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "endless"])
def test_what_is_no_regular_file_is_refused_and_never_waited_for(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    if kind == "folder":
        path.mkdir()
    elif not hasattr(os, "mkfifo") or not Path("/dev/zero").exists():
        pytest.skip("needs named pipes and /dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(RunDirectoryError, match=r"not a regular file; choose another --out-dir"):
        repair_tail(path)


@pytest.mark.parametrize("replaced", [False, True])
def test_an_out_dir_that_is_removed_during_the_run_is_told_and_not_made_again(tmp_path: Path, replaced: bool) -> None:
    folder = RunDirectory(tmp_path / "run")
    folder.write("a.txt", "a")
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    if replaced:
        (tmp_path / "run").mkdir()
    with pytest.raises(RunDirectoryError, match="was removed or replaced while this run"):
        folder.write("b.txt", "b")
    assert not (tmp_path / "run" / "b.txt").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="POSIX files")
def test_a_pipe_or_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(RunDirectoryError, match="not a regular file"):
            write_atomic(tmp_path / name, "text")
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "folder").is_dir() and len(list(tmp_path.iterdir())) == 2


def test_a_folder_in_which_no_lock_can_be_made_is_told_at_once_and_not_as_a_lock_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file system without files of one's own, such as /proc, creating one fails with ENOENT, which the lock waits for."""
    folder = RunDirectory(tmp_path)

    def no_such_file(*_: object) -> int:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("primus_mcp.trials.storage.os.open", no_such_file)
    monkeypatch.setattr(folder._lock, "acquire", lambda: pytest.fail("waited"))
    with pytest.raises(RunDirectoryError, match=r"cannot write to .*No such file"), folder.locked():
        pass


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_the_lock_excludes_programs_that_take_it_by_filelock_and_is_free_after_it(first: str, tmp_path: Path) -> None:
    folder, theirs = RunDirectory(tmp_path), FileLock(tmp_path / LOCK_NAME, timeout=0)
    if first == "ours":
        with folder.locked(), folder.locked(), pytest.raises(Timeout):
            theirs.acquire()
        with theirs:
            pass
        return
    with theirs:
        waiting = threading.Thread(target=lambda: folder.write("a", "b"), daemon=True)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive() and not (tmp_path / "a").exists()
    waiting.join(30)
    assert (tmp_path / "a").read_text() == "b"


def test_a_system_without_flock_locks_by_filelock_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("primus_mcp.trials.storage.fcntl", None)
    folder, other = RunDirectory(tmp_path), FileLock(tmp_path / LOCK_NAME, timeout=0)
    with folder.locked(), pytest.raises(Timeout):
        other.acquire()
    with other:
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX processes")
def test_a_process_that_was_forked_while_the_lock_was_held_does_not_keep_it(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys, time\n"
        "from primus_mcp.trials.storage import RunDirectory\n"
        "folder = RunDirectory(pathlib.Path(sys.argv[1]))\n"
        "with folder.locked():\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        time.sleep(60)\n"
        "        os._exit(0)\n"
        "another = RunDirectory(pathlib.Path(sys.argv[1]))\n"
        "print(another._lock_if_free() is not None)\n"
        "os.kill(child, 9)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert run.stdout == "True\n"
