"""The plan of a reduced run: what is left out, what a rank still computes, and which collectives it can time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from architecture_cases import decoder
from hypothesis import given
from hypothesis import strategies as st

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.architecture import Architecture, LatentAttention, MixtureOfExperts, ShortConvolution
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.measurement.plan import plan_reduced_run, wanted_kernels
from primus_mcp.measurement.shapes import units_of

DENSE = decoder(layers=32, hidden=4096, ffn=14_336, heads=32, groups=8, vocab=128_256, seq=8192, name="dense")
MOE = replace(
    DENSE,
    name="moe",
    experts=MixtureOfExperts(num_experts=64, top_k=6, expert_ffn_hidden_size=1408, shared_expert_ffn_hidden_size=2816),
    moe_layers=(False,) + (True,) * 31,
    latent_attention=LatentAttention(q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128),
)


def kinds(arch: Architecture, config: TrainingConfig) -> list[str]:
    return [unit.kind for unit in units_of(arch, config)]


def test_one_unit_of_each_kind_of_layer_and_the_ends_are_measured() -> None:
    assert kinds(DENSE, TrainingConfig()) == ["attention_core", "attention", "dense_mlp", "embedding", "head", "optimizer"]
    assert kinds(MOE, TrainingConfig()) == ["attention_core", "attention", "dense_mlp", "moe", "embedding", "head", "optimizer"]


def test_windowed_and_full_layers_are_different_units() -> None:
    mixed = replace(DENSE, sliding_window=1024, windowed_layers=(True, False) * 16)
    assert kinds(mixed, TrainingConfig()).count("attention_core") == 2
    assert kinds(mixed, TrainingConfig(turbo_attention=True)).count("attention_core") == 1


def test_pp_goes_first_then_ep_with_its_experts_then_tp() -> None:
    run = plan_reduced_run(MOE, TrainingConfig(tp=8, pp=4, ep=16, etp=1, mbs=1), gpus=4)
    assert (run.tp, run.ep, run.ranks) == (4, 4, 4)
    assert [text.split(":")[0] for text in run.reductions] == [
        "PP 4 to 1",
        "EP 16 to 4, experts 64 to 16",
        "TP 8 to 4",
        "32 layers to 2",
    ]
    assert "4 a rank stay" in run.reductions[1]


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 8, 64]), st.integers(1, 8))
def test_reducing_degrees_never_changes_what_a_rank_computes(tp: int, ep: int, gpus: int) -> None:
    config = TrainingConfig(tp=tp, ep=ep, etp=1)
    assert plan_reduced_run(MOE, config, gpus=gpus).units == units_of(MOE, config)
    moe = next(unit for unit in units_of(MOE, config) if unit.kind == "moe")
    assert moe.sizes["experts"] == 64 // ep and moe.sizes["rows"] == 8192 * 6


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 8, 64]), st.integers(1, 8))
def test_groups_divide_the_target_s_and_fit_the_host(tp: int, ep: int, gpus: int) -> None:
    run = plan_reduced_run(MOE, TrainingConfig(tp=tp, ep=ep, etp=1), gpus=gpus, gradients=1 << 20)
    assert tp % run.tp == 0 and ep % run.ep == 0 and run.ranks <= gpus
    assert all(2 <= transfer.ranks <= run.ranks for transfer in run.transfers)


def test_tensor_parallel_ranks_hold_their_share_of_heads_widths_and_vocabulary() -> None:
    by_kind = {unit.kind: unit.sizes for unit in units_of(DENSE, TrainingConfig(tp=4, sequence_parallel=True))}
    assert by_kind["attention"]["heads"] == 8 and by_kind["attention"]["groups"] == 2
    assert by_kind["attention"]["tokens"] == 8192 and by_kind["attention"]["norm_tokens"] == 2048
    assert by_kind["dense_mlp"]["width"] == 3584
    assert by_kind["head"]["vocab"] == DENSE.padded_vocab_size(4) // 4


def test_context_parallel_ranks_measure_shorter_sequences_with_the_same_tokens() -> None:
    whole = {unit.kind: unit.sizes for unit in units_of(DENSE, TrainingConfig())}
    split = {unit.kind: unit.sizes for unit in units_of(DENSE, TrainingConfig(cp=4))}
    assert split["attention"]["tokens"] * 4 == whole["attention"]["tokens"]
    assert split["attention_core"]["seq"] == 2048


def test_collectives_are_those_of_the_configuration() -> None:
    sequence = plan_reduced_run(DENSE, TrainingConfig(tp=2, sequence_parallel=True), gpus=2)
    assert {transfer.kind for transfer in sequence.transfers} == {"all_gather", "reduce_scatter"}
    plain = plan_reduced_run(DENSE, TrainingConfig(tp=2), gpus=2)
    assert [(t.kind, t.elements, t.model_bytes) for t in plain.transfers] == [("all_reduce", 8192 * 4096, 2 * 8192 * 4096)]
    experts = plan_reduced_run(MOE, TrainingConfig(ep=8), gpus=8)
    assert [t.kind for t in experts.transfers] == ["all_to_all"] and experts.transfers[0].elements == 8192 * 4096 * 6
    assert not plan_reduced_run(DENSE, TrainingConfig(), gpus=1).transfers


def test_traffic_between_replicas_and_stages_needs_two_gpus() -> None:
    config = TrainingConfig(pp=2, use_distributed_optimizer=False, main_grad_bytes=4)
    run = plan_reduced_run(DENSE, config, gpus=8, gradients=1000)
    assert run.ranks == 2
    assert [(t.kind, t.elements, t.model_bytes) for t in run.transfers if t.kind == "all_reduce"] == [("all_reduce", 1000, 4000)]
    assert not plan_reduced_run(DENSE, config, gpus=1, gradients=1000).transfers


def test_the_kernels_wanted_are_those_that_the_target_runs() -> None:
    assert wanted_kernels(TrainingConfig()) == {"linear": "te", "attention": "te", "experts": "te"}
    turbo = TrainingConfig(turbo_gemm=True, turbo_attention=True, grouped_gemm="turbo")
    assert set(wanted_kernels(turbo).values()) == {"turbo"}
    assert wanted_kernels(TrainingConfig(grouped_gemm="legacy"))["experts"] == "torch"


def test_what_no_unit_runs_and_no_gpu_are_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="mixer"):
        units_of(replace(DENSE, mixer=ShortConvolution(kernel=3)), TrainingConfig())
    with pytest.raises(InputError, match="benchmark_gpus"):
        plan_reduced_run(DENSE, TrainingConfig(), gpus=0)
