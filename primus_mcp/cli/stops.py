"""Ctrl-C, SIGTERM and a terminal that is closed are one thing: the command stops, keeps what it has, and leaves with exit code 4."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

    def __call__(self, number: int, _: FrameType | None) -> None:
        first, self.asked = not self.asked, True
        if not (self.held and first):
            raise Stopped(signal.Signals(number).name)


_STOPS = _Stops()


@contextmanager
def signals_stop() -> Iterator[None]:
    """Within, a signal raises Stopped. One that is ignored (nohup, a shell's background job) or already handled stays as it is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _STOPS.held = _STOPS.asked = False
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
