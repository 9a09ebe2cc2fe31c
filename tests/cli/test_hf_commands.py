"""`--hf config.json` wherever a workload is taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from cli_cases import run

from primus_mcp.api import resolve_workload

FOLDER = Path(__file__).parent.parent / "inputs" / "hf"
LLAMA = str(FOLDER / "llama3.1_8B.json")
MIXTRAL = str(FOLDER / "mixtral_8x7B_v0.1.json")


@pytest.mark.parametrize(
    "words",
    [
        ("check", "--hf", LLAMA, "--seq-length", "8192"),
        ("memory", "--hf", LLAMA, "--gpu", "mi300x", "--nodes", "1"),
        ("performance", "--hf", LLAMA, "--gpu", "mi300x", "--nodes", "1", "--gemm-backend", "roofline"),
        ("both", "--hf", LLAMA, "--gpu", "mi300x", "--nodes", "1", "--gemm-backend", "roofline"),
        ("axes", "--hf", MIXTRAL, "--gpu", "mi355x"),
        ("evaluate", "--hf", LLAMA, "--gpu", "mi300x", "--gemm-backend", "roofline", "--gbs", "64"),
        ("sweep", "--hf", LLAMA, "--gpu", "mi300x", "--axes", "tp,mbs", "--gemm-backend", "roofline", "--no-cache", "--top", "2"),
    ],
    ids=lambda words: words[0],
)
def test_every_command_takes_a_config(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    code, out, err = run(capsys, *words)
    assert code == 0, err
    assert out
    assert "Traceback" not in err


def test_tune_writes_a_workload_file_that_the_program_reads_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("--seed-only", "--seed-budget", "2", "--gemm-backend", "roofline", "--out-dir", str(tmp_path / "run"))
    code, out, err = run(capsys, "tune", "--hf", LLAMA, "--gpu", "mi300x", "--gbs", "64", "--seq-length", "8192", *words)
    assert code == 0 and "BEST CONFIGURATION" in out, err
    overlay = next((tmp_path / "run" / "trials").glob("*.yaml"))
    code, out, _ = run(capsys, "check", str(overlay), "--json")
    read = json.loads(out)
    assert code == 0
    assert (read["parameters"], read["architecture"]["seq_length"], read["baseline"]["gbs"]) == (8_030_261_248, 8192, 64)
    overrides = yaml.safe_load(overlay.read_text(encoding="utf-8"))["modules"]["pre_trainer"]["overrides"]
    assert (overrides["rotary_base"], overrides["norm_epsilon"], overrides["rope_scaling_factor"]) == (500_000, 1e-5, 8.0)


def test_keys_that_are_not_known_are_said_before_the_numbers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(Path(LLAMA).read_text(encoding="utf-8")), "loop_count": 3}), encoding="utf-8")
    _, _, err = run(capsys, "memory", "--hf", str(file), "--gpu", "mi300x", "--nodes", "1")
    assert "loop_count" in err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("check", "--hf", "missing.json"), "missing.json"),
        (("check", "--hf", LLAMA, "--model", "llama2_7B"), "one"),
        (("memory", "--hf", LLAMA, "--model", "llama2_7B", "--gpu", "mi300x"), "not allowed"),
        (("memory", "--hf", str(FOLDER), "--gpu", "mi300x"), "config.json"),
    ],
)
def test_a_bad_config_is_one_line_with_exit_code_2(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], named: str) -> None:
    code, _, err = run(capsys, *words)
    assert code == 2
    assert [line.startswith("error:") for line in err.splitlines()].count(True) == 1 and named in err


def test_the_programming_interface_takes_the_path_of_a_config() -> None:
    workload = resolve_workload(LLAMA, seq_length=8192, gbs=64)
    assert (workload.architecture.seq_length, workload.baseline.gbs) == (8192, 64)
    assert resolve_workload(Path(LLAMA)).architecture.hidden_size == 4096
