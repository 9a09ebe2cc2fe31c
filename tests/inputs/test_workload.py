"""Workload files to records: order of merging, what is refused, what is told."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.argument_values import default_arguments
from primus_mcp.inputs.trainer_arguments import read_training
from primus_mcp.inputs.workload import Workload, read_workload, workload_from_arguments
from primus_mcp.inputs.workload_file import load_document

EXAMPLES = Path("primus") / "examples" / "megatron" / "configs" / "MI355X"


def write(folder: Path, model: str = "llama3.1_8B.yaml", **overrides: Any) -> Path:
    module = {"framework": "megatron", "config": "pre_trainer.yaml", "model": model, "overrides": {"mock_data": True, **overrides}}
    path = folder / "workload.yaml"
    path.write_text(yaml.safe_dump({"work_group": "x", "modules": {"pre_trainer": module}}))
    return path


def resolve(folder: Path, model: str = "llama3.1_8B.yaml", vocab: Any = "as-run", **overrides: Any) -> Workload:
    return read_workload(write(folder, model, **overrides), environment={}, vocab=vocab)


def codes(workload: Workload) -> set[str]:
    return {finding.code for finding in workload.findings}


def text(workload: Workload, code: str) -> str:
    return " ".join(finding.text for finding in workload.findings if finding.code == code)


def test_overrides_win_over_the_model_and_the_model_over_the_trainer(tmp_path: Path) -> None:
    workload = resolve(tmp_path, "deepseek_v2_lite", micro_batch_size=3, num_layers=5, moe_layer_freq=1)
    assert (workload.baseline.mbs, workload.baseline.gbs) == (3, 16)  # pre_trainer.yaml: GBS 16
    assert workload.baseline.ep == 8  # deepseek_v2_lite.yaml
    assert workload.architecture.num_layers == 5


def test_placeholders_reach_the_model_name(tmp_path: Path) -> None:
    path = write(tmp_path, "${MODEL:llama2_7B}.yaml", tensor_model_parallel_size="${TP:4}")
    default, set_ = read_workload(path, environment={}), read_workload(path, environment={"MODEL": "llama2_13B", "TP": "2"})
    assert (default.architecture.num_layers, default.baseline.tp) == (32, 4)
    assert (set_.architecture.num_layers, set_.baseline.tp) == (40, 2)
    assert default.document["modules"]["pre_trainer"]["model"] == "${MODEL:llama2_7B}.yaml"


def test_a_global_batch_size_can_be_replaced(tmp_path: Path) -> None:
    assert read_workload(write(tmp_path, global_batch_size=64), environment={}, gbs=512).baseline.gbs == 512


def test_the_digest_ignores_what_costs_nothing(tmp_path: Path) -> None:
    base = resolve(tmp_path).digest
    assert resolve(tmp_path, lr=0.1, wandb_project="other").digest == base
    assert resolve(tmp_path, micro_batch_size=1).digest != base
    assert resolve(tmp_path, vocab="tokenizer").digest != base


def test_a_trial_reads_through_the_same_code_as_the_baseline(tmp_path: Path) -> None:
    workload = resolve(tmp_path, tensor_model_parallel_size=8)
    assert read_training(workload.arguments, workload.architecture) == workload.baseline
    assert read_training({**workload.arguments, "tensor_model_parallel_size": 2}, workload.architecture).tp == 2
    again = workload_from_arguments(workload.arguments, "llama3.1_8B")
    assert (again.architecture, again.baseline, again.digest) == (workload.architecture, workload.baseline, workload.digest)


def test_mock_data_runs_131073_entries_and_says_what_the_tokenizer_would_change(tmp_path: Path) -> None:
    mock, own = resolve(tmp_path, "llama2_7B"), resolve(tmp_path, "llama2_7B", vocab="tokenizer")
    assert (mock.architecture.vocab_size, mock.architecture.vocab_source) == (131_073, "mock_data")
    assert "32,000" in text(mock, "vocabulary-mock-data")
    assert (own.architecture.vocab_size, own.architecture.vocab_source) == (32_000, "tokenizer")
    real = resolve(tmp_path, "llama2_7B", mock_data=False)
    assert real.architecture.vocab_size == 32_000


def test_a_vocabulary_that_nobody_knows_is_refused_with_the_way_out(tmp_path: Path) -> None:
    unknown: dict[str, Any] = {"tokenizer_model": "someone/unheard-of", "mock_data": False}
    with pytest.raises(InputError, match="vocab_size"):
        resolve(tmp_path, **unknown)
    assert resolve(tmp_path, **unknown, vocab_size=50_000).architecture.vocab_size == 50_000
    null = resolve(tmp_path, **unknown, tokenizer_type="NullTokenizer", vocab_size=50_000)
    assert null.architecture.vocab_size == 50_001


def test_a_model_that_is_not_what_its_name_says_is_told_field_by_field(tmp_path: Path) -> None:
    assert "head_dim: 80 would run" in text(resolve(tmp_path, "qwen3_32B"), "differs-from-published")
    assert "latent_attention: none" in text(resolve(tmp_path, "deepseek_v3", multi_latent_attention=False), "differs-from-published")
    gpt_oss = text(resolve(tmp_path, "gpt_oss_20B"), "differs-from-published")
    for field in ("shared_expert_ffn_hidden_size", "qkv_bias", "linear_bias", "sliding_window", "qk_norm"):
        assert field in gpt_oss
    assert "windowed_layers: no layers would run, openai/gpt-oss-20b has 12 of 24 layers" in gpt_oss
    assert "differs-from-published" not in codes(resolve(tmp_path, "llama3.1_8B"))
    assert "tied_embeddings" in text(resolve(tmp_path, "llama3.1_8B", untie_embeddings_and_output_weights=False), "differs-from-published")


def test_a_renamed_preset_is_still_compared_with_the_model_of_its_tokenizer(tmp_path: Path) -> None:
    arguments = resolve(tmp_path, "qwen3_32B").arguments
    assert "differs-from-published" in codes(workload_from_arguments(arguments, "my_own_name"))
    assert "differs-from-published" not in codes(workload_from_arguments({**arguments, "num_layers": 4}, "my_own_name"))


@pytest.mark.parametrize(
    ("model", "overrides", "code"),
    [
        ("llama3.1_8B", {"pipeline_model_parallel_size": 4, "virtual_pipeline_model_parallel_size": 2}, "vpp-key-ignored"),
        ("llama3.1_8B", {"context_model_parallel_size": 2}, "cp-spelling"),
        ("llama3.1_8B", {"use_turbo_attention": True}, "turbo-off"),
        ("llama3.1_8B", {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 0}, "recompute-none"),
        ("deepseek_v3", {"enable_primus_turbo": True, "turbo_sync_free_moe_stage": 2}, "sync-free-turns-on"),
        ("deepseek_v3", {"enable_primus_turbo": True, "use_turbo_grouped_gemm": True, "fp8": "hybrid"}, "turbo-bf16"),
        ("deepseek_v3", {"moe_use_legacy_grouped_gemm": True, "fp8": "hybrid"}, "legacy-bf16"),
        ("deepseek_v3", {"moe_router_force_load_balancing": True}, "forced-balance"),
        ("llama3.1_8B", {"fp8": "hybrid", "first_last_layers_bf16": True}, "first-last-bf16"),
        ("llama3.1_8B", {"rampup_batch_size": [16, 16, 1000]}, "rampup-ignored"),
        ("llama3.1_8B", {"final_logit_softcapping": 30.0}, "softcap-ignored"),
        ("deepseek_v3", {"moe_expert_capacity_factor": 1.0}, "capacity-ignored"),
        ("llama3.1_8B", {"tensor_model_paralel_size": 8}, "unknown-override"),
        ("llama3.1_8B", {"seq_lenght": 4096}, "unknown-override"),
        ("llama3.1_8B", {"a_feature_of_tomorrow": True}, "unknown-override"),
    ],
)
def test_what_the_trainer_does_silently_is_told(tmp_path: Path, model: str, overrides: dict[str, Any], code: str) -> None:
    assert code in codes(resolve(tmp_path, model, **overrides))
    assert code not in codes(resolve(tmp_path, model))


def test_keys_that_cost_nothing_are_no_unknown_overrides(tmp_path: Path) -> None:
    workload = resolve(tmp_path, "llama3.1_8B", stderr_sink_level="DEBUG", check_for_nan_in_loss_and_grad=False, init_method_std=0.01)
    assert "unknown-override" not in codes(workload)


def test_a_layout_without_mtp_drops_the_mtp_layer_instead_of_pricing_a_run_that_stops(tmp_path: Path) -> None:
    layout = "|".join(["Et*3", *["t*4"] * 14, "t*2,L"])
    workload = resolve(tmp_path, "deepseek_v3", pipeline_model_parallel_size=16, pipeline_model_parallel_layout=layout)
    assert workload.architecture.mtp_num_layers == 0
    assert workload.corrections == {"mtp_num_layers": None}
    assert "mtp-without-layout" in codes(workload)
    assert resolve(tmp_path, "deepseek_v3").architecture.mtp_num_layers == 1


@pytest.mark.parametrize(
    ("document", "error", "named"),
    [
        ({}, InputError, "key: value"),
        ({"a": 1}, InputError, "no `modules:`"),
        ({"modules": []}, InputError, "no `modules:`"),
        ({"modules": {"post_trainer": {}}}, InputError, "post_trainer.framework"),
        ({"modules": {"other": {}}}, InputError, "no modules.pre_trainer"),
        ({"modules": {"pre_trainer": {}, "other": {}}}, UnsupportedFeatureError, "several modules"),
        ({"modules": {"pre_trainer": 3}}, InputError, "no mapping"),
        ({"modules": {"pre_trainer": {"framework": "megatron", "config": "pre_trainer.yaml"}}}, InputError, "pre_trainer.model"),
        (
            {"modules": {"pre_trainer": {"framework": "torchtitan", "config": "c", "model": "m"}}},
            UnsupportedFeatureError,
            "'torchtitan'",
        ),
        (
            {"modules": {"pre_trainer": {"framework": "megatron", "config": "pre_trainer", "model": "llama2_7B", "overrides": [1]}}},
            InputError,
            "overrides",
        ),
        ({"modules": {"pre_trainer": {"framework": "megatron", "config": "pre_trainer", "model": "none_such"}}}, InputError, "none_such"),
    ],
)
def test_what_is_no_pretraining_workload_is_refused_in_one_line(
    tmp_path: Path, document: dict[str, Any], error: type[InputError], named: str
) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(yaml.safe_dump(document) if document else "")
    with pytest.raises(error, match=r"w\.yaml") as caught:
        read_workload(path, environment={})
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "overrides",
    [
        {"model_type": "mamba"},
        {"bf16": False},
        {"fp16": True},
        {"use_megatron_fsdp": True},
        {"optimizer_cpu_offload": 1},
        {"experimental_attention_variant": "dsa"},
        {"spec": ["my.module", "my_spec"]},
        {"lora": {"enabled": True}},
    ],
)
def test_features_that_cannot_be_priced_are_named(tmp_path: Path, overrides: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedFeatureError, match=next(iter(overrides))):
        resolve(tmp_path, **overrides)


def test_neutral_values_of_such_features_are_fine(tmp_path: Path) -> None:
    assert resolve(tmp_path, use_megatron_fsdp=0, lora={"enabled": False}, spec=None, bf16=1).architecture.num_layers == 32


def test_broken_files_never_end_in_anything_but_an_input_error(tmp_path: Path) -> None:
    """Bytes of a real workload, cut, flipped and repeated by a seeded generator."""
    generator = random.Random(7)
    good = write(tmp_path, tensor_model_parallel_size="${TP:2}", moe_layer_freq="([0]*1+[1]*31)").read_bytes()
    for round_ in range(300):
        data = bytearray(good)
        for _ in range(generator.randint(1, 4)):
            data[generator.randrange(len(data))] = generator.randrange(256)
        path = tmp_path / f"{round_}.yaml"
        path.write_bytes(bytes(data[: generator.randint(1, len(data))]) if round_ % 3 == 0 else bytes(data))
        try:
            read_workload(path, environment={})
        except InputError as error:
            assert "\n" not in str(error), error


def test_every_shipped_pretraining_file_resolves_or_names_its_feature(shared: Path) -> None:
    resolved, refused = [], []
    for path in sorted((shared / EXAMPLES).glob("*pretrain*.yaml")):
        try:
            resolved.append(read_workload(path, environment={}))
        except UnsupportedFeatureError as error:
            refused.append(str(error))
    assert len(resolved) >= 70
    assert all("cannot be priced" in reason for reason in refused)
    assert all(workload.findings for workload in resolved)


def test_the_mixtral_baseline_is_what_its_file_says(shared: Path) -> None:
    workload = read_workload(shared / EXAMPLES / "mixtral_8x22B_v0.1-BF16-pretrain.yaml", environment={})
    baseline = workload.baseline
    assert (baseline.tp, baseline.pp, baseline.ep, baseline.cp, baseline.vpp) == (1, 4, 8, 1, 1)
    assert (baseline.mbs, baseline.gbs, workload.architecture.seq_length) == (2, 128, 8192)
    assert baseline.recompute.granularity == "none"
    assert (baseline.grouped_gemm, baseline.dispatcher, baseline.forced_balance) == ("te", "alltoall", True)
    assert baseline.cross_entropy_loss_fusion
    assert baseline.use_distributed_optimizer
    assert not baseline.gradient_accumulation_fusion


def test_the_deepseek_v3_baseline_is_what_its_file_says(shared: Path) -> None:
    workload = read_workload(shared / EXAMPLES / "deepseek_v3-FP8-pretrain.yaml", environment={})
    baseline = workload.baseline
    assert (baseline.pp, baseline.vpp, baseline.ep, baseline.schedule) == (16, 2, 8, "interleaved")
    assert (baseline.grouped_gemm, baseline.dispatcher, baseline.sync_free_stage, baseline.deepep_num_cu) == ("legacy", "deepep", 1, 80)
    assert (baseline.main_grad_bytes, baseline.main_param_bytes, baseline.exp_avg_bytes) == (2, 2, 2)
    assert len(baseline.recompute.layer_ids or ()) == 21
    assert workload.architecture.mtp_num_layers == 0


def test_any_value_of_any_argument_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    base = resolve(tmp_path, "deepseek_v3", pipeline_model_parallel_size=4).arguments
    values: list[Any] = [None, True, False, -1, 0, 1, 2, 3.5, 10**15, "", "x", "2", [], [1], ["a", None], {}, {"a": 1}, "Et|tL", "([1]*61)"]
    for key in default_arguments():
        for value in values:
            try:
                workload_from_arguments({**base, key: value}, "deepseek_v3")
            except InputError as error:
                assert "\n" not in str(error)


def test_files_that_extend_the_same_file_over_and_over_are_refused_by_their_number(tmp_path: Path) -> None:
    for index in range(30):
        (tmp_path / f"{index}.yaml").write_text(f"extends: [{index + 1}.yaml, {index + 1}.yaml]\n")
    (tmp_path / "30.yaml").write_text("modules: {}\n")
    with pytest.raises(InputError, match="extends more than 200 files"):
        load_document(tmp_path / "0.yaml")
