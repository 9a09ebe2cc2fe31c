"""docs/knobs.md is generated."""

from __future__ import annotations

from pathlib import Path

from primus_mcp.space.docs import knobs_markdown
from primus_mcp.space.knobs import KNOBS
from primus_mcp.space.rules import RULES

PAGE = Path(__file__).parents[2] / "docs/knobs.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == knobs_markdown(), "run: python -m primus_mcp.space.docs"


def test_the_page_names_every_knob_and_every_rule_with_its_source() -> None:
    text = knobs_markdown()
    for name in KNOBS:
        assert f"`{name}`" in text
    for rule in RULES:
        assert f"| {rule.id} |" in text
        assert rule.source in text
