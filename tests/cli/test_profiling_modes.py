"""memory, performance and both with --profiling-mode: measured once, anchored, side by side, and refused with the remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_cases import run
from device_cases import answer

from primus_mcp.evaluation import measured
from primus_mcp.evaluation.measured import BenchmarkSettings, measured_projection
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.measurement import launch
from primus_mcp.measurement.artefact import load
from primus_mcp.measurement.job import Job, RankReport
from primus_mcp.measurement.measure import measure
from primus_mcp.measurement.residuals import read_residuals
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.legality import check_legality

FLAGS = ["--model", "llama3.1_8B", "--seq-length", "4096", "--global-batch-size", "128", "--micro-batch-size", "1"]
FLAGS += ["--gemm-backend", "roofline", "--set", "recompute_granularity=none"]
ON_MI300X = [*FLAGS, "--gpu-arch", "mi300x"]
Said = Callable[..., tuple[int, str, str]]


def pretended(job: Job, **_: Any) -> tuple[RankReport, ...]:
    return (answer(job),)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Said:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing may be measured here")

    monkeypatch.setattr(launch, "_run", never)

    return lambda *words: run(capsys, *words)


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """Layers of the 8B model at MBS 1, from the pretended GPU."""
    workload, cluster = workload_from_model("llama3.1_8B", seq_length=4096, gbs=128), make_cluster("mi300x")
    config = check_legality(workload, TrialConfig(mbs=1, gbs=128), cluster, allow_policy=True).config
    assert config is not None
    settings = BenchmarkSettings(gpus=1, runner=pretended, store=tmp_path / "bench.json")
    measured_projection(workload.architecture, config, cluster, settings, backend="roofline")
    return tmp_path / "bench.json"


def test_a_saved_artefact_anchors_time_and_memory_without_a_device(said: Said, bench: Path) -> None:
    mode = ["--profiling-mode", "benchmark", "--load-benchmark", str(bench)]
    code, out, _ = said("performance", *ON_MI300X, *mode, "--json")
    document = json.loads(out)
    simulated = json.loads(said("performance", *ON_MI300X, "--json")[1])
    assert code == 0 and document["source"] == "benchmark" and document["benchmark"]["anchor"] == "kernels"
    assert document["benchmark"]["iteration_ms"] == {"simulate": simulated["iteration_ms"], "benchmark": document["iteration_ms"]}
    # 16 micro-batches of 32 layers of (20 + 10) ms forward and (40 + 20) ms backward, embedding and head once each
    assert document["iteration_ms"] > 16 * (32 * 90 + 2 * 30)
    memory = json.loads(said("memory", *ON_MI300X, *mode, "--json")[1])
    assert memory["benchmark"]["memory_components_gb"]["measured_overhead"]["benchmark"] == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("memory", ["measured outside torch"]),
        ("performance", ["attention kernel"]),
        ("both", ["measured outside torch", "attention kernel"]),
    ],
)
def test_both_shows_simulate_and_benchmark_side_by_side_by_component(said: Said, bench: Path, command: str, shown: list[str]) -> None:
    code, out, _ = said(command, *ON_MI300X, "--profiling-mode", "both", "--load-benchmark", str(bench))
    assert code == 0 and "anchor          kernels" in out and "difference" in out
    for component in shown:
        figures = [line.removeprefix(component).split() for line in out.splitlines() if line.startswith(component)]
        assert any(float(line[2].replace(",", "")) != 0 for line in figures), component
    beside = said(command, *ON_MI300X, "--profiling-mode", "benchmark", "--load-benchmark", str(bench))[1]
    assert "difference" not in beside and "anchor          kernels" in beside


def test_a_shape_that_was_not_measured_takes_the_nearest_factor_and_says_so(said: Said, bench: Path) -> None:
    mode = ["--profiling-mode", "benchmark", "--load-benchmark", str(bench), "--json"]
    measured = json.loads(said("performance", *ON_MI300X, *mode)[1])["benchmark"]
    wider = [*ON_MI300X[:7], "2", *ON_MI300X[8:]]
    carried = json.loads(said("performance", *wider, *mode)[1])["benchmark"]
    assert carried["factors"]["dense"]["dense_mlp"] == measured["factors"]["dense"]["dense_mlp"]
    told = [note for note in carried["notes"] if "its factor is that of" in note]
    assert not any("its factor is that of" in note for note in measured["notes"]) and len(told) == 5
    assert carried["iteration_ms"]["simulate"] < carried["iteration_ms"]["benchmark"]


def test_without_permission_or_figures_the_remedy_is_named(said: Said, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("target_cluster: {gpu_arch: mi300x, num_nodes: 1}\navailable_for_benchmark: {has_gpu: false}\n")
    for command in ("memory", "performance", "both"):
        code, _, err = said(command, *FLAGS, "--target-cluster", str(cluster), "--profiling-mode", "both")
        assert code == 2 and "has_gpu=false" in err and "set has_gpu: true and benchmark_gpus" in err and "--load-benchmark" in err
        code, _, err = said(command, *ON_MI300X, "--profiling-mode", "benchmark")
        assert code == 2 and "--benchmark-gpus N" in err
    code, _, err = said("benchmark", *FLAGS[:4], "--target-cluster", str(cluster), "--gbs", "128")
    assert code == 2 and "has_gpu=false" in err


def test_figures_of_another_gpu_are_refused(said: Said, bench: Path) -> None:
    code, _, err = said("both", *FLAGS, "--gpu-arch", "mi355x", "--profiling-mode", "both", "--load-benchmark", str(bench))
    assert code == 2 and "benchmark_arch" in err


def test_measured_layers_are_saved_and_kept_as_residuals(said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "measure", lambda *a, **k: measure(*a, **{**k, "runner": pretended}))
    saved = tmp_path / "bench.json"
    code, _, _ = said("performance", *ON_MI300X, "--profiling-mode", "benchmark", "--benchmark-gpus", "1", "--save-benchmark", str(saved))
    lines = read_residuals(tmp_path / "cache" / "primus-mcp" / "residuals.jsonl")
    assert code == 0 and load(saved).residuals and {line.kind for line in lines} >= {"attention_core", "dense_mlp", "head"}
    assert all(line.gpu == "mi300x" and line.own_kernels and sum(line.terms_s.values()) > 0 for line in lines)
    code, out, _ = said("calibrate", "--residuals", "--save", str(tmp_path / "calibration.json"))
    assert code == 0 and f"{len(lines)} layers on mi300x" in out and "of layers left out" in out
