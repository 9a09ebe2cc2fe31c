"""docs/accuracy.md is what the package's own rows give."""

from __future__ import annotations

import re
from pathlib import Path

from primus_mcp.evaluation.accuracy import accuracy_of
from primus_mcp.validation.docs import accuracy_document
from primus_mcp.validation.figures import MEMORY_GROUP, TIME_GROUP
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


def test_the_figures_beside_every_answer_are_those_of_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for vendor, group in TIME_GROUP.items():
        told = accuracy_of("simulate", "amd" if vendor == "amd" else "nvidia")
        line = next(line for line in section(page, "Time, backend roofline") if line.split("|")[1].strip(" *") == group)
        assert told.throughput_error is not None
        assert abs(100 * told.throughput_error - numbers(line)[1]) <= 0.1
        own = (line.split("|") for line in section(page, "Blind to a family") if "mean, one family at a time" in line)
        blind = next(cells for cells in own if cells[2].strip() == vendor)
        runs = f"{blind[3].strip()} {vendor.upper()} configurations that were published in full"
        assert f"{blind[4].strip()} on average over the {runs}" in told.text
        assert f"{blind[6].strip()} with the model's family left out" in told.text
        line = next(line for line in section(page, "Memory") if line.split("|")[1].strip(" *") == MEMORY_GROUP[vendor])
        assert told.memory_error is not None and abs(100 * told.memory_error - numbers(line)[1]) <= 0.1


def test_a_gpu_that_no_published_run_was_made_on_has_no_error_and_says_so() -> None:
    for gpu in ("mi250x", "mi325x", "a card of one's own"):
        told = accuracy_of("simulate", "amd", gpu)
        assert (told.throughput_error, told.memory_error) == (None, None)
        assert told.text.startswith(f"no published run on {gpu} was checked; on mi300x, mi355x time was off by")
    assert accuracy_of("simulate", "amd", "mi355x") == accuracy_of("simulate", "amd")
