"""Standard streams as they may be: closed, full, or piped into a program that has already ended; and what may be written to them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_OBEYED = re.compile(r"[^\n\t\x20-\x7e]")
"""Characters that a terminal may obey; of those beyond ASCII, the ones that are not printable."""


def visible(text: str) -> str:
    r"""The text with what a terminal would obey written as `\u001b`, as JSON has it, so that a document stays what it was."""
    return _OBEYED.sub(lambda found: found[0] if found[0].isprintable() else _escape(found[0]), text)


def _escape(character: str) -> str:
    code = ord(character)
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


class Shown:
    """A text stream to which names, paths and words of files are written as they look, never as what a terminal does with them."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Escaped; returns the length as given."""
        self.stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Each escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the stream's own."""
        return getattr(self.stream, name)


@contextmanager
def only_visible_characters() -> Iterator[None]:
    """Within, everything that is printed is `visible`. Only `terminal` and `print_rich` draw with escape codes of their own."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Shown(before[0]), Shown(before[1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _bare(stream: IO[str]) -> IO[str]:
    return stream.stream if isinstance(stream, Shown) else stream


def terminal() -> Console:
    """Console on stderr for what is drawn: bars and live pictures. What stands in them must be made plain by who draws."""
    from rich.console import Console

    return Console(file=_bare(sys.stderr))


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

    out = _bare(sys.stdout)
    console = Console(file=out, width=None if out.isatty() else columns, highlight=False)
    with console.capture() as text:
        console.print(renderable)
    print(text.get(), end="", file=out)
