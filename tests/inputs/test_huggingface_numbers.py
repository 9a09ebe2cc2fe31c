"""What changes neither memory nor time and yet is the model: it is in every file that is written, or is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from workload_cases import reread

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.hf_workload import workload_from_hf
from primus_mcp.inputs.huggingface import read_hf_config
from primus_mcp.inputs.megatron_workload import export_megatron, workload_from_megatron

FOLDER = Path(__file__).parent / "hf"
FILES = sorted(FOLDER.glob("*.json"))
by_name = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def config(name: str, **changes: Any) -> dict[str, Any]:
    return {**json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")), **changes}


def numbers(name: str, **changes: Any) -> dict[str, Any]:
    return dict(read_hf_config(config(name, **changes), name, "config.json").numbers)


def left(name: str, **changes: Any) -> str:
    found = read_hf_config(config(name, **changes), name, "config.json").findings
    return " ".join(finding.text for finding in found if finding.code == "not-carried")


YARN = {
    "rope_type": "yarn",
    "rotary_scaling_factor": 40.0,
    "original_max_position_embeddings": 4096,
}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("qwen3_30B_A3B", {"rotary_base": 1_000_000, "norm_epsilon": 1e-6, "init_method_std": 0.02, "moe_router_pre_softmax": False}),
        ("llama3.1_8B", {"rotary_base": 500_000, "norm_epsilon": 1e-5, "use_rope_scaling": True, "rope_scaling_factor": 8.0}),
        ("nemotron4_340b", {"rotary_base": 10_000, "norm_epsilon": 1e-5, "init_method_std": 0.0063, "rotary_percent": 0.5}),
        ("mixtral_8x7B_v0.1", {"rotary_base": 1_000_000, "moe_aux_loss_coeff": 0.00125, "moe_router_load_balancing_type": "aux_loss"}),
        (
            "deepseek_v2",
            {
                **YARN,
                "mscale": 0.707,
                "mscale_all_dim": 0.707,
                "moe_router_score_function": "softmax",
                "moe_router_pre_softmax": True,
                "moe_router_topk_scaling_factor": 16.0,
                "moe_router_load_balancing_type": "seq_aux_loss",
            },
        ),
        (
            "deepseek_v3",
            {
                **YARN,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "moe_router_score_function": "sigmoid",
                "moe_router_topk_scaling_factor": 2.5,
            },
        ),
    ],
)
def test_numbers_of_a_config_are_the_trainers_arguments(name: str, wanted: dict[str, Any]) -> None:
    assert wanted.items() <= numbers(name).items()


def test_latent_attention_without_yarn_says_so_and_is_not_fused() -> None:
    built = workload_from_hf(config("deepseek_v3", rope_scaling=None))
    assert (built.arguments["rope_type"], built.arguments["apply_rope_fusion"], built.baseline.fused_rope) == ("rope", False, False)
    assert "rotary_scaling_factor" not in built.arguments


@by_name
def test_the_file_read_again_has_the_same_numbers(path: Path, tmp_path: Path) -> None:
    built, wanted = workload_from_hf(path), read_hf_config(json.loads(path.read_text(encoding="utf-8")), path.stem, path.name).numbers
    assert {"rotary_base", "norm_epsilon", "init_method_std"} <= set(wanted)
    assert wanted.items() <= built.arguments.items()
    read = reread(tmp_path, built)
    assert {key: read.arguments.get(key) for key in wanted} == wanted
    assert not [finding for finding in read.findings if finding.code == "unknown-override"]


@by_name
def test_megatrons_argument_list_read_again_has_the_same_numbers(path: Path) -> None:
    built, wanted = workload_from_hf(path), read_hf_config(json.loads(path.read_text(encoding="utf-8")), path.stem, path.name).numbers
    try:
        words = export_megatron(built.arguments, built.architecture, built.baseline).words
    except UnsupportedFeatureError as error:
        pytest.skip(str(error))
    again = workload_from_megatron(" ".join(words)).arguments
    assert {key: value for key, value in wanted.items() if again.get(key, False) != value} == {}
    assert f"--rotary-base {wanted['rotary_base']}" in words


def test_what_the_file_leaves_out_is_the_classs_own_number() -> None:
    short = {key: value for key, value in config("llama3.1_8B").items() if key not in ("rope_theta", "rms_norm_eps", "rope_scaling")}
    found = read_hf_config(short, "llama", "config.json")
    assert (found.numbers["rotary_base"], found.numbers["norm_epsilon"]) == (10_000, 1e-6)
    assert "use_rope_scaling" not in found.numbers
    assert any(finding.code == "hf-default" and "rope_theta 10000" in finding.text for finding in found.findings)


def test_the_newer_key_of_the_rotary_embedding_is_read_too() -> None:
    newer = {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    short = {key: value for key, value in config("llama3.1_8B").items() if key not in ("rope_theta", "rope_scaling")}
    found = read_hf_config({**short, "rope_parameters": newer}, "llama", "config.json").numbers
    assert (found["rotary_base"], found["rope_scaling_factor"]) == (500_000, 32.0)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [
        ("llama3.1_8B", {"rope_scaling": {**LLAMA3, "low_freq_factor": 2.0}}, "rope_scaling.low_freq_factor 2.0 (the trainer has 1)"),
        ("llama3.1_8B", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling 'yarn'"),
        ("llama3.1_8B", {"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "rope_scaling 'dynamic'"),
        ("llama3.1_8B", {"rope_theta": 10000.5}, "rope_theta 10000.5 (Megatron-LM takes whole numbers)"),
        ("llama3.1_8B", {"attention_bias": True}, "attention_bias: the bias of the output projection"),
        ("llama3.1_8B", {"embedding_multiplier": 12.0}, "embedding_multiplier 12.0"),
        ("deepseek_v3", {"norm_topk_prob": False}, "norm_topk_prob False"),
        ("deepseek_v3", {"scoring_func": "sqrtsoftplus"}, "scoring_func 'sqrtsoftplus'"),
        ("gpt_oss_20B", {}, "rope_scaling 'yarn'"),
        ("gemma3_1b", {}, "rope_local_base_freq 10000"),
        ("gemma2_9b", {}, "final_logit_softcapping 30.0"),
    ],
)
def test_what_the_trainer_has_no_argument_for_is_named(name: str, changes: dict[str, Any], named: str) -> None:
    assert named in left(name, **changes)


@pytest.mark.parametrize("name", ["llama3.1_8B", "qwen3_30B_A3B", "qwen2.5_7B", "deepseek_v3", "mixtral_8x22B_v0.1"])
def test_nothing_is_named_where_everything_has_an_argument(name: str) -> None:
    assert left(name) == ""


def test_weights_that_are_not_divided_by_their_sum_are_softmax_before_the_choice() -> None:
    assert numbers("qwen3_30B_A3B", norm_topk_prob=False)["moe_router_pre_softmax"] is True
    assert numbers("mixtral_8x7B_v0.1")["moe_router_pre_softmax"] is False


def test_a_window_that_qwen_does_not_use_is_none() -> None:
    built = workload_from_hf(config("qwen2.5_7B", use_sliding_window=False, sliding_window=4096))
    assert built.architecture.sliding_window is None and not built.arguments.get("window_size")


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_theta": "1e6"},
        {"rope_theta": 0},
        {"rms_norm_eps": -1e-6},
        {"rope_scaling": 8},
        {"rope_scaling": {"factor": 8.0}},
        {"rope_scaling": {**LLAMA3, "factor": "8"}},
        {"initializer_range": True},
    ],
)
def test_a_number_that_is_none_is_refused_by_name(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(changes))):
        numbers("llama3.1_8B", **changes)


def test_a_balancing_weight_of_transformers_is_written_by_layer_and_by_choice() -> None:
    """Mixtral: 0.02 x 2 experts a token / 32 layers; Qwen3 30B: 0.001 x 8 / 48. Even: k there, 1 here."""
    assert numbers("mixtral_8x7B_v0.1", router_aux_loss_coef=0.02)["moe_aux_loss_coeff"] == pytest.approx(0.02 * 2 / 32)
    assert numbers("qwen3_30B_A3B", router_aux_loss_coef=0.001)["moe_aux_loss_coeff"] == pytest.approx(0.001 * 8 / 48, rel=1e-5)


def test_a_balancing_weight_of_deepseek_is_taken_over_as_it_is() -> None:
    found = numbers("deepseek_v2", aux_loss_alpha=0.003, seq_aux=True)
    assert (found["moe_aux_loss_coeff"], found["moe_router_load_balancing_type"]) == (0.003, "seq_aux_loss")


def test_a_rescaled_balancing_weight_is_said_with_its_numbers() -> None:
    model = read_hf_config(config("mixtral_8x7B_v0.1", router_aux_loss_coef=0.02), "m", "config.json")
    said = [finding.text for finding in model.findings if finding.code == "hf-rescaled"]
    assert len(said) == 1
    assert "0.00125, x 2 / 32" in said[0]
