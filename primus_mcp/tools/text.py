"""What may leave the program: text without control characters and of bounded length, and numbers that JSON has."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

MAX_TEXT = 20_000
MAX_RESULT_CHARACTERS = 60_000
"""About 20,000 tokens; hosts refuse 25,000 and more."""
SIGNIFICANT_DIGITS = 6
_TERMINAL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_]")
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)


def clean(text: str, limit: int = MAX_TEXT) -> str:
    """Text without terminal sequences, control, bidirectional, zero-width and unpaired surrogate characters, cut at `limit`."""
    if len(text) <= limit and text.isascii() and text.isprintable():
        return text
    shown = _INVISIBLE.sub("", _TERMINAL.sub("", text.replace("\r\n", "\n")))
    return shown if len(shown) <= limit else f"{shown[: limit - 40]}... ({len(shown) - limit + 40:,} more characters)"


def number(value: float) -> float | None:
    """A float of six significant digits; None for what JSON has no number for."""
    if not math.isfinite(value):
        return None
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def presentable(value: Any) -> Any:
    """The same JSON value with every text cleaned and every float finite or null."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return number(value)
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): presentable(item) for key, item in value.items()}
    if isinstance(value, Sequence | Set):
        return [presentable(item) for item in value]
    return clean(str(value))
