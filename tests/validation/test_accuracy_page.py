"""docs/accuracy.md is what the package's own rows give."""

from __future__ import annotations

import re
from pathlib import Path

from primus_mcp.validation.docs import accuracy_document
from primus_mcp.validation.rows import shipped_rows

PAGE = Path(__file__).parent.parent.parent / "docs" / "accuracy.md"
ROUNDING = 0.25
"""Per cent by which a figure of the page may differ: rounding, and libm between machines."""


def section(page: str, title: str) -> list[str]:
    body = page.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    return [line for line in body.splitlines() if line.startswith("|")]


def numbers(line: str) -> list[float]:
    return [float(text) for text in re.findall(r"[-+]?\d+(?:\.\d+)?(?=%)", line)]


def test_the_accuracy_page_is_current_up_to_rounding() -> None:
    written, fresh = PAGE.read_text(encoding="utf-8"), accuracy_document(shipped_rows(), ["roofline"])
    for title in ("Time, backend roofline", "Memory"):
        old, new = section(written, title), section(fresh, title)
        assert len(old) == len(new), f"{title}: run `python -m primus_mcp.validation.docs`"
        for before, after in zip(old, new, strict=True):
            assert before.split("|")[1] == after.split("|")[1]
            for one, other in zip(numbers(before), numbers(after), strict=True):
                assert abs(one - other) <= ROUNDING, f"{before} is now {after}: run `python -m primus_mcp.validation.docs`"
