"""Ctrl-C, SIGTERM and a terminal that is closed are one thing: the command stops, keeps what it has, and leaves with exit code 4."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")


class Stopped(KeyboardInterrupt):
    """A signal asked to stop.

    A class of its own: once a plain KeyboardInterrupt has passed through an `exec` (every dataclass has one), the interpreter ends by the
    signal instead of with our exit code, even where it was caught.
    """


class _Stops:
    """The handler. While `held`, the first signal is only remembered; the second one stops at once."""

    def __init__(self) -> None:
        self.held = self.asked = False
        self.exit_code = 1

    def __call__(self, number: int, frame: FrameType | None) -> None:
        first, self.asked = not self.asked, True
        if self.held and first:
            return
        if _importing(frame):
            with suppress(OSError):
                os.write(2, b"stopped\n")
            os._exit(self.exit_code)
        raise Stopped(signal.Signals(number).name)


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being loaded. Some extension modules crash when an exception interrupts that; nothing is being written then."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


_STOPS = _Stops()


@contextmanager
def signals_stop(exit_code: int) -> Iterator[None]:
    """Within, a signal raises Stopped, or ends the process with `exit_code` while modules are loaded.

    One that is ignored (nohup, a shell's background job) or already handled stays as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _STOPS.held, _STOPS.asked, _STOPS.exit_code = False, False, exit_code
    before = {}
    for number in (getattr(signal, name) for name in SIGNALS if hasattr(signal, name)):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            before[number] = signal.signal(number, _STOPS)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_wait() -> Iterator[Callable[[], bool]]:
    """Within, the first signal only turns the yielded question true: for the writing of artefacts, which takes a second."""
    _STOPS.held, _STOPS.asked = True, False
    try:
        yield lambda: _STOPS.asked
    finally:
        _STOPS.held = False
