"""The error family: everything a user can cause is a `PrimusMcpError` with one line that names the field, the value and the remedy."""

from __future__ import annotations


class PrimusMcpError(Exception):
    """Base of every error that a user can cause. `str(error)` is one line, fit for a terminal or an MCP reply."""

    exit_code = 2


_LONGEST_PART = 1200


def _short(text: str) -> str:
    """One line of bounded length, whatever value of the user's it quotes."""
    line = " ".join(text.splitlines())
    return line if len(line) <= _LONGEST_PART else f"{line[:_LONGEST_PART]}..."


class InputError(PrimusMcpError):
    """A file, flag or proposal cannot be understood: names the field, the value and the remedy."""

    def __init__(self, problem: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.problem, self.where, self.remedy = problem, where, remedy
        text = f"{_short(where)}: {_short(problem)}" if where else _short(problem)
        super().__init__(f"{text}; {_short(remedy)}" if remedy else text)


class NothingLegalError(InputError):
    """Well understood, and no configuration that was asked for is legal: names the first rule with its numbers."""

    exit_code = 3


class UnsupportedFeatureError(InputError):
    """The workload is valid for Primus, but uses something that this engine cannot price (named in the text)."""


class UnknownFigureError(PrimusMcpError):
    """A hardware or software figure is unknown and no sibling rule fills it; the text names the figure and how to supply it."""


class RunDirectoryError(PrimusMcpError):
    """The out-dir cannot be used: unwritable, full, locked, or it holds a log of another workload, cluster or engine."""
