"""A pin that no legal configuration can have ends a session at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_mcp.cli.main import main


@pytest.mark.parametrize("alone", [["--seed-only"], []], ids=["seeds only", "whole search"])
def test_tune_with_an_impossible_pin_tries_the_baseline_says_why_in_one_line_and_exits_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], alone: list[str]
) -> None:
    out = tmp_path / "run"
    code = main(
        ["tune", "--model", "llama3.1_8B", "--gpu", "mi300x", "--nodes", "3", "--pin", "tp=3", "--no-cache", "--out-dir", str(out), *alone]
    )
    said = [line for line in capsys.readouterr().out.splitlines() if "no legal trial found" in line]
    assert code == 3
    assert said == [
        "no legal trial found: --pin tp=3 cannot be legal: 32 attention heads are not a multiple of TP 3; remedy: change the pin"
    ]
    assert len((out / "trials.jsonl").read_text().splitlines()) == 1
