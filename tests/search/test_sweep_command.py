"""`primus-mcp sweep`, `cache` and `report` from the command line."""

from __future__ import annotations

import json
import re
import shlex
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
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and "mi300x_1nodes, mi300x_2nodes</h1>" in page
    assert all(f">{head}</th>" in page for head in ("nodes", "$/Mtoken", "days")) and "price of mi300x: median of" in page
    assert main(["cache"]) == 0
    assert "llama3.1_8B on mi300x_2nodes" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "out"), "--output", str(tmp_path / "page.html")]) == 0
    assert main(["cache", "clear"]) == 0


def test_a_sweep_ends_with_what_runs_and_prices_its_winner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--no-cache", "--out-dir", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    file = tmp_path / "out" / "winner_mi300x_1nodes.yaml"
    assert "=== EXPORTS" in printed and str(file) in printed
    rate = re.search(r"1\. +([\d,]+) tokens/s/GPU", printed)
    command = shlex.split(printed.strip().splitlines()[-1].partition("parts: ")[2])
    assert rate is not None and command[0] == "primus-mcp" and main(command[1:]) == 0
    assert f"throughput      {rate[1]} tokens/s/GPU" in capsys.readouterr().out
    assert main(["evaluate", "--workload", str(file), "--gpu", "mi300x", "--gemm-backend", "roofline"]) == 0
    assert f"throughput      {rate[1]} tokens/s/GPU" in capsys.readouterr().out


def test_a_sweep_says_what_can_turn_its_choice_over(capsys: pytest.CaptureFixture[str]) -> None:
    axes = [word if word != "tp,mbs,recompute_granularity" else "fp8,mbs" for word in SMALL]
    assert main([*axes, "--pin", "tp=2", "--no-cache"]) == 0
    printed = capsys.readouterr().out
    assert "computes in FP8, the workload in BF16" in printed
    assert "no published AMD run validates the time of TP traffic" in printed


def test_nodes_replace_those_of_a_cluster_file_whose_price_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("target_cluster: {name: ours, gpu_arch: mi300x, num_nodes: 4, price: {usd_per_gpu_hour: 2.25}}\n", encoding="utf-8")
    command = ["sweep", "--model", "llama3.1_8B", "--axes", "mbs", "--gemm-backend", "roofline", "--no-cache", "--jobs", "1"]
    assert main([*command, "--target-cluster", str(file), "--nodes", "1,2"]) == 0
    printed = capsys.readouterr().out
    assert "on ours_1nodes (8 GPUs)" in printed and "on ours_2nodes (16 GPUs)" in printed and "4nodes" not in printed
    assert re.search(r"^ +2 +mi300x +", printed, re.MULTILINE) and "price of mi300x: stated by the user" in printed
    assert main([*command, "--target-cluster", str(file), "--gpus-per-node", "4"]) == 2


def test_formats_that_are_priced_alike_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*(word if word != "tp,mbs,recompute_granularity" else "fp8" for word in SMALL), "--pin", "mbs=1", "--no-cache"]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines() if "tokens/s/GPU" in line and " TP" in line]
    assert [line[0] for line in shown] == ["1-2.", "3."] and {"fp8=delayed", "fp8=e4m3", "fp8=hybrid"} & set(shown[0]) and "or" in shown[0]


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--json", "--no-cache", "--top", "2", "--sensitivity", "--swing", "10"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["sweeps"][0]["sensitivity"]["swing"] == 0.1
    assert document["sweeps"][0]["proven"] and len(document["sweeps"][0]["top"]) == 2


def test_a_condition_that_nothing_meets_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--where", "memory_per_gpu_gb<1", "--no-cache"]) == 3
    assert "nothing legal fits and meets --where 'memory_per_gpu_gb<1'" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flags",
    [
        ["--where", "tp <"],
        ["--axes", "tpp"],
        ["--axes", "mbs,gbs"],
        ["--axes", "mbs,use_turbo_deepep"],
        ["--axes", "mbs", "--pin", "mbs=1"],
        ["--out-dir", ""],
        ["--out-dir", "~no-such-user/x"],
        ["--nodes", "0"],
        ["--nodes", "1,,2"],
        ["--deadline", "3d"],
        ["--swing", "10"],
        ["--sensitivity", "--swing", "51"],
        ["--target-tokens", "many"],
        ["--target-tokens", "1e300T"],
        ["--usd-per-gpu-hour", "1e6"],
        ["--nodes", "\u0661"],
        ["--nodes", "9" * 5000],
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    base = [word for word in SMALL if word not in ("--axes", "tp,mbs,recompute_granularity")] if "--axes" in flags else SMALL
    try:
        code = main([*base, *flags])
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("error: ")


def test_the_same_size_written_twice_is_swept_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--nodes", "1,01", "--json", "--no-cache"]) == 0
    assert len(json.loads(capsys.readouterr().out)["sweeps"]) == 1


def test_a_folder_that_nothing_can_be_written_to_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("primus_mcp.cli.sweep.sweep_one", lambda *_: pytest.fail("swept first"))
    (tmp_path / "file").write_text("in the way")
    assert main([*SMALL, "--out-dir", str(tmp_path / "file")]) == 2
    (tmp_path / "folder" / ".lock").mkdir(parents=True)
    assert main([*SMALL, "--out-dir", str(tmp_path / "folder")]) == 2
    assert "internal error" not in capsys.readouterr().err


def test_a_disk_that_fills_up_after_the_sweep_costs_the_report_not_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("primus_mcp.trials.storage.os.fsync", full)
    assert main([*SMALL, "--json", "--no-cache", "--out-dir", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr()
    assert json.loads(printed.out)["sweeps"][0]["proven"] and "No space left" in printed.err


def test_a_report_of_nothing_says_what_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "tune" in capsys.readouterr().err


def test_a_front_says_of_each_configuration_what_differs_from_the_first_and_json_has_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [*SMALL, "--nodes", "1,2", "--front", "--no-cache", "--jobs", "1", "--top", "1"]
    assert main(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(number for number, line in enumerate(lines) if "PARETO FRONT" in line)
    heads, first, *others = [line for line in lines[start + 1 :] if line.startswith("  ")][: lines[start:].index("")]
    others = [line for line in others if re.match(r" +[12] +mi", line)]
    assert "TP1 PP1 EP1 CP1 VPP1" in first and others and len({len(line[: heads.index("configuration")].rstrip()) for line in others}) == 1
    told = first[heads.index("configuration") :].replace("; ", " ")
    for line in others:
        changed = line[heads.index("configuration") :]
        assert "PP1" not in changed and "1f1b" not in changed and len(changed) < 60
        words = [] if changed == "the same" else changed.removeprefix("with ").replace("recompute ", "recompute_").split()
        assert all(word not in told.replace("recompute ", "recompute_").split() for word in words)
    assert main([*asked, "--json"]) == 0
    front = json.loads(capsys.readouterr().out)["front"]
    assert len(front) > 1 and all({"tp", "mbs", "recompute_granularity"} <= set(point["trial"]) for point in front)


def test_the_words_of_a_sensitivity_name_its_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--no-cache", "--jobs", "1", "--sensitivity", "--swing", "2.5"]) == 0
    assert "each uncertain rate at -2.5% and +2.5%:" in capsys.readouterr().out
