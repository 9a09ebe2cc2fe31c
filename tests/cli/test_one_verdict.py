"""One configuration has one verdict, whichever command is asked."""

from __future__ import annotations

import json

import pytest

from primus_mcp.cli.main import main
from primus_mcp.projection.memory import CACHE_NOTE

PLACE = ["--gpu", "mi355x", "--nodes", "4", "--gemm-backend", "roofline"]
MIXTRAL = ["--model", "mixtral_8x22B_v0.1", *PLACE, "--set", "mbs=1", "--set", "pp=4", "--set", "ep=8", "--set", "tp=1"]
DENSE = ["--model", "llama3.1_70B", *PLACE, "--set", "tp=8"]
CASES = {
    "fits": ([*DENSE, "--set", "mbs=2"], "1f1b"),
    "over cap": ([*MIXTRAL, "--set", "vpp=2"], "interleaved_1f1b, VPP 2"),
    "too large": ([*DENSE, "--set", "mbs=16"], "1f1b"),
}


@pytest.mark.parametrize("word", list(CASES))
def test_every_command_gives_the_same_word_for_the_same_configuration(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, schedule = CASES[word]
    main(["memory", *arguments])
    in_memory = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("mi355x, "))
    main(["evaluate", *arguments])
    in_evaluate = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("memory  "))
    text = in_memory.removeprefix("mi355x, ")
    assert text.startswith(f"{word}: ") and text in in_evaluate
    main(["performance", *arguments, "--schedule", "all"])
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(schedule.ljust(30)))
    assert row.endswith(f"  {word}")


def test_an_estimate_above_the_gpu_is_explained_in_every_answer(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["memory"], ["evaluate"], ["performance", "--schedule", "all"]):
        main([*command, *CASES["over cap"][0]])
        assert CACHE_NOTE in capsys.readouterr().out
    main(["memory", *CASES["over cap"][0], "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["memory_per_gpu_gb"] > found["hbm_gb"] and CACHE_NOTE in found["verdict_text"]
    assert (found["verdict"], found["fits_physically"], found["within_margin"]) == ("over cap", "at_risk", False)
