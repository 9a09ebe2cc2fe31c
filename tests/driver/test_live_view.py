"""What a terminal and a pipe show of a search."""

from __future__ import annotations

from pathlib import Path

import pytest
from driver_cases import open_session
from rich.console import Console
from rich.live import Live

from primus_mcp.cli.live import LAST_TRIALS, LiveView, View
from primus_mcp.trials.journal import Round

HOSTILE = "1. [/red] first [bold\nsecond line"


def test_a_terminal_of_80_columns_shows_round_budgets_incumbent_plan_and_the_last_trials_a_line_each(tmp_path: Path) -> None:
    session = open_session(tmp_path, budget={"max_rounds": 4})
    console = Console(width=80, force_terminal=True, color_system=None, record=True)
    with Live(console=console, auto_refresh=False) as live:
        view = LiveView(session, live)
        view.planned(HOSTILE)
        view.round_started(2)
        for number in range(LAST_TRIALS + 3):
            view.trial({"trial_id": number, "reason": f"[/x] {'a long reason ' * 20}"})
        view.round_ended(Round(index=2), HOSTILE)
        console.export_text()
        console.print(live.renderable)
        picture = console.export_text()
    lines = picture.splitlines()
    assert max(len(line) for line in lines) == 80
    assert "round 2" in lines[0]
    assert any("[/red] first [bold" in line for line in lines)
    assert any("rounds" in line and "0 of 4" in line for line in lines)
    assert [line.split(":")[0].strip("│ ") for line in lines if "trial " in line] == [f"trial {n}" for n in range(3, LAST_TRIALS + 3)]


def test_a_pipe_gets_plain_lines_and_quiet_only_notes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = open_session(tmp_path)
    for quiet in (False, True):
        view = View(session, quiet=quiet)
        view.say("the model")
        view.planned(HOSTILE)
        view.trial({"trial_id": 3, "tokens_per_s_per_gpu": 1234.5, "memory_per_gpu_gb": 10.0})
        view.round_ended(Round(index=1, improved=True), "done")
    assert capsys.readouterr().err == (
        "note: the model\nplan: 1. [/red] first [bold\n  trial 3: 1,234 tokens/s/GPU, 10.0 GB\n"
        "round 1: better, nothing fits yet: done\nnote: the model\n"
    )
