"""Exit codes: one rule over all commands, so that a script may go on at 0 and read the reason at anything else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from primus_mcp.errors import NothingLegalError, PrimusMcpError

if TYPE_CHECKING:
    from primus_mcp.projection.memory import Word

EXIT_OK, EXIT_BUG, EXIT_STOPPED_EARLY = 0, 1, 4
EXIT_BAD_INPUT, EXIT_NOTHING_FITS = PrimusMcpError.exit_code, NothingLegalError.exit_code
MEANINGS: Mapping[int, str] = {
    EXIT_OK: "ok: what was asked for is answered, and of configurations that were priced at least one is legal and within the memory cap",
    EXIT_BUG: "internal error",
    EXIT_BAD_INPUT: "bad input, or something that this machine lacks",
    EXIT_NOTHING_FITS: "no configuration that was asked for is legal and within the memory cap (illegal, over cap, too large)",
    EXIT_STOPPED_EARLY: "stopped early by a signal or a time limit, with what is known until then",
}
EPILOG = "exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in MEANINGS.items())
RUNNABLE: frozenset[Word] = frozenset({"fits", "at risk"})
"""Verdicts within the cap."""


def verdict_code(verdicts: Iterable[Word | str | None]) -> int:
    """Of priced configurations: 0 where one of them may be run."""
    return EXIT_OK if RUNNABLE.intersection(verdicts) else EXIT_NOTHING_FITS
