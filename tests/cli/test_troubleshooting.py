"""The texts that users search for (docs/troubleshooting.md), each as the behaviour that prints it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from primus_mcp.cli.main import main
from primus_mcp.projection.ops import backend

DOCUMENT = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
SMALL = ("--model", "llama3_8B", "--gpu", "mi300x", "--seq-length", "2048", "--gbs", "64")


def tune(tmp_path: Path, *arguments: str) -> int:
    return main(["tune", *SMALL, "--out-dir", str(tmp_path / "run"), "--seed-budget", "2", *arguments])


def test_without_the_agent_extra_the_llm_stage_is_skipped_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dspy", None)
    assert tune(tmp_path) == 0
    warning = capsys.readouterr().err
    assert "WARNING: cannot import agent (" in warning
    assert "); skipping LLM stage" in warning


def test_benchmark_without_a_gpu_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--seed-only", "--profiling-mode", "benchmark") in (2, 3)
    said = capsys.readouterr()
    assert "--profiling-mode benchmark but available_for_benchmark.has_gpu=false" in said.out + said.err


def test_origami_asked_for_by_name_has_a_remedy_and_auto_says_what_it_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "origami_is_installed", lambda: False)
    assert main(["evaluate", *SMALL, "--nodes", "2", "--gemm-backend", "origami"]) == 2
    assert "origami is not installed; pip install 'primus-mcp[origami]'" in capsys.readouterr().err
    assert main(["evaluate", *SMALL, "--nodes", "2", "--set", "tp=8"]) == 0
    assert "roofline" in capsys.readouterr().out


def test_an_out_dir_with_trials_is_told_unless_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--seed-only") == 0
    capsys.readouterr()
    assert tune(tmp_path, "--seed-only") == 0
    assert "trials.jsonl exists; re-using" in capsys.readouterr().err
    assert tune(tmp_path, "--seed-only", "--resume") == 0
    assert "exists; re-using" not in capsys.readouterr().err


def test_nothing_that_fits_ends_with_the_reasons_and_code_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert main(["tune", "--model", "megatron_1t", "--gpu", "mi300x", "--seed-only", "--seed-budget", "2", "--out-dir", str(run)]) == 3
    said = capsys.readouterr().out
    assert "no legal trial found" in said
    assert "memory_safety_margin" in said or "hbm_capacity_gb" in said or "GPUs" in said


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--model", "lama3.1_70b", "--gpu", "mi300x"), "did you mean"),
        (("--model", "llama3_8B", "--gpu", "mi300"), "did you mean mi300x"),
        (("--workload", "gone.yaml", "--gpu", "mi300x"), "gone.yaml: does not exist"),
        (("--workload", "gone.yaml", "--gpu", "mi300x", "--seq-length", "4"), "--model and --hf only"),
        (("--model", "llama3_8B", "--target-cluster", "c.yaml", "--gpus-per-node", "4"), "--gpu only"),
        (("--model", "gpt3_175b", "--gpu", "mi300x", "--seq-length", "4096"), "learned positions"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", *arguments]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("error: ")
    assert text in said
    assert "\n" not in said


@pytest.mark.parametrize("arguments", [("--gpu", "mi300x"), ("--model", "llama3_8B"), ("--model", "a", "--workload", "b", "--gpu", "c")])
def test_a_workload_and_a_cluster_are_asked_for(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["evaluate", *arguments])
    assert left.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_the_document_names_every_text_that_is_tested_here() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for said in (
        "WARNING: cannot import agent (...); skipping LLM stage",
        "--profiling-mode benchmark but available_for_benchmark.has_gpu=false",
        "origami is not installed",
        "exists; re-using",
        "no legal trial found",
    ):
        assert said in text
