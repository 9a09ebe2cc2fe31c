"""A reader of the page meets words, never the engine's own names; and the gravest warning before the others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from primus_mcp.cli.main import main
from primus_mcp.evaluation.result import ResultWarning
from primus_mcp.measurement import calibration
from primus_mcp.projection.memory.components import COMPONENTS
from primus_mcp.reports.part_words import (
    COLLECTIVES,
    GRAVEST,
    MEMORY_PARTS,
    SHOWN_WARNINGS,
    TIME_PARTS,
    named_parts,
    part_text,
    warning_lines,
)

PACKAGE = Path(__file__).parents[2] / "primus_mcp"


def named_in_source() -> Iterator[str]:
    """Names of pieces (`Piece(name="...")`, helpers that take one first or after the rates) and of shares of an iteration."""
    for file in (*(PACKAGE / "projection/layers").glob("*.py"), *(PACKAGE / "projection/performance").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Piece", "_pass", "communication", "model_linear", "mlp_pieces"):
                given = [keyword.value for keyword in node.keywords if keyword.arg == "name"] + node.args[:3]
                yield from (one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str))
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("parts", "shares") and isinstance(node.slice, ast.Constant):
                yield str(node.slice.value)


def test_every_part_of_time_has_words() -> None:
    named = set(named_in_source())
    assert {"rope", "a2a", "bubble", "host", "mixer_core"} <= named
    assert named | calibration._GEMM | calibration._ATTENTION | calibration._COMMUNICATION | calibration._REST <= set(TIME_PARTS)


def test_every_part_of_memory_has_words_and_no_other() -> None:
    assert set(MEMORY_PARTS) == set(COMPONENTS)


@pytest.mark.parametrize("words", [TIME_PARTS, MEMORY_PARTS, COLLECTIVES], ids=["time", "memory", "collectives"])
def test_words_are_short_enough_for_a_legend_told_apart_and_without_underscores(words: Mapping[str, str]) -> None:
    assert len(set(words.values())) == len(words)
    assert all(len(text) <= 24 and "_" not in text for text in words.values())


@pytest.mark.parametrize("command", ["evaluate", "memory", "performance", "both"])
def test_no_command_shows_the_name_of_a_component_as_the_code_has_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([command, "--model", "mixtral_8x22B_v0.1", "--gpu", "mi355x", "--nodes", "4", "--gemm-backend", "roofline", "--set", "mbs=1"])
    words = set(re.findall(r"^[ \u2500-\u257f]*([a-z0-9]+_[a-z0-9_]+)  ", capsys.readouterr().out, re.MULTILINE))
    assert not words


def test_a_foreign_name_is_told_with_blanks_and_equal_words_are_one_part() -> None:
    assert part_text("my_new_part") == "my new part"
    assert named_parts({"x_y": 1.0, "x y": 2.0, "a2a": 3.0}) == {"x y": 3.0, "expert exchange": 3.0}


def test_codes_of_the_gravest_warnings_are_codes_that_the_engine_gives() -> None:
    text = "".join(
        file.read_text(encoding="utf-8")
        for room in ("space", "inputs", "projection", "evaluation")
        for file in (PACKAGE / room).rglob("*.py")
    )
    assert not [code for code in GRAVEST if not re.search(f'"{re.escape(code)}"', text)]
    assert len(set(GRAVEST)) == len(GRAVEST)


def test_the_gravest_warnings_come_first_each_text_once_and_the_rest_is_apart() -> None:
    told = [ResultWarning(code=code, text=f"of {code}") for code in ("lora", "rampup-ignored", GRAVEST[5], "lora", GRAVEST[0])]
    first, others = warning_lines(told)
    assert first == [f"of {GRAVEST[0]}", f"of {GRAVEST[5]}", "of lora"] and len(first) == SHOWN_WARNINGS
    assert others == ["of rampup-ignored"]
