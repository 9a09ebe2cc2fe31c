"""Serving from start to exit: stdout carries only protocol, and EOF, SIGTERM and SIGINT end the process within a second.

Nothing of the package is imported here at module level: what it imports might print before `stdout_kept_clean` is in force.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Iterator
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from primus_mcp.server.app import PrimusServer
    from primus_mcp.server.jobs import JobRunner
    from primus_mcp.server.options import ServeOptions

GRACE_S = 0.5


@contextlib.contextmanager
def stdout_kept_clean() -> Iterator[None]:
    """Whatever is written to stdout meanwhile goes to stderr: a library that prints while it is imported would break the protocol."""
    sys.stdout.flush()
    wire = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(wire, 1)
        os.close(wire)


def leave(code: int, jobs: JobRunner | None) -> None:
    """End now. Logs are written through and locks die with the process, so there is nothing to wait for but the jobs' children."""
    if jobs is not None:
        jobs.stop_all(GRACE_S)
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


def leave_on_signals(jobs: JobRunner) -> None:
    """The SDK's stdin reader cannot be interrupted while the client keeps stdin open, and SIGTERM would leave children behind."""

    def handle(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        Thread(target=leave, args=(128 + number, jobs), daemon=True).start()

    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, handle)


def quiet_server(options: ServeOptions) -> PrimusServer:
    """The server, with its imports done: collecting garbage while thousands of classes are made would cost a fifth of the start."""
    gc.disable()
    from primus_mcp.server.app import build_server

    server = build_server(options)
    gc.enable()
    gc.freeze()
    return server


def serve_stdio(options: ServeOptions) -> None:
    """Serve one client over stdin and stdout, then end the process."""
    with stdout_kept_clean():
        server = quiet_server(options)
    leave_on_signals(server.app.jobs)

    async def run() -> None:
        await server.run_stdio_async()
        leave(0, server.app.jobs)

    anyio.run(run)
