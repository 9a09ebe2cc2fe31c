"""Text and numbers of logs and files, made fit for a chart: printable, of bounded length, told apart; and finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

TIP, LABEL, SPOKEN = 240, 60, 600
"""Characters of a tip, of a name at an axis or in a legend, and of what a screen reader says; longer ones end in an ellipsis."""
MOST = 1e30
"""Larger numbers are nothing that a chart shows, and their sums and differences would end at infinity."""
_REPLACEMENT = "\ufffd"


def shown(text: object, most: int = TIP) -> str:
    """One line without characters that XML forbids or that steer the direction of writing."""
    start = str(text)[: 8 * most]
    line = "".join(letter if letter.isprintable() else _REPLACEMENT for letter in " ".join(start.split()))
    return line if len(line) <= most and len(start) == len(str(text)) else f"{line[: most - 1]}…"


def distinct(names: Sequence[object], most: int = LABEL) -> list[str]:
    """The names as labels, of which no two are equal: charts tell categories apart by their labels."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        label = shown(name, most) or "(no name)"
        while label in seen:
            seen[label] += 1
            label = f"{label} ({seen[label]})"
        seen[label] = 1
        found.append(label)
    return found


def known(value: float | None) -> TypeGuard[float]:
    """Whether there is a number that has a place on an axis."""
    return value is not None and -MOST < value < MOST


def plural(count: int, one: str, more: str) -> str:
    """`one` or `more` with the number before it; empty for none."""
    return "" if not count else f"{count:,} {one if count == 1 else more}"
