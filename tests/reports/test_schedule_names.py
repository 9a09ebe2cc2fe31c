"""A schedule has one name in every text, the one that can be typed: the value of its knob."""

from __future__ import annotations

import re

import pytest

from primus_mcp.cli.main import main
from primus_mcp.errors import InputError
from primus_mcp.space.knobs import SCHEDULE_OF_KNOB, schedule_text
from primus_mcp.space.parsing import parse_trial

PLACE = ["--model", "llama3.1_70B", "--gpu", "mi355x", "--nodes", "4", "--gemm-backend", "roofline", "--set", "pp=4", "--set", "tp=8"]


@pytest.mark.parametrize("knob", list(SCHEDULE_OF_KNOB))
def test_every_command_names_a_schedule_as_its_knob_does(knob: str, capsys: pytest.CaptureFixture[str]) -> None:
    vpp = ["--set", "vpp=2"] if knob.startswith("zbv") else ["--set", "vpp=1"]
    for command in ("evaluate", "performance"):
        main([command, *PLACE, *vpp, "--set", f"pp_schedule={knob}", *(["--schedule", "all"] if command == "performance" else [])])
        out = capsys.readouterr().out
        assert knob in out
        for other in ("v-half", "v-min"):
            assert not re.search(rf"\b{other}\b", out), f"{command} says {other}"


def test_the_trainers_own_name_is_refused_with_the_knobs_value() -> None:
    for knob, schedule in SCHEDULE_OF_KNOB.items():
        assert schedule_text(schedule) == knob
        if schedule != knob:
            with pytest.raises(InputError, match=f"write {knob}, which is pp_algorithm {schedule}"):
                parse_trial({"pp_schedule": schedule})


def test_megatrons_own_schedules_are_named_as_in_the_guide() -> None:
    assert (schedule_text("1f1b"), schedule_text("interleaved"), schedule_text("dualpipe-v")) == ("1f1b", "interleaved_1f1b", "dualpipe-v")
