"""A model's name is enough: the workload it becomes, and that its document says the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from workload_cases import reread

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.inputs.published import find_model, published_models
from primus_mcp.inputs.workload import Workload
from primus_mcp.projection.parameters import total_parameters

MODELS = sorted(published_models())
NOT_BUILT = {"norms_per_layer", "qk_norm_scope", "attention_chunk", "sparse_indexer", "scaled_rope", "experts.residual_ffn_hidden_size"}
"""What Megatron has no argument for; with it go the gelu of gated MLPs, chunked layers and the norm without weight."""
FOLLOWS = {"activation", "windowed_layers", "qk_norm"}


def workload(name: str) -> Workload:
    try:
        return workload_from_model(name)
    except UnsupportedFeatureError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", MODELS)
def test_the_document_read_from_a_file_is_the_same_workload(tmp_path: Path, name: str) -> None:
    built = workload(name)
    read = reread(tmp_path, built)
    assert replace(read.architecture, name=name) == built.architecture
    assert (read.baseline, read.digest) == (built.baseline, built.digest)


@pytest.mark.parametrize("name", MODELS)
def test_the_model_built_is_the_published_one_but_for_what_megatron_cannot_build(name: str) -> None:
    built = workload(name)
    told = {finding.text.split(":")[0] for finding in built.findings if finding.code == "differs-from-published"}
    model = published_models()[name]
    window_of_sinks = {"sliding_window"} if model.architecture.attention_sinks else set()
    assert told & {"sliding_window"} == window_of_sinks
    assert told <= NOT_BUILT | FOLLOWS | window_of_sinks
    assert bool(told & FOLLOWS) <= bool(told & NOT_BUILT)
    assert built.architecture.vocab_size == (model.tokenizer_length or model.vocab_size)
    if not told:
        whole = replace(built.architecture, vocab_size=model.vocab_size)
        assert total_parameters(whole) == total_parameters(model.architecture)


def test_attention_sinks_are_primus_turbos_as_in_its_own_examples() -> None:
    """examples/megatron/configs/MI355X/gpt_oss_20B-BF16-pretrain.yaml: Turbo's sinks, no window."""
    built = workload("gpt_oss_20B")
    assert {"use_turbo_attention", "use_sink_attention", "enable_primus_turbo"} <= {
        key for key, on in built.arguments.items() if on is True
    }
    assert built.architecture.attention_sinks and built.architecture.sliding_window is None
    assert built.baseline.turbo_attention and built.baseline.flash_attention


@pytest.mark.parametrize("name", MODELS)
def test_an_expert_bias_has_the_scores_that_the_trainer_asks_for(name: str) -> None:
    arguments = workload(name).arguments
    assert not arguments["moe_router_enable_expert_bias"] or arguments["moe_router_score_function"] == "sigmoid"


def test_a_model_without_a_file_of_primus_own_says_that_its_numbers_are_not_known() -> None:
    told = [finding.text for finding in workload_from_model("gemma2_9b").findings if finding.code == "not-carried"]
    assert len(told) == 1 and "rotary_base, norm_epsilon" in told[0]
    assert not [finding for finding in workload_from_model("llama3.1_8B").findings if finding.code == "not-carried"]
    assert workload_from_model("llama3.1_8B").arguments["rotary_base"] == 500_000


def shape(arch: Architecture) -> tuple[int, int, int]:
    return arch.num_layers, arch.hidden_size, arch.seq_length


def test_sequence_and_batch_are_the_catalogues_unless_given_and_the_answer_says_which() -> None:
    plain = workload_from_model("llama3.1_70B")
    assert (shape(plain.architecture), plain.baseline.gbs) == ((80, 8192, 8192), 128)
    assert [finding.code for finding in plain.findings if finding.code == "model-defaults"]
    own = workload_from_model("llama3.1_70B", seq_length=4096, gbs=512, mbs=2)
    assert (own.architecture.seq_length, own.baseline.gbs, own.baseline.mbs) == (4096, 512, 2)
    assert not [finding.code for finding in own.findings if finding.code == "model-defaults"]


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("llama3.1_70b", "llama3.1_70B"),
        ("LLAMA3.1-70B", "llama3.1_70B"),
        ("meta-llama/Llama-3.1-70B", "llama3.1_70B"),
        ("llama4_scout", "llama4_17B16E"),
        ("qwen3.5_35b_a3b", "qwen3_5_35B_A3B"),
        ("glm_4.7", "glm4_7"),
        ("Mixtral-8x7B", "mixtral_8x7B_v0.1"),
    ],
)
def test_a_model_is_found_by_any_spelling_of_its_name(spelling: str, name: str) -> None:
    assert find_model(spelling).name == name


def test_an_unknown_model_is_answered_with_the_nearest_names() -> None:
    with pytest.raises(InputError, match=r"did you mean .*llama3\.1_70B"):
        find_model("lama3.1_70b")
    with pytest.raises(InputError, match="primus-mcp models"):
        find_model("zzz")


def test_no_two_models_share_a_spelling() -> None:
    for model in published_models().values():
        assert all(find_model(name).name == model.name for name in (model.name, *model.aliases))


@pytest.mark.parametrize("field", ["seq_length", "gbs", "mbs"])
@pytest.mark.parametrize("value", [0, -1, True, 2**50])
def test_a_size_that_is_none_is_refused_by_name(field: str, value: int) -> None:
    with pytest.raises(InputError, match=field):
        workload_from_model("llama3_8B", **{field: value})


def test_learned_positions_end_where_the_model_ends() -> None:
    with pytest.raises(InputError, match="2048 learned positions"):
        workload_from_model("gpt3_175b", seq_length=4096)
