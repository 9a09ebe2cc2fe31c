"""Processes of one's own, the same on every system: started anew (`spawn`), deaf to Ctrl-C, and gone with their parent however it dies."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, parent_process

from primus_mcp.errors import PrimusMcpError


def _die_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def begin_worker() -> None:
    """First thing in a new worker: Ctrl-C is the parent's business, and a worker never outlives it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    atexit.register(os._exit, 0)  # nothing is left to tidy, and native bindings would list on stderr what a daemon thread kept alive
    threading.Thread(target=_die_with_parent, daemon=True).start()


@contextmanager
def workers_alive() -> Iterator[None]:
    """Raises PrimusMcpError where a worker died, whether that shows when it is given work or when its answer is waited for."""
    try:
        yield
    except BrokenProcessPool as error:
        raise PrimusMcpError("a worker process ended by itself (killed, or out of memory); --jobs 1 sweeps without any") from error


@contextmanager
def interrupts_held() -> Iterator[None]:
    """New processes inherit a blocked SIGINT: a Ctrl-C while they start must not end them with a traceback each. Ours arrives after."""
    if not hasattr(signal, "pthread_sigmask") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
