"""kill -9 at every write, fsync and rename of a run, half of the bytes already written: resuming ends where an undisturbed run ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from test_session import keys_of, open_session, plan

from primus_mcp.session import TuningSession
from primus_mcp.trials.journal import Done, Reserved

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
SEEDS, BUDGET = 6, 3


def run(folder: Path) -> TuningSession:
    """Six seeds under a budget of three, and the artefacts; the picture is not drawn, only written."""
    session = open_session(folder, limits={"seed_budget": BUDGET})
    session.run_seeds(plan(SEEDS))
    with mock.patch("primus_mcp.session.picture", lambda *_: b"picture"):
        session.finish("seed plan finished")
    return session


class Dying:
    """Counts what reaches the disk and dies at the given one. `at` 0: never."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def step(self, half: Callable[[], object] = lambda: None) -> None:
        self.count += 1
        if self.count == self.at:
            half()
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Put itself between the program and the disk, in this process."""
        real_open, real_replace, real_fsync = Path.open, Path.replace, os.fsync
        dying = self

        class File:
            def __init__(self, file: Any) -> None:
                self.file = file

            def write(self, data: bytes) -> int:
                dying.step(lambda: (self.file.write(data[: len(data) // 2]), self.file.flush()))
                return int(self.file.write(data))

            def __enter__(self) -> File:
                self.file.__enter__()
                return self

            def __exit__(self, *error: Any) -> Any:
                return self.file.__exit__(*error)

            def __getattr__(self, name: str) -> Any:
                return getattr(self.file, name)

        def opened(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            file = real_open(path, mode, *args, **kwargs)
            return File(file) if "b" in mode and set(mode) & set("aw+") else file

        def replaced(path: Path, target: Path) -> Path:
            dying.step()
            return real_replace(path, target)

        def synced(descriptor: int) -> None:
            dying.step()
            real_fsync(descriptor)

        Path.open, Path.replace, os.fsync = opened, replaced, synced  # type: ignore[method-assign, assignment]


def in_child(folder: Path, at: int) -> tuple[int, int]:
    """(signal that ended the run or 0, steps it made)."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        dying = Dying(at)
        try:
            dying.install()
            run(folder)
        finally:
            os.write(writing, str(dying.count).encode())
            os._exit(0)
    os.close(writing)
    status = os.waitpid(pid, 0)[1]
    with os.fdopen(reading, "rb") as pipe:
        steps = int(pipe.read() or b"0")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, steps


def test_kill_at_every_write_of_a_run_loses_nothing_repeats_nothing_and_spends_no_more(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    ended, steps = in_child(tmp_path / "counted", 0)
    assert ended == 0 and steps > 3 * len(whole.history())
    for at in range(1, steps + 1):
        folder = tmp_path / f"killed_at_{at}"
        assert in_child(folder, at)[0] == signal.SIGKILL
        session = run(folder)
        assert keys_of(session) == keys_of(whole), f"write {at}"
        assert [record.trial_id for record in session.history()] == list(range(len(session.history())))
        best, expected = session.best().best, whole.best().best
        assert (best and best.trial_id) == (expected and expected.trial_id)
        events = session.journal.events()
        assert sorted(event.key for event in events if isinstance(event, Done)) == sorted(keys_of(session)), f"write {at}"
        assert {event.key for event in events if isinstance(event, Reserved)} == set(keys_of(session))
        priced = [record for record in session.history() if record.result.tokens_per_s_per_gpu is not None]
        assert len(priced) <= BUDGET
        assert not list((folder / "run").rglob("*.tmp"))
