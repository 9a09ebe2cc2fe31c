"""Tables of several GPUs, sizes and schedules say how far each number may be off."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from primus_mcp.cli.main import main

DENSE = ["--model", "llama3_8B", "--gpu", "mi355x", "--set", "pp=4", "--global-batch-size", "64", "--gemm-backend", "roofline"]
SIZES = ["--model", "llama3_8B", "--arch", "mi300x,mi355x", "--nodes", "1,2", "--gemm-backend", "roofline"]
BAND = re.compile(r" ([\d,]+) +([\d,]+) to ([\d,]+) ")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["performance", *arguments]) == 0
    return capsys.readouterr().out


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(printed(capsys, *arguments, "--json"))


@pytest.mark.parametrize("arguments", [SIZES, [*DENSE, "--schedule", "all"]], ids=["gpus and sizes", "schedules"])
def test_every_line_of_a_table_has_the_band_around_its_throughput(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    lines = [line for line in printed(capsys, *arguments).splitlines() if line.endswith(("fits", "fit"))]
    assert len(lines) >= 4
    for line in lines:
        found = BAND.search(line)
        assert found, line
        middle, low, high = (int(number.replace(",", "")) for number in found.groups())
        assert low < middle < high


def test_a_table_and_the_single_answer_have_the_same_band(capsys: pytest.CaptureFixture[str]) -> None:
    single = document(capsys, "--model", "llama3_8B", "--gpu", "mi300x", "--nodes", "2", "--gemm-backend", "roofline")
    low, high = single["throughput_band"]
    line = next(line for line in printed(capsys, *SIZES).splitlines() if line.startswith("2 x 8 mi300x"))
    assert f" {low:,.0f} to {high:,.0f} " in line


def test_all_schedules_are_one_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *DENSE, "--schedule", "all")
    by_name = {entry["schedule"]: entry for entry in found["schedules"]}
    assert {"1f1b", "zerobubble", "zbv-formatted", "zbv-greedy-half", "zbv-greedy-min", "dualpipe"} <= set(by_name)
    assert [entry["schedule"] for entry in found["schedules"] if entry["what_if"]] == ["seaailab-ilp", "dualpipe", "dualpipe-v"]
    for entry in by_name.values():
        low, high = entry["throughput_band"]
        assert low < entry["tokens_per_s_per_gpu"] < high
        assert entry["verdict"] == "fits" or entry["memory_gb"] > 288
    few = document(capsys, *DENSE, "--global-batch-size", "8", "--micro-batch-size", "1", "--schedule", "all")
    assert "needs micro-batches >= 2 x PP - 1 = 7, there are 4" in few["refused"]["zbv-formatted"]
