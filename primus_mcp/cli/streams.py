"""Standard streams as they may be: closed, full, or piped into a program that has already ended."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType


def open_missing_streams() -> None:
    """The null device for every standard stream that was closed: without it a note for stderr would be printed to stdout, and the next
    file that is opened would take the stream's number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - open as long as the process


def say(text: str) -> None:
    """A line to stderr; nothing where stderr cannot take it."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def drop_output() -> None:
    """What stdout still holds goes to the null device, so that nothing fails while the interpreter ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_rich(renderable: RenderableType, *, columns: int) -> None:
    """Print as wide as the terminal, `columns` wide elsewhere. A pipe whose reader has ended is a BrokenPipeError (rich would exit 1)."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else columns, highlight=False)
    with console.capture() as text:
        console.print(renderable)
    print(text.get(), end="")
