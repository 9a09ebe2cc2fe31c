"""benchmark, calibrate and the flags that choose an evaluator, as a user types them."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from cli_cases import run
from workload_cases import workload_text

TINY = {
    "micro_batch_size": 1,
    "global_batch_size": 8,
    "num_layers": 2,
    "hidden_size": 128,
    "ffn_hidden_size": 256,
    "num_attention_heads": 4,
    "num_query_groups": 2,
    "kv_channels": 32,
    "seq_length": 64,
    "max_position_embeddings": 64,
}
MODEL = ["--model", "llama3.1_8B", "--seq-length", "4096", "--gpu", "mi300x", "--gbs", "128", "--gemm-backend", "roofline"]


def test_the_plan_of_a_measured_run_needs_no_device(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "benchmark", *MODEL, "--set", "tp=8", "--benchmark-gpus", "2", "--plan-only")
    assert code == 0 and "2 ranks" in out and "TP 8 to 2" in out and "attention_core:" in out
    code, out, _ = run(capsys, "benchmark", *MODEL, "--plan-only", "--json")
    assert code == 0 and json.loads(out)["ranks"] == 1


def test_cpu_figures_do_not_anchor_a_gpu_unless_forced(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "benchmark", *MODEL, "--device", "cpu")
    assert code == 2 and "device: cpu" in err and "force" in err


def test_an_illegal_configuration_and_too_few_repeats_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "benchmark", *MODEL, "--set", "tp=3")[0] == 3
    assert run(capsys, "benchmark", *MODEL, "--repeats", "2")[0] == 2


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_a_forced_cpu_run_goes_the_whole_way_and_its_artefact_is_used_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "small.yaml").write_text(workload_text("llama3.1_8B", **TINY))
    where = ["--workload", str(tmp_path / "small.yaml"), "--gpu", "mi300x", "--device", "cpu", "--force", "--repeats", "3"]
    code, out, err = run(capsys, "benchmark", *where, "--save-benchmark", str(tmp_path / "bench.json"))
    assert code == 0 and "reference-kernels" in out and "device: cpu" in out and "layer 1 of" in err
    code, out, err = run(capsys, "benchmark", *where, "--load-benchmark", str(tmp_path / "bench.json"), "--json")
    document = json.loads(out)
    assert code == 0 and "layer 1 of" not in err
    assert document["anchor"] == "reference-kernels" and document["device"]["device"] == "cpu"
    assert document["iteration_ms"]["simulate"] == pytest.approx(document["iteration_ms"]["benchmark"])


def rows(capsys: pytest.CaptureFixture[str], slower: float) -> list[dict[str, Any]]:
    """Runs of a user whose machine is slower than the projection by a factor."""
    found = []
    for number, (mbs, gbs) in enumerate([(1, 128), (2, 128), (4, 128)]):
        knobs = ["--set", f"mbs={mbs}", "--set", f"gbs={gbs}", "--allow-policy"]
        out = run(capsys, "evaluate", *MODEL, *knobs, "--json")[1]
        tokens = json.loads(out)["tokens_per_s_per_gpu"]
        assert tokens is not None
        found.append(
            {
                "id": f"run {number}",
                "model": "Llama-3.1-8B",
                "gpu": "mi300x",
                "n_gpus": 8,
                "framework": "Primus/Megatron-LM",
                "seq": 4096,
                "precision": "BF16",
            }
            | {"mbs": mbs, "gbs": gbs, "tp": 1, "pp": 1, "tokens_s_gpu": tokens / slower}
        )
    return found


def test_a_calibration_is_fitted_saved_and_applied_on_request_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, saved = tmp_path / "rows.jsonl", tmp_path / "calibration.json"
    path.write_text("\n".join(json.dumps(row) for row in rows(capsys, 1.2)))
    code, out, err = run(capsys, "calibrate", "--rows", str(path), "--backend", "roofline", "--save", str(saved))
    assert code == 0, err
    assert "3 runs on mi300x" in out and "of runs left out" in out
    plain = json.loads(run(capsys, "evaluate", *MODEL, "--set", "mbs=1", "--json")[1])
    corrected = json.loads(run(capsys, "evaluate", *MODEL, "--set", "mbs=1", "--calibration", str(saved), "--json")[1])
    assert corrected["iteration_ms"] > plain["iteration_ms"]
    assert sum(corrected["time_breakdown"].values()) == pytest.approx(corrected["iteration_ms"])
    assert corrected["warnings"][0]["code"] == "calibrated" and not any(w["code"] == "calibrated" for w in plain["warnings"])
    other = [word if word != "mi300x" else "mi355x" for word in MODEL]
    code, _, err = run(capsys, "evaluate", *other, "--calibration", str(saved))
    assert code == 2 and "was fitted for GPU mi300x" in err


def test_a_calibration_file_that_is_none_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "no.json").write_text("{}")
    code, _, err = run(capsys, "evaluate", *MODEL, "--calibration", str(tmp_path / "no.json"))
    assert code == 2 and "is no calibration" in err


def test_primus_as_evaluator_needs_a_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "evaluate", *MODEL, "--evaluator", "primus")
    assert code == 2 and "--primus-root" in err
