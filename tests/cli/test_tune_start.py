"""What `tune` starts from: the cache of earlier runs, and a sweep of the whole space; and what it says about money."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from primus_mcp.cli.main import main
from primus_mcp.errors import PrimusMcpError
from primus_mcp.search import cache as module
from primus_mcp.search.cache import TrialCache, cache_file

SMALL = ["tune", "--model", "llama3.1_8B", "--gpu", "mi300x", "--gemm-backend", "roofline", "--quiet"]


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "trials.jsonl").read_text(encoding="utf-8").splitlines()]


def best(folder: Path) -> float:
    found: float = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["best"]["result"]["tokens_per_s_per_gpu"]
    return found


def test_a_later_run_prices_what_an_earlier_one_found_and_says_where_it_is_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--seed-only", "--out-dir", str(tmp_path / "a")]) == 0
    capsys.readouterr()
    assert main([*SMALL, "--seed-only", "--seed-budget", "4", "--out-dir", str(tmp_path / "b")]) == 0
    assert "best known of" in capsys.readouterr().out
    first = rows(tmp_path / "b")[0]
    assert first["label"].startswith("best known of an earlier run: llama3.1_8B on mi300x_1nodes, 20")
    assert best(tmp_path / "b") == best(tmp_path / "a")
    assert main([*SMALL, "--seed-only", "--seed-budget", "4", "--no-cache", "--out-dir", str(tmp_path / "c")]) == 0
    assert not any("best known" in row["label"] for row in rows(tmp_path / "c"))


def test_what_an_earlier_run_found_on_more_gpus_and_cannot_run_here_is_no_seed(tmp_path: Path) -> None:
    seeds = [*SMALL, "--seed-only", "--seed-budget", "4", "--out-dir"]
    assert main([*SMALL, "--nodes", "8", "--pin", "pp=16", "--seed-only", "--out-dir", str(tmp_path / "a")]) == 0
    assert main([*seeds, str(tmp_path / "b")]) == 0
    assert all(row["result"]["legal"] for row in rows(tmp_path / "b") if "best known" in row["label"])
    assert main([*seeds, str(tmp_path / "c"), "--nodes", "8"]) == 0
    assert any("best known" in row["label"] for row in rows(tmp_path / "c"))


def test_numbers_of_another_engine_are_never_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--seed-only", "--out-dir", str(tmp_path / "a")]) == 0
    with sqlite3.connect(cache_file()) as connection:
        nine_times = """replace(result, 'tokens_per_s_per_gpu":', 'tokens_per_s_per_gpu":9')"""
        connection.execute(f"UPDATE best SET engine = 'older', rate = rate * 100, result = {nine_times}")
    capsys.readouterr()
    assert main([*SMALL, "--seed-only", "--out-dir", str(tmp_path / "b")]) == 0
    assert best(tmp_path / "b") == best(tmp_path / "a")
    assert {row["result"]["engine_version"] for row in rows(tmp_path / "b")} == {rows(tmp_path / "a")[0]["result"]["engine_version"]}


@pytest.mark.parametrize("broken", ["garbage", "folder", "locked"])
def test_a_cache_that_cannot_be_used_costs_one_line(
    broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUSY_S", 0.1)
    file = cache_file()
    file.parent.mkdir(parents=True)
    holder = None
    if broken == "garbage":
        file.write_bytes(b"not a database, but long enough to be read as one" * 50)
    elif broken == "folder":
        file.mkdir()
    else:
        holder = sqlite3.connect(file, isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
    try:
        assert main([*SMALL, "--seed-only", "--seed-budget", "2", "--out-dir", str(tmp_path / "a")]) == 0
    finally:
        if holder is not None:
            holder.close()
    warnings = [line for line in capsys.readouterr().err.splitlines() if "cache" in line]
    assert len(warnings) == 1 and warnings[0].startswith("WARNING: the cache ")


def test_runs_at_once_all_leave_their_best(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "primus_mcp", *SMALL, "--seed-only", "--seed-budget", "3"]
    started = [
        subprocess.Popen([*command, "--out-dir", str(tmp_path / str(i)), "--gbs", str(64 * 2**i)], env=os.environ, stderr=subprocess.PIPE,
                         stdout=subprocess.DEVNULL)
        for i in range(3)
    ]  # fmt: skip
    said = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], said
    assert len({entry.digests.workload for entry in TrialCache().entries()}) == 3


def test_the_search_starts_from_the_optimum_of_the_whole_space(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = [*SMALL, "--strategy", "coordinate", "--jobs", "1", "--out-dir", str(tmp_path / "a")]
    assert main(run) == 0
    said = capsys.readouterr().err
    swept = [row for row in rows(tmp_path / "a") if row["origin"] == "sweep"]
    assert swept and all(row["label"].startswith("sweep: ") for row in swept)
    assert main(["sweep", *SMALL[1:-1], "--json", "--no-cache", "--top", "1"]) == 0
    optimum = json.loads(capsys.readouterr().out)["sweeps"][0]["top"][0]["result"]["tokens_per_s_per_gpu"]
    assert best(tmp_path / "a") == optimum
    assert "proven under the model" in (tmp_path / "a" / "scratchpad.txt").read_text(encoding="utf-8")
    assert "proven under the model" in said and "no search can gain" in said
    assert "coordinate" not in {row["origin"] for row in rows(tmp_path / "a")}
    summary = json.loads((tmp_path / "a" / "summary.json").read_text(encoding="utf-8"))
    assert summary["stopped_because"] == "optimum proven" and "proven under the model" in summary["agent"]["stopped_because"]
    before = len(rows(tmp_path / "a"))
    assert main([*run, "--resume"]) == 0
    assert len(rows(tmp_path / "a")) == before and "sweep of" not in capsys.readouterr().err


def test_after_a_proof_one_line_says_that_no_language_model_is_there_and_the_answer_has_the_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "dspy", None)
    monkeypatch.setattr("primus_mcp.driver.stage.missing_dspy", lambda: "No module named 'dspy'")
    assert main([*SMALL, "--jobs", "1", "--out-dir", str(tmp_path / "a")]) == 0
    printed = capsys.readouterr()
    said = [line for line in printed.err.splitlines() if "search" in line or "LLM" in line]
    assert len(said) == 1 and said[0].startswith("WARNING: cannot import agent (No module named 'dspy'); skipping LLM stage; trial #")
    assert said[0].endswith("proven under the model: no search can gain")
    assert "  proof: trial #" in printed.out and "0 rounds" not in printed.out
    assert "no search after the seeds: trial #" in printed.out


def test_a_sweep_that_fails_costs_a_line_and_not_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise PrimusMcpError("a worker process ended by itself")

    monkeypatch.setattr("primus_mcp.search.sweep.sweep", killed)
    assert main([*SMALL, "--strategy", "coordinate", "--budget", "max_proposals=2", "--out-dir", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr()
    assert "without a sweep: a worker process ended by itself" in printed.err and "BEST CONFIGURATION" in printed.out


def test_what_the_sweep_prices_is_no_budget_of_the_driver(tmp_path: Path) -> None:
    run = [*SMALL, "--strategy", "coordinate", "--budget", "max_proposals=0", "--jobs", "1", "--out-dir", str(tmp_path / "a")]
    assert main(run) == 0
    origins = {row["origin"] for row in rows(tmp_path / "a")}
    assert origins == {"seed", "sweep"}


@pytest.mark.parametrize("flags", [["--start", "seeds"], ["--dry-run"], ["--mode", "memory-real"]])
def test_no_sweep_where_it_is_not_wanted_or_no_time_is_projected(flags: list[str], tmp_path: Path) -> None:
    assert main([*SMALL, *flags, "--strategy", "coordinate", "--budget", "max_proposals=2", "--out-dir", str(tmp_path / "a")]) == 0
    assert "sweep" not in {row["origin"] for row in rows(tmp_path / "a")}


@pytest.mark.parametrize(
    ("price", "said"),
    [
        ("price: {usd_per_gpu_hour: 3.6, source: contract, date: '2026-11-01'}", "(stated by the user: contract, 2026-11-01)"),
        ("", "median of"),
    ],
)  # fmt: skip
def test_what_a_million_tokens_cost_by_the_cluster_file_or_by_quotes(
    price: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(f"target_cluster:\n  gpu_arch: mi300x\n  {price}\n", encoding="utf-8")
    command = ["tune", "--model", "llama3.1_8B", "--target-cluster", str(file), "--gemm-backend", "roofline", "--seed-only", "--quiet"]
    assert main([*command, "--seed-budget", "2", "--out-dir", str(tmp_path / "a")]) == 0
    printed = capsys.readouterr().out
    assert said in printed and printed.index("cost: $") < printed.index("=== EXPORTS")
    if price:
        assert f"cost: ${3.6 / 3600 / best(tmp_path / 'a') * 1e6:.3f}/Mtoken" in printed


def test_a_run_of_the_baseline_whose_memory_is_far_off_is_told_beside_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, "--seed-only", "--seed-budget", "2", "--measured-memory-gb", "20", "--out-dir", str(tmp_path / "a")]) == 0
    printed = capsys.readouterr().out
    assert "baseline: projected" in printed and "  note: the projection contradicts your run of the baseline: " in printed
    assert "expect every memory figure" in printed


def test_no_price_is_made_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", "--model", "llama3.1_8B", "--gpu", "mi355x", "--gemm-backend", "roofline", "--seed-only", "--quiet"]
    assert main([*command, "--seed-budget", "2", "--out-dir", str(tmp_path / "a")]) == 0
    assert "cost" not in capsys.readouterr().out


@pytest.mark.parametrize("value", ["0", "-1", ".inf", ".nan", "cheap", "true"])
def test_a_price_that_is_none_is_bad_input(value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(f"target_cluster: {{gpu_arch: mi300x, price: {{usd_per_gpu_hour: {value}}}}}\n", encoding="utf-8")
    assert main(["tune", "--model", "llama3.1_8B", "--target-cluster", str(file), "--seed-only"]) == 2
    assert "usd_per_gpu_hour" in capsys.readouterr().err


def test_tokens_by_a_deadline_ask_for_the_fewest_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["sweep", "--model", "llama3.1_8B", "--gpu", "mi300x", "--nodes", "1,2,4", "--axes", "tp,mbs", "--gemm-backend", "roofline"]
    assert main([*asked, "--target-tokens", "1T", "--json", "--usd-per-gpu-hour", "2"]) == 0
    document = json.loads(capsys.readouterr().out)
    days = {point["nodes"]: point["days"] for point in document["front"]}
    rates = {one["gpus"] // 8: one["top"][0]["result"]["tokens_per_s_per_gpu"] for one in document["sweeps"]}
    for nodes, one in days.items():
        assert one == pytest.approx(1e12 / (rates[nodes] * nodes * 8) / 86400)
    between = (1e12 / (rates[2] * 16) + 1e12 / (rates[4] * 32)) / 2 / 86400
    assert main([*asked, "--target-tokens", "1T", "--deadline", f"{between:.1f}d", "--usd-per-gpu-hour", "2"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert "4 nodes (32 mi300x)" in first and "$" in first
    assert main([*asked, "--target-tokens", "1T", "--deadline", "10d"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    nodes = math.ceil(4 * min(days.values()) / 10)
    assert "none of the swept clusters" in first and f"about {nodes:,} nodes would do" in first and f"--nodes {nodes}," in first
    assert main([*asked, "--target-tokens", "1000000T", "--deadline", "1d"]) == 0
    assert "more than" in capsys.readouterr().out.splitlines()[0]
