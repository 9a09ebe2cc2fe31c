"""The flag that an error is about: errors below the command line name a file, a field or a flag's first spelling, the user typed a flag."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from primus_mcp.errors import InputError, PrimusMcpError


def _typed(action: argparse.Action, argv: Sequence[str]) -> str | None:
    """The spelling of this flag on the command line; None where it was not given."""
    return next((option for word in argv for option in action.option_strings if word == option or word.startswith(f"{option}=")), None)


def _paths(value: Any) -> Iterator[str]:
    """What a flag's value is called in an error: its path as given, and in full."""
    if isinstance(value, Path):
        yield from dict.fromkeys((str(value), str(value.absolute())))
    elif isinstance(value, list):
        for item in value:
            yield from _paths(item)


def _names(text: str, start: str) -> bool:
    return text.startswith(start) and not text[len(start) : len(start) + 1].isalnum()


def naming_the_flag(
    text: str, where: str | None, actions: Iterable[argparse.Action], arguments: argparse.Namespace, argv: Sequence[str]
) -> str:
    """The text of an error with the flag as it was typed.

    `where` may be another spelling of it or the name of its field, which are replaced. Where the text begins with the file that a flag
    names, the flag is put before it.
    """
    given = [(action, flag) for action in actions if (flag := _typed(action, argv)) is not None]
    for action, flag in given:
        if where is not None and where.replace(" ", "_") in (*action.option_strings, action.dest):
            return flag + text[len(where) :]
    for action, flag in given:
        value = getattr(arguments, action.dest, None)
        spelled = [value] if isinstance(value, str) and value == where else _paths(value)
        if any(_names(text, start) for start in spelled if start):
            return f"{flag} {text}"
    return text


def renamed(
    error: PrimusMcpError, actions: Iterable[argparse.Action], arguments: argparse.Namespace, argv: Sequence[str]
) -> PrimusMcpError:
    """The same error in the words of the command line."""
    where = error.where if isinstance(error, InputError) else None
    told = PrimusMcpError(naming_the_flag(str(error), where, actions, arguments, argv))
    told.exit_code = error.exit_code
    return told


def of_flags(error: InputError, fields: dict[str, str]) -> InputError:
    """An error about a cluster that flags describe, under the flag whose field it names. `fields`: key of `target_cluster:` to flag."""
    for field, flag in fields.items():
        if error.problem.startswith(start := f"target_cluster.{field} = "):
            return InputError(error.problem.removeprefix(start), where=flag, remedy=error.remedy)
    return error
