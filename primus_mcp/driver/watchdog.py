"""A limit on silence: one thread waits, and starting or stopping the count only moves its deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Watchdog:
    """Calls `kill` when `start` was not followed by `stop` within the limit. Its thread ends when nothing is counted any more."""

    def __init__(self, kill: Callable[[], None]) -> None:
        self._kill = kill
        self._moved = threading.Condition()
        self._until_s: float | None = None
        self._wakes_s = 0.0
        self._awake = False
        self.fired = False

    def start(self, limit_s: float) -> None:
        """Begin to count, from zero."""
        with self._moved:
            self._until_s = time.monotonic() + limit_s
            if not self._awake:
                self._awake, self._wakes_s = True, self._until_s
                threading.Thread(target=self._watch, daemon=True, name="watchdog").start()
            elif self._until_s < self._wakes_s:
                self._moved.notify()

    def stop(self) -> None:
        """Stop counting."""
        with self._moved:
            self._until_s = None

    def close(self) -> None:
        """Stop counting, and let the thread end now; `start` begins anew."""
        with self._moved:
            self._until_s = None
            self._moved.notify()

    def _watch(self) -> None:
        with self._moved:
            while self._until_s is not None and (left_s := self._until_s - time.monotonic()) > 0:
                self._wakes_s = self._until_s
                self._moved.wait(left_s)
            self._awake = False
            late = self._until_s is not None
            self._until_s = None
        if late:
            self.fired = True
            self._kill()
