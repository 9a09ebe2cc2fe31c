"""Runs a job on this host: one `torch.distributed.run` child with its ranks, one at a time, bounded in time, with nothing left behind.

This process never imports torch. Who ends whom: a time limit or an interrupt here ends the child and its ranks; each rank watches its
parent, this process and its own deadline, so a kill -9 of any of them ends the rest.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Literal

from filelock import FileLock, Timeout

from primus_mcp.errors import PrimusMcpError
from primus_mcp.measurement.job import EXIT_LATE, PROGRESS, Job, RankReport

Progress = Callable[[str], None]
ShouldStop = Callable[[], bool]
Failure = Literal["busy", "no_torch", "out_of_memory", "timeout", "crashed", "incomplete", "cancelled"]
_GRACE_S = 5.0
_START_S = 120.0
_TAIL_LINES = 12
_PASSED_ON = 1000
_POLL_S = 0.2


class MeasurementError(PrimusMcpError):
    """A measured run did not come to its end; `failure` says which way, the text says why and what to do. `partial`: the answers that all
    ranks left before it.
    """

    def __init__(self, failure: Failure, text: str, partial: tuple[RankReport, ...] = ()) -> None:
        self.failure, self.partial = failure, partial
        super().__init__(" ".join(text.split()))


def cache_folder() -> Path:
    """The user's cache of this package."""
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(base) if base else Path.home() / ".cache") / "primus-mcp"


def command(job: Job, job_file: Path, out: Path) -> list[str]:
    """The argument list of the child."""
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nnodes=1",
        f"--nproc-per-node={job.ranks}",
        "--max-restarts=0",
        "-m",
        "primus_mcp.measurement.worker",
        str(job_file),
        str(out),
    ]


def _environment(job: Job) -> dict[str, str]:
    quiet = {"PYTHONWARNINGS": "ignore", "PYTHONUTF8": "1", "OMP_NUM_THREADS": str(job.threads), "TOKENIZERS_PARALLELISM": "false"}
    return {**os.environ, **quiet}


def _read(stream: IO[str], tail: deque[str], progress: Progress | None) -> None:
    for line in stream:
        text = line.rstrip()[:_PASSED_ON]
        if text.startswith(PROGRESS):
            if progress is not None:
                progress(text.removeprefix(PROGRESS))
        elif text:
            tail.append(text)


def _signal_group(child: subprocess.Popen[str], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, number)
        else:
            child.send_signal(number)


def _stop(child: subprocess.Popen[str]) -> None:
    """Ask the launcher of torch to end its ranks, then end it; ranks that it left behind see that their parent is gone."""
    if child.poll() is None:
        _signal_group(child, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE_S)
    if child.poll() is None:
        _signal_group(child, getattr(signal, "SIGKILL", signal.SIGTERM))
        child.wait()


def _reports(out: Path, job: Job) -> tuple[RankReport, ...]:
    found = []
    for rank in range(job.ranks):
        path = out / f"rank{rank}.json"
        try:
            found.append(RankReport.model_validate_json(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise MeasurementError("incomplete", f"rank {rank} of the measured run left no answer ({type(error).__name__})") from None
    return tuple(found)


def _partial(out: Path, job: Job) -> tuple[RankReport, ...]:
    """What every rank had measured when the run ended; nothing where one of them has no figure."""
    try:
        found = _reports(out, job)
    except MeasurementError:
        return ()
    return found if all(report.units for report in found) else ()


def _notes(out: Path, suffix: str) -> str | None:
    """What a rank wrote about its end."""
    for path in sorted(out.glob(f"*.{suffix}")):
        with suppress(OSError):
            return f"{path.stem}: {path.read_text(encoding='utf-8', errors='replace')[:400]}"
    return None


def _failure(out: Path, code: int, tail: deque[str], partial: tuple[RankReport, ...]) -> MeasurementError:
    if (text := _notes(out, "oom")) is not None:
        return MeasurementError("out_of_memory", f"the measured run went out of memory; {text}", partial)
    text = _notes(out, "error") or " | ".join(list(tail)[-_TAIL_LINES:])[-800:] or "it said nothing"
    return MeasurementError("crashed", f"the measured run ended with code {code}: {text}", partial)


def _wait(child: subprocess.Popen[str], limit_s: float, should_stop: ShouldStop) -> int:
    """The child's code. Raises TimeoutExpired, or MeasurementError once `should_stop` says so."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return child.wait(min(_POLL_S, max(0.0, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            if should_stop():
                raise MeasurementError("cancelled", "the measured run was cancelled; its processes were ended") from None
            if time.monotonic() >= deadline:
                raise


def _run(job: Job, folder: Path, progress: Progress | None, should_stop: ShouldStop) -> tuple[RankReport, ...]:
    job_file = folder / "job.json"
    job_file.write_text(json.dumps(job.model_dump(mode="json")), encoding="utf-8")
    tail: deque[str] = deque(maxlen=200)
    child = subprocess.Popen(  # noqa: S603
        command(job, job_file, folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=_environment(job),
        cwd=folder,
        start_new_session=True,
    )
    assert child.stdout is not None
    reader = threading.Thread(target=_read, args=(child.stdout, tail, progress), daemon=True)
    reader.start()
    late = f"the measured run took longer than {job.limit_s:g} s and was ended"
    try:
        code = _wait(child, job.limit_s + _START_S, should_stop)
    except subprocess.TimeoutExpired:
        raise MeasurementError("timeout", late, _partial(folder, job)) from None
    finally:
        _stop(child)
        reader.join(_GRACE_S)
    if code:
        if any(re.search(rf"exitcode\s*: {EXIT_LATE}\b", line) for line in tail):
            raise MeasurementError("timeout", late, _partial(folder, job))
        raise _failure(folder, code, tail, _partial(folder, job))
    found = _reports(folder, job)
    if job.units and not found[0].units and found[0].failures:
        raise MeasurementError("crashed", f"no part of the measured run gave a figure; the first: {found[0].failures[0].text}")
    return found


def run_job(
    job: Job, *, progress: Progress | None = None, lock: Path | None = None, should_stop: ShouldStop = lambda: False
) -> tuple[RankReport, ...]:
    """The answers of all ranks. Raises MeasurementError: another run is going on, torch is missing, memory, time, crash, cancelled.

    `lock`: the file that only one run may hold (default: one in the user's cache folder).
    """
    if find_spec("torch") is None:
        raise MeasurementError(
            "no_torch",
            "torch is not installed here; pip install the torch build of your ROCm or CUDA version, then 'primus-mcp[benchmark]'",
        )
    path = lock or cache_folder() / "measurement.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held = FileLock(path, timeout=0)
        held.acquire()
    except Timeout:
        raise MeasurementError("busy", f"another measured run is going on on this host ({path}); wait for it") from None
    except OSError as error:
        raise MeasurementError("busy", f"the lock {path} cannot be used: {error.strerror or error}; set XDG_CACHE_HOME") from None
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="primus-mcp-measure-", ignore_cleanup_errors=True) as folder:
            reports = _run(job.model_copy(update={"launcher_pid": os.getpid()}), Path(folder), progress, should_stop)
    except OSError as error:
        raise MeasurementError("crashed", f"the measured run cannot be started: {error.strerror or error}") from None
    finally:
        held.release()
    if progress is not None:
        progress(f"done in {time.monotonic() - started:.0f} s")
    return reports
