"""An overlay is the user's file with the trial's keys: read again, it is exactly the trial."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from space_cases import make_workload, nodes

from primus_mcp.errors import PrimusMcpError
from primus_mcp.inputs.hf_workload import workload_from_hf
from primus_mcp.inputs.workload import Workload, read_workload
from primus_mcp.space.adapted import adapt_baseline
from primus_mcp.space.knobs import KNOBS, TrialConfig
from primus_mcp.space.legality import check_legality
from primus_mcp.space.overlay import TRAINER_FLAGS, exports, overlay_document, overlay_yaml

SIZES = {"tp": [1, 2, 4, 8], "pp": [1, 2, 3, 4, 8], "ep": [1, 2, 4, 8], "cp": [1, 2], "vpp": [1, 2, 4], "mbs": [1, 2, 4], "gbs": [512]}


def _trial(generator: random.Random) -> TrialConfig:
    chosen = {
        name: generator.choice(SIZES.get(name) or knob.choices or [1, 2])
        for name, knob in KNOBS.items()
        if generator.random() < 0.25 and name != "target_ep_size"
    }
    return TrialConfig.model_validate(chosen)


def _pretrain_workloads(shared: Path) -> list[Workload]:
    found = []
    for path in sorted((shared / "primus/examples/megatron/configs/MI355X").glob("*-pretrain.yaml"))[::6]:
        try:
            found.append(read_workload(path, environment={}))
        except PrimusMcpError:
            continue
    return found


def test_every_overlay_of_a_real_workload_re_resolves_to_its_trial(shared: Path, tmp_path: Path) -> None:
    generator, checked = random.Random(7), 0
    for workload in _pretrain_workloads(shared):
        adapted = adapt_baseline(workload, nodes(4)).workload
        for _ in range(40):
            trial = _trial(generator)
            verdict = check_legality(adapted, trial, nodes(4), allow_policy=True)
            if not verdict.legal:
                continue
            path = tmp_path / "overlay.yaml"
            path.write_text(overlay_yaml(adapted, trial), encoding="utf-8")
            again = read_workload(path, primus_root=shared / "primus", environment={})
            assert again.baseline == verdict.config, trial
            assert again.architecture == workload.architecture, trial
            checked += 1
    assert checked > 20


def test_an_overlay_ignores_environment_variables_of_the_degrees(shared: Path, tmp_path: Path) -> None:
    workload = read_workload(shared / "primus/examples/megatron/configs/MI355X/deepseek_v3-BF16-pretrain.yaml", environment={})
    path = tmp_path / "overlay.yaml"
    path.write_text(overlay_yaml(workload, TrialConfig(ep=16)), encoding="utf-8")
    again = read_workload(path, primus_root=shared / "primus", environment={"PRIMUS_TP": "4", "PRIMUS_PP": "2", "PRIMUS_SEQ_LENGTH": "128"})
    assert (again.baseline.tp, again.baseline.pp, again.baseline.ep) == (1, 16, 16)
    assert again.architecture.seq_length == workload.architecture.seq_length


def test_an_overlay_keeps_everything_else_as_written() -> None:
    workload = make_workload("dense")
    document = {
        "exp_name": "${PRIMUS_EXP_NAME:mine}",
        "modules": {"pre_trainer": {"model": "${PRIMUS_MODEL:m}.yaml", "overrides": {"train_data_path": "${DATA:null}", "lr": 1.0e-5}}},
    }
    workload = replace(workload, document=document, arguments={**workload.arguments, "train_data_path": "text"})
    changed = overlay_document(workload, TrialConfig(mbs=4))
    assert changed["exp_name"] == "${PRIMUS_EXP_NAME:mine}"
    overrides = changed["modules"]["pre_trainer"]["overrides"]
    assert overrides["train_data_path"] == "${DATA:null}"
    assert overrides["lr"] == 1.0e-5
    assert overrides["micro_batch_size"] == 4
    assert document["modules"]["pre_trainer"]["overrides"] == {"train_data_path": "${DATA:null}", "lr": 1.0e-5}  # type: ignore[index]


def test_the_overlay_text_is_yaml_that_names_its_trial() -> None:
    text = overlay_yaml(make_workload("dense"), TrialConfig(pp=4, fp8="hybrid"))
    assert text.startswith('# dense-test with {"pp":4,"fp8":"hybrid"}\n')
    assert yaml.safe_load(text)["modules"]["pre_trainer"]["overrides"]["fp8"] == "hybrid"


def test_exports_follow_the_guides_format() -> None:
    assert exports(make_workload("moe"), TrialConfig(pp=4)) == (
        "export PRIMUS_TP=1",
        "export PRIMUS_PP=4",
        "export PRIMUS_EP=8",
        "# then pass --micro-batch-size 2 --global-batch-size 256",
        f"{TRAINER_FLAGS}--micro_batch_size 2 --global_batch_size 256 --pipeline_model_parallel_size 4",
    )


@pytest.mark.parametrize(
    ("trial", "line"),
    [
        (TrialConfig(fp8="mxfp8"), "export NVTE_ROCM_ENABLE_MXFP8=1"),
        (TrialConfig(use_torch_fsdp2=True), "export CUDA_DEVICE_MAX_CONNECTIONS=8"),
    ],
)
def test_exports_carry_the_variables_without_which_the_trainer_stops(trial: TrialConfig, line: str) -> None:
    assert line in exports(make_workload("dense"), trial)
    assert line not in exports(make_workload("dense"), TrialConfig())


def test_every_flag_of_a_trial_is_passed() -> None:
    flags = exports(make_workload("dense"), TrialConfig(pp=5, mbs=1, recompute_granularity="full"))[-1]
    for text in ("--micro_batch_size 1", "--recompute_granularity full", "--pipeline_model_parallel_layout 'Et*"):
        assert text in flags


def test_what_the_file_does_not_say_of_the_model_is_a_comment_at_its_top() -> None:
    config = {
        "model_type": "gemma",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 512,
        "max_position_embeddings": 128,
        "strange\nkey: 1": 3,
    }
    workload = workload_from_hf(config)
    text = overlay_yaml(workload, TrialConfig())
    comments = [line for line in text.splitlines() if line.startswith("#")]
    for said in ("not carried over from config.json", "apply_layernorm_1p", "activation: silu would run", "strange"):
        assert any(said in line for line in comments), said
    assert set(yaml.safe_load(text)) == {"work_group", "user_name", "exp_name", "workspace", "modules"}
