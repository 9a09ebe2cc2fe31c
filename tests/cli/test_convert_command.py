"""`primus-mcp convert`: Megatron-LM arguments to a Primus workload file, and back."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml
from cli_cases import run

ROOT = Path(__file__).parent.parent.parent
HF = ROOT / "tests" / "inputs" / "hf"
WORKLOAD = ROOT / "examples" / "workloads" / "mixtral_8x22B_v0.1-BF16-pretrain.yaml"
SCRIPT = """#!/bin/bash
ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32   # Llama 3.1 8B
    --group-query-attention --num-query-groups 8 --swiglu --disable-bias-linear --normalization RMSNorm
    --position-embedding-type rope --untie-embeddings-and-output-weights --max-position-embeddings 131072
    --seq-length $SEQ_LENGTH --micro-batch-size 1 --global-batch-size=128 --bf16 --mock-data
    --tokenizer-type NullTokenizer --vocab-size 128255 --use-distributed-optimizer --lr 3.0e-4
)
torchrun --nproc_per_node 8 pretrain_gpt.py ${ARGS[@]}
"""


def arguments_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_a_launch_script_becomes_a_workload_file_that_tune_takes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script, workload = tmp_path / "train.sh", tmp_path / "workload.yaml"
    script.write_text(SCRIPT, encoding="utf-8")
    code, out, err = run(capsys, "convert", "--megatron", str(script), "--define", "SEQ_LENGTH=8192", "--out", str(workload))
    assert (code, out) == (0, "") and "--lr" in err
    code, out, _ = run(capsys, "check", str(workload), "--json")
    read = json.loads(out)
    assert code == 0
    assert (read["parameters"], read["architecture"]["seq_length"], read["baseline"]["gbs"]) == (8_030_261_248, 8192, 128)
    words = ("--seed-only", "--seed-budget", "2", "--gemm-backend", "roofline", "--out-dir", str(tmp_path / "run"))
    code, out, err = run(capsys, "tune", "--workload", str(workload), "--gpu", "mi300x", *words)
    assert code == 0 and "BEST CONFIGURATION" in out, err
    trial = next((tmp_path / "run" / "trials").glob("*.yaml"))
    code, out, err = run(capsys, "convert", "--workload", str(trial))
    assert code == 0 and "--num-layers 32" in out and "--global-batch-size 128" in out, err


def test_out_in_out_is_the_same_text(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, first, _ = run(capsys, "convert", "--model", "llama3.1_70B", "--set", "tp=8", "--set", "pp=2")
    monkeypatch.setattr("sys.stdin", io.StringIO(first))
    code, second, _ = run(capsys, "convert", "--megatron", "-", "--to", "megatron")
    assert code == 0
    assert arguments_of(first) == arguments_of(second)
    assert "--tensor-model-parallel-size 8 \\" in first


def test_what_megatron_has_no_argument_for_is_said_and_what_would_run_instead(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "convert", "--workload", str(WORKLOAD), "--set", "sync_free_stage=1")
    assert code == 0
    assert "# no argument of Megatron-LM, left out: turbo_sync_free_moe_stage = 1" in out
    assert "turbo_sync_free_moe_stage" in err and "would run sync_free_stage 0 instead of 1" in err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("convert", "--megatron", "missing.sh"), "missing.sh"),
        (("convert", "--megatron", str(ROOT)), "directory"),
        (("convert", "--megatron", str(WORKLOAD)), WORKLOAD.name),
        (("convert", "--model", "llama2_7B", "--define", "A=1"), "--define"),
        (("convert", "--model", "llama2_7B", "--set", "tpp=1"), "tp"),
        (("convert", "--model", "lfm2_8B_A1B"), "lfm_layer_types"),
        (("convert",), "required"),
    ],
)
def test_bad_input_is_one_line_with_exit_code_2(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], named: str) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert [line.startswith("error:") for line in err.splitlines()].count(True) == 1 and named in err.splitlines()[-1]


def test_a_variable_without_a_value_is_named_with_the_flag_that_gives_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(SCRIPT, encoding="utf-8")
    code, _, err = run(capsys, "convert", "--megatron", str(script))
    assert code == 2 and "--define SEQ_LENGTH=VALUE" in err
    assert run(capsys, "convert", "--megatron", str(script), "--define", "SEQ_LENGTH")[0] == 2


@pytest.mark.parametrize(
    ("ending", "words", "first", "said"),
    [
        ("yaml", (), "work_group:", "a Primus workload file"),
        ("sh", (), "--", "Megatron-LM's arguments"),
        ("txt", (), "--", "Megatron-LM's arguments"),
        ("txt", ("--to", "primus"), "work_group:", "a Primus workload file"),
    ],
)
def test_the_files_ending_decides_what_is_written_and_the_answer_says_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, ending: str, words: tuple[str, ...], first: str, said: str
) -> None:
    file = tmp_path / f"hf.{ending}"
    code, _, err = run(capsys, "convert", "--hf", str(HF / "qwen3_30B_A3B.json"), "--out", str(file), *words)
    assert code == 0 and f"holds {said}" in err
    assert arguments_of(file.read_text(encoding="utf-8"))[0].startswith(first)


def test_arguments_are_not_written_into_a_file_that_promises_a_workload(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for ending, form in (("yaml", "megatron"), ("sh", "primus")):
        file = tmp_path / f"hf.{ending}"
        code, _, err = run(capsys, "convert", "--hf", str(HF / "llama3.1_8B.json"), "--to", form, "--out", str(file))
        assert code == 2 and "--out" in err and not file.exists()


def test_a_config_keeps_its_numbers_through_a_workload_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "hf.yaml"
    assert run(capsys, "convert", "--hf", str(HF / "qwen3_30B_A3B.json"), "--out", str(file))[0] == 0
    overrides = yaml.safe_load(file.read_text(encoding="utf-8"))["modules"]["pre_trainer"]["overrides"]
    assert (overrides["rotary_base"], overrides["norm_epsilon"]) == (1_000_000, 1e-6)
    _, direct, _ = run(capsys, "convert", "--hf", str(HF / "qwen3_30B_A3B.json"))
    _, through, _ = run(capsys, "convert", "--workload", str(file))
    assert "--rotary-base 1000000 \\" in direct and "--norm-epsilon 1e-06 \\" in direct
    numbers = [line for line in arguments_of(direct) if line.startswith(("--rotary", "--norm-eps", "--init", "--moe-router", "--moe-aux"))]
    assert len(numbers) >= 5 and set(numbers) <= set(arguments_of(through))


def test_what_is_not_carried_over_stands_in_the_file_and_on_the_screen(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for ending in ("yaml", "sh"):
        file = tmp_path / f"hf.{ending}"
        code, _, err = run(capsys, "convert", "--hf", str(HF / "gpt_oss_20B.json"), "--out", str(file))
        text = file.read_text(encoding="utf-8") if code == 0 else ""
        assert (code, "set it yourself: rope_scaling" in err) == (0, True), err
        assert any(line.startswith("# not carried over") and "rope_scaling 'yarn'" in line for line in text.splitlines())


def test_the_numbers_of_a_catalogue_model_are_primus_own_or_said_to_be_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "convert", "--model", "qwen3_30B_A3B")
    assert code == 0 and "--rotary-base 1000000 \\" in out and "Primus's model file qwen3_30B_A3B.yaml" in err
    assert any(line.startswith("# rotary_base 1000000") for line in out.splitlines())
    code, out, _ = run(capsys, "convert", "--model", "qwen3_30B_A3B", "--to", "primus")
    assert code == 0 and yaml.safe_load(out)["modules"]["pre_trainer"]["model"] == "qwen3_30B_A3B.yaml"
    for form in ("primus", "megatron"):
        code, out, err = run(capsys, "convert", "--model", "megatron_175b", "--to", form)
        assert code == 0 and "not in the catalogue" in err
        assert any(line.startswith("# ") and "norm_epsilon" in line for line in out.splitlines())
