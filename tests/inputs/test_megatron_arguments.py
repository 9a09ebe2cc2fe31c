"""Megatron-LM's arguments in and out are the same configuration, and none of them disappears."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_cases import reread

from primus_mcp.errors import InputError, PrimusMcpError, UnsupportedFeatureError
from primus_mcp.inputs.argument_values import complete_arguments, default_arguments
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.megatron_arguments import megatron_table
from primus_mcp.inputs.megatron_workload import MegatronExport, export_megatron, workload_from_megatron
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.inputs.published import published_models
from primus_mcp.inputs.trainer_arguments import read_training
from primus_mcp.inputs.workload import Workload, read_workload
from primus_mcp.space.adapted import adapt_baseline
from primus_mcp.space.knobs import KNOBS, TrialConfig
from primus_mcp.space.legality import check_legality
from primus_mcp.space.trainer_keys import trainer_keys

GPT = """
--num-layers 4 --hidden-size 256 --num-attention-heads 8 --seq-length 512 --max-position-embeddings 512
--micro-batch-size 1 --global-batch-size 8 --bf16 --tokenizer-type NullTokenizer --vocab-size 999
"""
MODELS = ("llama3.1_8B", "mixtral_8x7B_v0.1", "deepseek_v2_lite", "qwen3_30B_A3B", "gemma3_4b", "llama2_70B")
SIZES = {"tp": [1, 2, 4, 8], "pp": [1, 2, 4, 8], "ep": [1, 2, 4, 8], "cp": [1, 2], "vpp": [1, 2, 4], "mbs": [1, 2, 4], "gbs": [256, 512]}


def read(text: str, **defines: str) -> Workload:
    return workload_from_megatron(text, defines=defines)


def export(workload: Workload, keys: dict[str, Any] | None = None) -> MegatronExport:
    arguments = {**workload.arguments, **(keys or {})}
    return export_megatron(arguments, workload.architecture, read_training(arguments, workload.architecture))


def trials(model: str, number: int, share: float) -> list[tuple[Workload, dict[str, Any]]]:
    """Trainer keys of random legal trials."""
    cluster = make_cluster("mi355x", num_nodes=4)
    workload = adapt_baseline(workload_from_model(model), cluster).workload
    generator, found = random.Random(model), []
    for _ in range(number):
        chosen = {
            name: generator.choice(SIZES.get(name) or knob.choices or [1, 2])
            for name, knob in KNOBS.items()
            if generator.random() < share and name != "target_ep_size"
        }
        trial = TrialConfig.model_validate(chosen)
        if check_legality(workload, trial, cluster, allow_policy=True).legal:
            found.append((workload, trainer_keys(trial, workload)))
    return found


@pytest.mark.parametrize("name", sorted(published_models()))
def test_every_model_of_the_catalogue_makes_the_round_trip(name: str) -> None:
    try:
        workload = workload_from_model(name)
        written = export(workload)
    except UnsupportedFeatureError as error:
        pytest.skip(str(error))
    again = workload_from_megatron(written.text(name), name=name)
    assert replace(again.architecture, vocab_source=workload.architecture.vocab_source) == workload.architecture
    turbo = {"turbo_attention", "flash_attention"} if workload.baseline.turbo_attention else set()
    assert {field for field, _, _ in written.changed} == turbo
    assert turbo or again.baseline == workload.baseline


@pytest.mark.parametrize("model", MODELS)
def test_in_out_in_is_the_same_for_random_legal_trials_and_what_megatron_lacks_is_named(model: str) -> None:
    exact = 0
    for workload, keys in trials(model, 60, 0.2) + trials(model, 60, 0.08):
        written = export(workload, keys)
        again = workload_from_megatron(written.text("trial"), name=workload.architecture.name)
        wanted = {**workload.arguments, **keys}
        for key in written.not_megatron:
            assert key not in {flag.key for flag in megatron_table().flags.values()}
            wanted[key] = default_arguments().get(key)
        assert again.baseline == read_training(complete_arguments(wanted), workload.architecture)
        assert (written.changed == ()) == (again.baseline == read_training({**workload.arguments, **keys}, workload.architecture))
        assert again.architecture.num_layers == workload.architecture.num_layers
        second = export(again)
        assert (second.words, dict(second.not_megatron)) == (written.words, {})
        third = workload_from_megatron(second.text("again"), name=workload.architecture.name)
        assert (third.architecture, third.baseline, third.digest) == (again.architecture, again.baseline, again.digest)
        exact += written.changed == ()
    assert exact >= 5


@pytest.mark.parametrize("tp", [1, 2])
def test_sequence_parallelism_is_written_only_where_there_is_tensor_parallelism(tp: int) -> None:
    keys = {"sequence_parallel": True, "tensor_model_parallel_size": tp}
    written = export(workload_from_model("llama3.1_8B"), keys)
    assert ("--sequence-parallel" in written.words) == (tp > 1) and written.changed == ()


def test_every_example_of_primus_goes_out_and_in_again_or_is_refused_by_name(shared: Path) -> None:
    exact = named = 0
    for path in sorted((shared / "primus/examples/megatron/configs").rglob("*.yaml")):
        try:
            workload = read_workload(path, environment={})
        except PrimusMcpError:
            continue
        try:
            written = export(workload)
        except UnsupportedFeatureError as error:
            assert "Megatron-LM" in str(error) and "\n" not in str(error)
            continue
        again = workload_from_megatron(written.text(path.name), name=workload.architecture.name)
        assert replace(again.architecture, vocab_source=workload.architecture.vocab_source) == workload.architecture, path
        assert export(again).words == written.words, path
        assert (again.baseline == workload.baseline) == (written.changed == ()), path
        assert not written.changed or written.not_megatron
        exact, named = exact + (written.changed == ()), named + (written.changed != ())
    assert exact >= 20 and named >= 20


def test_a_word_stays_a_word_and_a_switch_may_be_a_number() -> None:
    assert read(GPT + "--moe-router-load-balancing-type none").arguments["moe_router_load_balancing_type"] == "none"
    workload = workload_from_model("llama3.1_8B")
    assert "--manual-gc" in export(workload, {"manual_gc": 1}).words
    assert not [word for word in export(workload, {"manual_gc": 0}).words if "manual" in word]


def test_the_written_workload_file_is_the_workload(tmp_path: Path) -> None:
    text = GPT + "--swiglu --disable-bias-linear --lr 3.0e-4 --weight-decay 0.1 --save /tmp/x --no-rope-fusion --train-iters 7"
    built = read(text)
    again = reread(tmp_path, built)
    assert replace(again.architecture, name=built.architecture.name) == built.architecture
    assert (again.baseline, again.digest) == (built.baseline, built.digest)
    overrides = again.document["modules"]["pre_trainer"]["overrides"]
    assert (overrides["lr"], overrides["weight_decay"], overrides["save"], overrides["train_iters"]) == (3.0e-4, 0.1, "/tmp/x", 7)


def test_absent_arguments_are_megatrons_defaults_not_primus() -> None:
    built = read(GPT)
    arch, base = built.architecture, built.baseline
    assert (arch.gated_mlp, arch.linear_bias, arch.position_embedding, arch.normalization) == (False, True, "learned", "LayerNorm")
    assert (arch.tied_embeddings, arch.hidden_dropout, arch.ffn_hidden_size, arch.vocab_size) == (True, 0.1, 1024, 1000)
    assert (base.use_distributed_optimizer, base.overlap_grad_reduce, base.gradient_accumulation_fusion) == (False, False, True)


def test_a_launch_script_of_megatron_is_read_whole() -> None:
    script = """#!/bin/bash
    export CUDA_DEVICE_MAX_CONNECTIONS=1
    GPUS_PER_NODE=8
    WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
    DISTRIBUTED_ARGS=(--nproc_per_node $GPUS_PER_NODE --master_addr $MASTER_ADDR)
    GPT_MODEL_ARGS=(
        --num-layers 96
        --hidden-size 12288
        --num-attention-heads 96
        --seq-length 2048
        --max-position-embeddings 2048
        --attention-backend auto # Can use (flash/fused/unfused/local)
    )
    TRAINING_ARGS=(
        --micro-batch-size 1
        --global-batch-size 1536
        --bf16
        --lr 6.0e-5
    )
    MODEL_PARALLEL_ARGS=(--tensor-model-parallel-size 8 --pipeline-model-parallel-size 16)
    DATA_ARGS=(--data-path $DATA_PATH --vocab-file $VOCAB_FILE --split 949,50,1)
    torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${GPT_MODEL_ARGS[@]} ${TRAINING_ARGS[@]} ${MODEL_PARALLEL_ARGS[@]} \\
        ${DATA_ARGS[@]} --vocab-size 50257
    """
    built = read(script)
    assert (built.architecture.num_layers, built.architecture.hidden_size, built.architecture.vocab_size) == (96, 12288, 50257)
    assert (built.baseline.tp, built.baseline.pp, built.baseline.gbs) == (8, 16, 1536)
    told = " ".join(finding.text for finding in built.findings)
    assert "--data-path ($DATA_PATH)" in told and "--lr" in told

    script = script.replace("$DATA_PATH", "$1")
    assert "--data-path ($1 (line" in " ".join(finding.text for finding in read(script).findings)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "no arguments"),
        (GPT + "--num-layer 3", "did you mean --num-layers"),
        (GPT + "--flux-capacitor 3 --warp", "--flux-capacitor .line 4., --warp .line 4."),
        (GPT + "--swiglu true", "belongs to no argument"),
        (GPT + "--swiglu=true", "--swiglu takes no value"),
        (GPT + "--kv-channels", "--kv-channels has 0 values"),
        (GPT + "--kv-channels 1 2", "--kv-channels has 2 values"),
        (GPT + "--cp-comm-type", "--cp-comm-type has no value"),
        (GPT + "--tensor-model-parallel-size $TP", "--define TP=VALUE"),
        (GPT + "--tensor-model-parallel-size $(nproc)", "nproc"),
        (GPT + "--save '${HOME}'", "HOME"),
        (GPT + "--data-path $A $B", r"\$B"),
        (GPT + "$MORE", "--define MORE=VALUE"),
        (GPT + "--yaml-cfg x.yaml", "--yaml-cfg"),
        (GPT + "--use-checkpoint-args", "--use-checkpoint-args"),
        (GPT + "--transformer-impl local", "transformer_impl: local"),
        (GPT + "--optimizer lion", "optimizer"),
        (GPT + "--window-size 3", "--window-size"),
        (GPT + "--num-experts 0x8", "num_experts"),
        (GPT.replace("--bf16", ""), "--bf16"),
        (GPT.replace("--global-batch-size 8", ""), "--global-batch-size"),
        (GPT.replace("--vocab-size 999", ""), "--tokenizer-model"),
        (GPT.replace("--num-layers 4", "--num-layers four"), "num_layers"),
    ],
)
def test_what_cannot_be_taken_is_one_line_that_names_it(text: str, named: str) -> None:
    with pytest.raises(InputError, match=named) as caught:
        read(text)
    assert "\n" not in str(caught.value)


def test_every_argument_without_cost_is_named_with_the_reason_and_taken_over() -> None:
    built = read(GPT + "--lr 1e-4 --no-masked-softmax-fusion --log-interval 1 --init-method-std 0.02")
    told = next(finding.text for finding in built.findings if finding.code == "megatron-no-cost")
    for name in ("--lr (learning", "--no-masked-softmax-fusion (switches", "--log-interval (logs", "--init-method-std (values"):
        assert name in told
    assert (built.arguments["lr"], built.arguments["masked_softmax_fusion"], built.arguments["log_interval"]) == (1e-4, False, 1)


def test_variables_are_given_by_name_and_the_last_of_two_counts() -> None:
    built = read(GPT + "--tensor-model-parallel-size $TP --hidden-size 512 --sequence-parallel", TP="4")
    assert (built.baseline.tp, built.architecture.hidden_size) == (4, 512)
    assert any(finding.code == "megatron-twice" and "--hidden-size" in finding.text for finding in built.findings)


def test_mock_data_keeps_the_tokenizers_size_as_megatron_does() -> None:
    text = GPT.replace("--tokenizer-type NullTokenizer --vocab-size 999", "") + "--mock-data --tokenizer-type HuggingFaceTokenizer "
    assert read(text + "--tokenizer-model meta-llama/Llama-3.1-8B").architecture.vocab_size == 128256
    with pytest.raises(InputError, match="vocabulary"):
        read(text + "--tokenizer-model nobody/nothing")


def test_a_model_that_megatron_has_no_arguments_for_is_never_written_as_another() -> None:
    with pytest.raises(UnsupportedFeatureError, match="lfm_layer_types"):
        export(workload_from_model("lfm2_8B_A1B"))


def test_every_argument_of_the_table_is_known_once_and_priced_ones_are_keys_of_the_engine() -> None:
    table = megatron_table()
    assert len(table.flags) > 350
    assert all(flag.key in default_arguments() for flag in table.flags.values() if flag.priced)
    assert not set(table.flags) & set(table.not_priced)


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_mutated_arguments_are_read_or_refused_in_one_line(data: st.DataObject) -> None:
    words = export(workload_from_model("mixtral_8x7B_v0.1")).words
    kept = [word for word in words if data.draw(st.integers(0, 9)) > 0]
    noise = data.draw(
        st.lists(st.sampled_from(["--bf16", "-1", "--x", "0", "1e9", "--moe-layer-freq ((((", "--num-layers 10000000000", "'", "$A"]))
    )
    try:
        read(" ".join(data.draw(st.permutations(kept + noise))))
    except PrimusMcpError as error:
        assert "\n" not in str(error)


def test_attention_sinks_of_primus_turbo_are_megatrons_learned_softmax_which_runs_unfused() -> None:
    workload = workload_from_model("gpt_oss_20B")
    written = export(workload)
    again = workload_from_megatron(written.text("sinks"), name=workload.architecture.name)
    assert "--softmax-type learnable" in " ".join(written.words) and again.architecture.attention_sinks
    assert ("flash_attention", True, False) in written.changed
