"""Supervised fine-tuning and LoRA: which trainer, which adapters, which files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.workload import Workload, read_workload

EXAMPLES = Path("primus/examples/megatron/configs/MI355X")


def resolve(tmp_path: Path, module: str = "post_trainer", config: str = "sft_trainer.yaml", **overrides: Any) -> Workload:
    content = {"framework": "megatron", "config": config, "model": "llama3_8B.yaml", "overrides": {"mock_data": True, **overrides}}
    path = tmp_path / "w.yaml"
    path.write_text(yaml.safe_dump({"modules": {module: content}}), encoding="utf-8")
    return read_workload(path, environment={})


@pytest.mark.parametrize("module", ["pre_trainer", "post_trainer"])
def test_the_sft_trainer_is_found_under_either_module_and_trains_every_weight(tmp_path: Path, module: str) -> None:
    workload = resolve(tmp_path, module)
    assert (workload.module, workload.baseline.finetune, workload.baseline.lora_rank) == (module, "full", 0)
    assert (workload.architecture.seq_length, workload.baseline.gbs) == (2048, 128)
    assert "sft-padding" in {finding.code for finding in workload.findings}
    packed = resolve(tmp_path, module, enable_packed_sequences=True, use_packed_attention=True)
    assert "packed-attention" in {finding.code for finding in packed.findings}


def test_lora_reads_rank_and_targets_and_has_primus_defaults(tmp_path: Path) -> None:
    plain = resolve(tmp_path, lora={"enabled": True}).baseline
    assert (plain.finetune, plain.lora_rank) == ("lora", 32)
    assert plain.lora_targets == ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
    own = resolve(tmp_path, lora={"enabled": True, "dim": 16, "target_modules": ["linear_qkv", "linear_proj"]}).baseline
    assert (own.lora_rank, own.lora_targets) == (16, ("linear_qkv", "linear_proj"))
    assert resolve(tmp_path, lora={"enabled": False, "dim": 16}).baseline.finetune == "full"


@pytest.mark.parametrize(
    "lora", [True, {"enabled": "yes"}, {"enabled": True, "dim": 0}, {"enabled": True, "target_modules": []}, {"enabled": True, "dim": "x"}]
)
def test_a_broken_lora_block_is_named(tmp_path: Path, lora: object) -> None:
    with pytest.raises(InputError, match="lora"):
        resolve(tmp_path, lora=lora)


def test_lora_without_the_sft_trainer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"lora\.enabled.*sft_trainer"):
        resolve(tmp_path, "pre_trainer", "pre_trainer.yaml", lora={"enabled": True})


def test_a_file_that_extends_another_is_read_over_it_and_stray_keys_are_told(tmp_path: Path) -> None:
    resolve(tmp_path, lora={"enabled": False})
    over = tmp_path / "over.yaml"
    over.write_text(
        "extends: [w.yaml]\nlora: {enabled: true}\nmodules: {post_trainer: {overrides: {micro_batch_size: 4}}}\n", encoding="utf-8"
    )
    workload = read_workload(over, environment={})
    assert (workload.baseline.mbs, workload.baseline.finetune) == (4, "full")
    assert [Path(file.path).name for file in workload.files[:2]] == ["over.yaml", "w.yaml"]
    assert "misplaced-keys" in {finding.code for finding in workload.findings}
    assert "extends" not in workload.document


@pytest.mark.parametrize("base", ["over.yaml", "gone.yaml", 3, [None], "a\0b", "../w.yaml", "/etc/hostname", "a/../../w.yaml", "C:/w.yaml"])
def test_a_workload_that_extends_nothing_readable_is_refused(tmp_path: Path, base: object) -> None:
    over = tmp_path / "over.yaml"
    over.write_text(yaml.safe_dump({"extends": base, "modules": {}}), encoding="utf-8")
    with pytest.raises(InputError, match=r"over\.yaml|gone\.yaml"):
        read_workload(over, environment={})


def test_primus_own_lora_examples_resolve(shared: Path) -> None:
    mlperf = read_workload(shared / EXAMPLES / "llama2_70B-BF16-sft-packed-mlperf_aligned.yaml", environment={}).baseline
    assert (mlperf.finetune, mlperf.lora_rank, mlperf.lora_targets) == ("lora", 16, ("linear_qkv", "linear_proj"))
    stray = read_workload(shared / EXAMPLES / "llama3_8B-BF16-lora-sft.yaml", environment={})
    assert "misplaced-keys" in {finding.code for finding in stray.findings}


@pytest.mark.parametrize("tokenizer", ["NousResearch/Meta-Llama-3-8B", "/data/models/meta-llama-3-8b/"])
def test_a_copy_of_a_known_tokenizer_is_found_by_its_name(tmp_path: Path, tokenizer: str) -> None:
    workload = resolve(tmp_path, mock_data=False, tokenizer_model=tokenizer)
    assert workload.architecture.vocab_size == 128_256
    assert "vocabulary-by-name" in {finding.code for finding in workload.findings}
    with pytest.raises(InputError, match="vocab_size"):
        resolve(tmp_path, mock_data=False, tokenizer_model="/data/models/mine")


def test_dropout_of_adapters_is_read_and_what_is_not_priced_is_refused(tmp_path: Path) -> None:
    assert resolve(tmp_path, lora={"enabled": True}).baseline.lora_dropout == 0.0
    assert resolve(tmp_path, lora={"enabled": True, "dropout": 0.05, "alpha": 64}).baseline.lora_dropout == 0.05
    assert resolve(tmp_path, lora={"enabled": True, "dropout": 0.0, "dropout_position": "post"}).baseline.lora_dropout == 0.0
    unpriced: list[dict[str, object]] = [
        {"dropout": 0.1, "dropout_position": "post"},
        {"target_modules": ["*.layers.0.*.linear_qkv"]},
        {"target_modules": ["linear_qkv", "router"]},
        {"a2a_experimental": True},
    ]
    for block in unpriced:
        with pytest.raises(UnsupportedFeatureError, match="lora"):
            resolve(tmp_path, lora={"enabled": True, **block})
    broken: list[dict[str, object]] = [{"dropout": 2}, {"dropout_position": "in"}]
    for block in broken:
        with pytest.raises(InputError, match=r"lora\.dropout"):
            resolve(tmp_path, lora={"enabled": True, **block})


@pytest.mark.parametrize(
    ("kernel", "told"),
    [({"moe_use_legacy_grouped_gemm": True}, "none has an adapter"), ({"moe_use_legacy_grouped_gemm": False}, "all experts of a rank")],
)
def test_which_adapters_the_experts_have_is_told(tmp_path: Path, kernel: dict[str, bool], told: str) -> None:
    content = {"framework": "megatron", "config": "sft_trainer.yaml", "model": "mixtral_8x7B_v0.1.yaml"}
    overrides = {"mock_data": True, "lora": {"enabled": True}, **kernel}
    path = tmp_path / "w.yaml"
    path.write_text(yaml.safe_dump({"modules": {"post_trainer": {**content, "overrides": overrides}}}), encoding="utf-8")
    found = {finding.code: finding.text for finding in read_workload(path, environment={}).findings}
    assert told in found["lora-experts"]
