"""Work beside the caller: results that may be waited for with a limit."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")


class TooLateError(Exception):
    """The work was not done within its limit; it is left alone and its result is dropped."""


def in_background(work: Callable[[], T], name: str) -> Future[T]:
    """`work()` in a daemon thread that sees the caller's context variables."""
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(work))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name=name).start()
    return future


def within(limit_s: float, work: Callable[[], T], name: str) -> T:
    """The result of `work()`, or what it raises. Raises TooLateError after `limit_s` seconds, whatever the work still does."""
    future = in_background(work, name)
    if not wait([future], limit_s).done:
        raise TooLateError(f"not done within {limit_s:,.0f} s")
    return future.result()
