"""A Hugging Face config.json is the catalogue's architecture, and no key of it disappears."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hostile import mutated, mutations
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_cases import reread

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hf_workload import workload_from_hf
from primus_mcp.inputs.huggingface import HfModel, read_hf_config
from primus_mcp.inputs.huggingface_config import model_classes
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.inputs.published import published_models
from primus_mcp.projection.parameters import total_parameters

FOLDER = Path(__file__).parent / "hf"
FILES = sorted(FOLDER.glob("*.json"))
LLAMA = json.loads((FOLDER / "llama3.1_8B.json").read_text(encoding="utf-8"))
MIXTRAL = json.loads((FOLDER / "mixtral_8x7B_v0.1.json").read_text(encoding="utf-8"))
by_name = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def read_hf_model(source: Path | dict[str, Any]) -> HfModel:
    if isinstance(source, Path):
        return read_hf_config(json.loads(source.read_text(encoding="utf-8")), source.stem, source.name)
    return read_hf_config(source, "model", "config.json")


def architecture(**changes: Any) -> Architecture:
    return read_hf_model({**LLAMA, **changes}).architecture


def codes(document: dict[str, Any]) -> dict[str, str]:
    return {finding.code: finding.text for finding in read_hf_model(document).findings}


@by_name
def test_the_architecture_is_the_catalogues(path: Path) -> None:
    found, model = read_hf_model(path).architecture, published_models()[path.stem]
    if model.architecture.latent_attention:
        found = replace(found, head_dim=model.architecture.head_dim)
    assert found == model.architecture
    assert total_parameters(found, include_mtp=model.published_includes_mtp) - model.published_parameters == model.count_difference


def test_more_than_ten_models_of_more_than_eight_classes_make_the_round_trip() -> None:
    classes = {read_hf_model(path).model_type for path in FILES}
    assert len(FILES) >= 20 and len(classes) >= 10


@by_name
def test_every_key_is_read_or_named(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    told = " ".join(finding.text for finding in read_hf_model(path).findings)
    changed = {"zz_of_nobody": 3, **document}
    assert "zz_of_nobody" in " ".join(finding.text for finding in read_hf_model(changed).findings)
    for key in document:
        if key not in told and key not in ("model_type", "text_config"):
            wrong = {**document, key: {"not": "a value"}}
            with pytest.raises(InputError, match=key):
                read_hf_model(wrong)


@by_name
def test_the_workload_written_out_is_the_workload(path: Path, tmp_path: Path) -> None:
    built = workload_from_hf(path)
    read = reread(tmp_path, built)
    assert replace(read.architecture, name=built.architecture.name) == built.architecture
    assert (read.baseline, read.digest) == (built.baseline, built.digest)


@by_name
def test_what_would_run_is_the_config_but_for_what_megatron_cannot_build(path: Path) -> None:
    built, wanted = workload_from_hf(path), read_hf_model(path).architecture
    told = {finding.text.split(":")[0] for finding in built.findings if finding.code == "differs-from-config"}
    unwindowed = {"sliding_window", "windowed_layers"} if wanted.attention_sinks else set()
    assert told <= {"norms_per_layer", "qk_norm_scope", "activation", "scaled_rope"} | unwindowed
    assert built.architecture.vocab_size == wanted.vocab_size
    if not told:
        assert total_parameters(built.architecture) == total_parameters(wanted)


@pytest.mark.parametrize("name", ["llama3.1_8B", "mixtral_8x22B_v0.1"])
def test_with_the_catalogues_run_it_is_the_workload_of_the_catalogues_model(name: str) -> None:
    ours = workload_from_model(name)
    arch, base = ours.architecture, ours.baseline
    hf = workload_from_hf(FOLDER / f"{name}.json", name=name, seq_length=arch.seq_length, gbs=base.gbs, mbs=base.mbs)
    assert (hf.architecture, hf.baseline) == (arch, base)
    assert any(finding.code == "hf-catalogue-twin" and name in finding.text for finding in hf.findings)


def test_sizes_that_are_not_given_are_the_trainers_defaults_and_the_answer_says_so() -> None:
    built = workload_from_hf(LLAMA)
    assert (built.architecture.seq_length, built.baseline.gbs, built.baseline.mbs) == (4096, 128, 2)
    assert any(finding.code == "model-defaults" and "4,096" in finding.text for finding in built.findings)
    short = workload_from_hf({**LLAMA, "max_position_embeddings": 2048})
    assert short.architecture.seq_length == 2048
    own = workload_from_hf(LLAMA, seq_length=16384, gbs=64, mbs=1)
    assert (own.architecture.seq_length, own.baseline.gbs, own.baseline.mbs) == (16384, 64, 1)
    assert not [finding for finding in own.findings if finding.code == "model-defaults"]


def test_absent_keys_are_the_classes_defaults_and_the_answer_says_which() -> None:
    bare = {key: value for key, value in LLAMA.items() if key not in ("num_key_value_heads", "hidden_act", "tie_word_embeddings")}
    found = read_hf_model(bare)
    assert (found.architecture.num_query_groups, found.architecture.tied_embeddings) == (32, False)
    assert "hidden_act silu" in codes(bare)["hf-default"]


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"])
def test_a_size_is_never_guessed(key: str) -> None:
    with pytest.raises(InputError, match=key):
        read_hf_model({name: value for name, value in LLAMA.items() if name != key})


def test_windows_follow_the_class() -> None:
    small: dict[str, Any] = {**LLAMA, "num_hidden_layers": 4, "sliding_window": 1024}
    mistral = read_hf_model({**small, "model_type": "mistral"}).architecture
    assert (mistral.sliding_window, mistral.windowed_layers) == (1024, (True,) * 4)
    qwen = {**small, "model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 3}
    assert read_hf_model(qwen).architecture.windowed_layers == (False, False, False, True)
    assert read_hf_model({**qwen, "use_sliding_window": False}).architecture.sliding_window is None
    gemma = read_hf_model({**small, "model_type": "gemma3_text", "sliding_window_pattern": 2}).architecture
    assert gemma.windowed_layers == (True, False, True, False)
    assert read_hf_model({**small, "model_type": "mistral", "sliding_window": 131072}).architecture.sliding_window is None
    with pytest.raises(UnsupportedFeatureError, match="sliding_window"):
        read_hf_model(small)


def test_dense_layers_of_a_mixture_follow_the_class() -> None:
    qwen = {**MIXTRAL, "model_type": "qwen3_moe", "num_hidden_layers": 6, "num_experts": 8, "moe_intermediate_size": 64}
    found = read_hf_model({**qwen, "decoder_sparse_step": 2, "mlp_only_layers": [3]}).architecture
    assert found.moe_layers == (False, True, False, False, False, True)
    deepseek = json.loads((FOLDER / "deepseek_v2_lite.json").read_text(encoding="utf-8"))
    assert read_hf_model({**deepseek, "moe_layer_freq": 2}).architecture.moe_layers[:6] == (False, False, True, False, True, False)


def test_biases_are_counted_or_named() -> None:
    both = architecture(attention_bias=True, mlp_bias=True)
    assert (both.qkv_bias, both.linear_bias) == (True, True)
    alone = {**LLAMA, "attention_bias": True}
    assert (read_hf_model(alone).architecture.qkv_bias, read_hf_model(alone).architecture.linear_bias) == (True, False)
    assert "output projection" in codes(alone)["hf-left-out"]
    assert "biases of the MLP are not counted" in codes({**LLAMA, "mlp_bias": True})["hf-left-out"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "bert"}, "bert"),
        ({"model_type": None}, "model_type"),
        ({"model_type": "lama"}, "did you mean llama"),
        ({"hidden_size": "4096"}, "hidden_size"),
        ({"hidden_size": 4096.0}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"num_attention_heads": 33, "num_key_value_heads": 33}, "head_dim"),
        ({"hidden_act": "mish"}, "mish"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ({"attention_dropout": 3}, "attention_dropout"),
        ({"add_cross_attention": True}, "cross-attention"),
        ({"vocab_size": 1}, "vocab_size"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["linear_attention"] * 32, "model_type": "qwen3"}, "linear_attention"),
        ({"text_config": [1]}, "text_config"),
    ],
)
def test_what_cannot_be_priced_is_one_line_that_names_it(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named) as caught:
        read_hf_model({**LLAMA, **changes})
    assert "\n" not in str(caught.value)


def test_experts_that_cannot_be_are_named_and_none_are_a_dense_model() -> None:
    with pytest.raises(InputError, match="num_experts_per_tok is 9, more than 8 experts"):
        read_hf_model({**MIXTRAL, "num_experts_per_tok": 9})
    assert read_hf_model({**MIXTRAL, "num_local_experts": 0}).architecture.experts is None
    latent = json.loads((FOLDER / "deepseek_v2_lite.json").read_text(encoding="utf-8"))
    with pytest.raises(UnsupportedFeatureError, match="attention_bias true"):
        read_hf_model({**latent, "attention_bias": True})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "JSON"),
        ("[1]", "list"),
        ("{", "JSON"),
        ('{"model_type": NaN, "a": 1}', "model_type is nan"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": ' + "[" * 100_000, "JSON"),
        ('{"a": ' + "9" * 5000 + "}", "JSON"),
        ('{"a": 1e999}', "inf"),
        ("\udcff", "UTF-8"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("utf-8", errors="surrogateescape"))
    with pytest.raises(InputError, match=named) as caught:
        workload_from_hf(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 2000


def test_a_folder_is_its_config_and_gives_the_name(tmp_path: Path) -> None:
    folder = tmp_path / "My model; rm -rf"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert workload_from_hf(folder).name == "My_model_rm_-rf"


def test_every_key_that_costs_nothing_has_a_reason() -> None:
    table = model_classes()
    assert all(len(reason) > 3 for reason in (*table.no_cost.values(), *table.left_out.values()))
    assert not set(table.no_cost) & (set(table.left_out) | set(table.refused))


@settings(deadline=None, max_examples=150)
@given(path=st.sampled_from(FILES), steps=mutations())
def test_a_mutated_config_is_read_or_refused_in_one_line(path: Path, steps: list[tuple[int, str, Any]]) -> None:
    document = mutated(json.loads(path.read_text(encoding="utf-8")), steps)
    try:
        workload_from_hf(document)
    except InputError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("document", "parameters"),
    [
        (
            {
                "model_type": "mistral",
                "hidden_size": 4096,
                "intermediate_size": 14336,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "vocab_size": 32000,
                "max_position_embeddings": 32768,
                "sliding_window": 4096,
            },
            7_241_732_096,  # safetensors.total of mistralai/Mistral-7B-v0.1
        ),
        (
            {
                "model_type": "phi3",
                "hidden_size": 3072,
                "intermediate_size": 8192,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 32,
                "vocab_size": 32064,
                "max_position_embeddings": 4096,
                "sliding_window": 2047,
            },
            3_821_079_552,  # safetensors.total of microsoft/Phi-3-mini-4k-instruct
        ),
        (
            {
                "model_type": "gemma",
                "hidden_size": 3072,
                "intermediate_size": 24576,
                "num_hidden_layers": 28,
                "num_attention_heads": 16,
                "num_key_value_heads": 16,
                "vocab_size": 256000,
                "max_position_embeddings": 8192,
            },
            8_537_680_896,  # safetensors.total of google/gemma-7b
        ),
        (
            {
                "model_type": "qwen2_moe",
                "hidden_size": 2048,
                "intermediate_size": 5632,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
                "num_key_value_heads": 16,
                "vocab_size": 151936,
                "max_position_embeddings": 8192,
                "num_experts": 60,
                "num_experts_per_tok": 4,
                "moe_intermediate_size": 1408,
                "shared_expert_intermediate_size": 5632,
            },
            14_315_784_192,  # safetensors.total of Qwen/Qwen1.5-MoE-A2.7B
        ),
    ],
    ids=["mistral", "phi3", "gemma", "qwen2_moe"],
)
def test_classes_without_a_model_in_the_catalogue_count_what_was_published(document: dict[str, Any], parameters: int) -> None:
    assert total_parameters(read_hf_model(document).architecture) == parameters
