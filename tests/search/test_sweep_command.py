"""`primus-mcp sweep`, `cache` and `report` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from primus_mcp.cli.main import main

SMALL = ["sweep", "--model", "llama3.1_8B", "--gpu", "mi300x", "--axes", "tp,mbs,recompute_granularity", "--gemm-backend", "roofline"]


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PRIMUS_MCP_CACHE_DIR", str(tmp_path / "cache"))


def test_a_sweep_prints_the_proof_and_writes_a_report_and_the_cache_knows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*SMALL, "--nodes", "1,2", "--target-tokens", "1T", "--deadline", "900d", "--sensitivity", "--out-dir", str(tmp_path / "out")]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "proven under the model" in printed and "PARETO FRONT" in printed and "900 days" in printed and "HOW SURE" in printed
    assert (tmp_path / "out" / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main(["cache"]) == 0
    assert "llama3.1_8B on mi300x_2nodes" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "out"), "--output", str(tmp_path / "page.html")]) == 0
    assert main(["cache", "clear"]) == 0


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--json", "--no-cache", "--top", "2"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["sweeps"][0]["proven"] and len(document["sweeps"][0]["top"]) == 2


def test_a_condition_that_nothing_meets_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--where", "memory_per_gpu_gb<1", "--no-cache"]) == 3
    assert "nothing legal fits" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flags",
    [["--where", "tp <"], ["--axes", "tpp"], ["--nodes", "0"], ["--nodes", "1,1"], ["--deadline", "3d"], ["--target-tokens", "many"]],
)
def test_bad_input_is_one_line_and_exit_code_2(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    base = [word for word in SMALL if word not in ("--axes", "tp,mbs,recompute_granularity")] if "--axes" in flags else SMALL
    assert main([*base, *flags]) == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("error: ")


def test_a_report_of_nothing_says_what_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "tune" in capsys.readouterr().err
