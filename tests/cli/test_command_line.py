"""The command line as a user meets it: exit codes, one-line errors, artefacts."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from cli_cases import run

from primus_mcp.driver import settings as driver_settings

ROOT = Path(__file__).parent.parent.parent
WORKLOAD = ROOT / "examples" / "workloads" / "mixtral_8x22B_v0.1-BF16-pretrain.yaml"
CLUSTER = ROOT / "examples" / "clusters" / "mi355x_4nodes.yaml"
BOTH = ["--workload", str(WORKLOAD), "--target-cluster", str(CLUSTER)]


def test_tune_prints_the_best_block_with_exports_and_writes_every_artefact(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "tune", *BOTH, "--seed-only", "--out-dir", str(tmp_path / "run"))
    assert code == 0
    assert "=== BEST CONFIGURATION ===" in out
    assert "=== EXPORTS for primus-cli ===" in out
    for name in ("trials.jsonl", "trials.png", "scratchpad.txt", "summary.json", "journal.jsonl", "session.json"):
        assert (tmp_path / "run" / name).is_file(), name
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    best = summary["best"]
    assert f"tokens/s/GPU = {best['result']['tokens_per_s_per_gpu']:,.0f}" in out
    assert (tmp_path / "run" / best["overlay"]).is_file()
    assert best["result"]["within_margin"] is True


def test_a_second_run_prices_nothing_again_and_says_that_it_re_uses_the_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run(capsys, "tune", *BOTH, "--seed-only", "--out-dir", str(tmp_path / "run"))
    before = (tmp_path / "run" / "trials.jsonl").read_bytes()
    code, _, err = run(capsys, "tune", *BOTH, "--seed-only", "--out-dir", str(tmp_path / "run"))
    assert code == 0
    assert "trials.jsonl exists; re-using" in err
    assert (tmp_path / "run" / "trials.jsonl").read_bytes() == before
    _, _, quiet = run(capsys, "tune", *BOTH, "--seed-only", "--resume", "--out-dir", str(tmp_path / "run"))
    assert "re-using" not in quiet


def test_the_dry_run_is_headed_synthetic_and_exports_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "tune", *BOTH, "--dry-run", "--seed-only", "--out-dir", str(tmp_path / "run"))
    assert code == 0
    assert "SYNTHETIC" in out
    assert "EXPORTS" not in out


def test_without_seed_only_the_missing_llm_stage_is_said_in_the_words_of_the_guide(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "LLM_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(driver_settings, "env_folders", lambda *_: [])
    code, out, err = run(capsys, "tune", *BOTH, "--dry-run", "--out-dir", str(tmp_path / "run"))
    assert code == 0
    assert ("WARNING: cannot import agent (" if find_spec("dspy") is None else "WARNING: no language model (") in err
    assert "); skipping LLM stage" in err
    assert "BEST CONFIGURATION" in out


def test_a_cluster_on_which_nothing_fits_ends_with_code_3_and_says_which_rules_removed_what(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster = tmp_path / "tiny.yaml"
    cluster.write_text(yaml.safe_dump({"target_cluster": {"name": "tiny", "num_nodes": 1, "gpu_arch": "mi300x"}}))
    code, out, _ = run(
        capsys,
        "tune",
        "--workload",
        str(WORKLOAD),
        "--target-cluster",
        str(cluster),
        "--seed-only",
        "--seed-budget",
        "3",
        "--out-dir",
        str(tmp_path / "run"),
    )
    assert code == 3
    assert "no legal trial found" in out
    assert "need more memory than" in out


def test_benchmark_profiling_without_a_gpu_marks_trials_illegal_with_the_guides_words(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster = tmp_path / "nogpu.yaml"
    cluster.write_text(yaml.safe_dump({"target_cluster": {"name": "nogpu", "num_nodes": 4}}))
    words = ["tune", "--workload", str(WORKLOAD), "--target-cluster", str(cluster), "--seed-only", "--seed-budget", "2"]
    code, out, _ = run(capsys, *words, "--profiling-mode", "benchmark", "--out-dir", str(tmp_path / "run"))
    assert code == 3
    assert "--profiling-mode benchmark but available_for_benchmark.has_gpu=false" in out


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["tune", "--workload", "missing.yaml", "--target-cluster", str(CLUSTER)], "missing.yaml"),
        (["tune", "--workload", str(WORKLOAD), "--target-cluster", "."], "."),
        (["tune", *BOTH, "--seed-budget", "-3"], "-3"),
        (["tune", *BOTH, "--measured-tokens-per-s", "nan"], "nan"),
        (["tune", *BOTH, "--pin", "tpp=8"], "did you mean"),
        (["tune", *BOTH, "--pin", "tp"], "tp"),
        (["tune", *BOTH, "--budget", "max_round=3"], "max_rounds"),
        (["tune", *BOTH, "--sed-only"], "--seed-only"),
        (["tune", *BOTH, "--out-dir", str(WORKLOAD)], WORKLOAD.name),
        (["evaluate", *BOTH, "--config", '{"tp": "8"}'], "tp"),
        (["evaluate", *BOTH, "--config", '{"tp": true}'], "tp"),
        (["evaluate", *BOTH, "--config", "[1]"], "object"),
        (["evaluate", *BOTH, "--config", '{"mbs": NaN}'], "NaN"),
        (["evaluate", *BOTH, "--set", "fp8=int4"], "fp8"),
        (["evaluate", "--model", "deepseek_v2_lite", "--gpu", "mi35x"], "error: --gpu: unknown GPU 'mi35x'; did you mean mi355x?"),
        (["check", str(CLUSTER)], "modules"),
        (["axes", "--workload", str(CLUSTER), "--target-cluster", str(WORKLOAD)], "target_cluster"),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_with_exit_code_2(capsys: pytest.CaptureFixture[str], words: list[str], named: str, tmp_path: Path) -> None:
    if words[0] == "tune" and "--out-dir" not in words:
        words = [*words, "--out-dir", str(tmp_path / "run")]
    code, out, err = run(capsys, *words)
    errors = [line for line in err.splitlines() if line.startswith("error:")]
    assert code == 2
    assert len(errors) == 1 and named in errors[0]
    assert "Traceback" not in out + err


def test_evaluate_says_why_a_configuration_is_illegal_with_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "evaluate", *BOTH, "--set", "tp=5")
    assert code == 3
    assert "illegal" in out and "48" in out and "5" in out


def test_evaluate_prices_what_only_a_policy_leaves_out_and_names_the_policy(capsys: pytest.CaptureFixture[str]) -> None:
    knobs = ["--set", "vpp=9", "--memory-only", "--json"]
    told = json.loads(run(capsys, "evaluate", *BOTH, *knobs)[1])
    assert told["legal"] and told["memory_per_gpu_gb"] > 0
    assert [warning["text"] for warning in told["warnings"] if warning["code"] == "policy"] and told["refused_by"] == []
    lifted = json.loads(run(capsys, "evaluate", *BOTH, *knobs, "--allow-policy")[1])
    assert "policy" not in {warning["code"] for warning in lifted["warnings"]}
    assert lifted["memory_per_gpu_gb"] == told["memory_per_gpu_gb"]


def test_evaluate_json_is_one_document_with_null_for_what_was_not_computed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "evaluate", *BOTH, "--memory-only", "--json", "--set", "mbs=1")
    document = json.loads(out)
    assert code in (0, 3)
    assert document["tokens_per_s_per_gpu"] is None
    assert document["memory_per_gpu_gb"] > 0
    assert document["source"] == "memory_only"


def test_axes_marks_an_axis_that_the_cluster_file_turns_off_as_pinned_to_the_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "axes", *BOTH, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["gbs"]["values"] == [128]
    assert document["ep"]["values"] == [1, 2, 4, 8]
    code, out, _ = run(capsys, "axes", *BOTH, "--json", "--pin", "tp=2")
    assert json.loads(out)["tp"]["values"] == [2]


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom primus_mcp.cli.main import main\ntry:\n    main(['--help'])\nfinally:\n"
        "    print(sorted({'pydantic', 'yaml', 'numpy', 'vl_convert', 'rich', 'mcp', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("[]"), done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--measured-tokens-per-s", "160000"], "would be 5,000"),
        (["--measured-tokens-per-s", "1e300"], "--measured-tokens-per-s"),
        (["--gbs", "0"], "--gbs: '0' is not between 1 and"),
        (["--gbs", "-1"], "--gbs: '-1' is not between 1 and"),
        (["--pin", "tp=8", "--pin", "tp=4"], "given twice"),
        (["--pin", "tp=" + "9" * 5000], "tp"),
        (["--pin", "tp=" + "[" * 5000], "tp"),
        (["--budget", "max_rounds=" + "[" * 5000], "max_rounds"),
        (["--budget", "max_rounds"], "max_rounds=4"),
        (["--agent-only"], "no trials"),
        (["--out-dir", ""], "--out-dir"),
        (["--out-dir", "~no-such-user/x"], "--out-dir"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    stage = [] if "--agent-only" in words else ["--seed-only"]
    code, out, err = run(capsys, "tune", *BOTH, *stage, "--out-dir", "run", *words)
    assert code == 2
    assert [line.startswith("error:") for line in err.splitlines()].count(True) == 1 and named in err.splitlines()[-1]
    assert out == "" and not list(tmp_path.iterdir())


def test_a_seed_budget_of_zero_says_that_the_stage_is_off_and_names_no_cluster_as_the_remedy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = run(capsys, "tune", *BOTH, "--seed-only", "--seed-budget", "0", "--out-dir", str(tmp_path / "run"))
    assert code == 3
    assert "seed_budget is 0: that stage is off" in err
    assert "0 tried" in out and "cluster" not in out


def test_an_out_dir_starts_at_home_where_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    run(capsys, "tune", *BOTH, "--dry-run", "--seed-only", "--seed-budget", "1", "--out-dir=~/run")
    assert (tmp_path / "run" / "summary.json").is_file()


def test_an_out_dir_whose_name_is_too_long_is_refused_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "tune", *BOTH, "--seed-only", "--out-dir", str(tmp_path / ("x" * 300)))
    assert code == 2
    assert "internal" not in err and err.splitlines()[-1].startswith("error: cannot create")
