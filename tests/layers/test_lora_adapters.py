"""LoRA adapters by hand: which linears have one, how many elements, what they read, write and send."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from architecture_cases import decoder

from primus_mcp.inputs.architecture import Architecture, LatentAttention, LayerShape, MixtureOfExperts
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.constants import TIME
from primus_mcp.inputs.layout import Chunk
from primus_mcp.inputs.published import published_models
from primus_mcp.inputs.training import GroupedGemm, TrainingConfig
from primus_mcp.projection.adapters import Adapters, adapter_parameters
from primus_mcp.projection.layers.adapters import adapter_launches, adapter_pieces
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import Piece
from primus_mcp.projection.layers.settings import layer_settings
from primus_mcp.projection.ops.gemm import RooflineGemm
from primus_mcp.projection.performance.exchange import trained_parameters

ATTENTION = ("linear_qkv", "linear_proj")
MLP = ("linear_fc1", "linear_fc2")
EVERY = (*ATTENTION, *MLP)
DENSE: LayerShape = (False, "attention")
MOE: LayerShape = (True, "attention")

EXPERTS = MixtureOfExperts(num_experts=16, top_k=2, expert_ffn_hidden_size=512, shared_expert_ffn_hidden_size=256)
ARCH = decoder(2, 1024, 4096, 8, 4, 1280, 128, moe_layers=(False, True), experts=EXPERTS)
"""Heads of 128: QKV 1024 x 2048, projection 1024 x 1024, fc1 1024 x 8192, fc2 4096 x 1024; experts 1024 x 1024 and 512 x 1024."""


def adapters(rank: int = 16, targets: tuple[str, ...] = EVERY, grouped_gemm: GroupedGemm = "te", *, dropout: bool = False) -> Adapters:
    return Adapters(rank=rank, targets=targets, dropout=dropout, grouped_gemm=grouped_gemm)


def held(shape: LayerShape, tp: int = 1, ep: int = 1, etp: int = 1, arch: Architecture = ARCH, **what: Any) -> tuple[int, int]:
    """(dense, expert) elements of one layer on a rank."""
    found = adapter_parameters(arch, (shape,), tp, ep, etp, adapters(**what))
    return found.dense, found.expert


def test_adapters_are_rank_times_inputs_and_outputs_of_their_targets() -> None:
    """MLPerf's Llama-2-70B LoRA: rank 16 on QKV (8192 + 10240) and projection (8192 + 8192) of 80 layers = 44,564,480."""
    arch = published_models()["llama2_70B"].architecture
    assert adapter_parameters(arch, (DENSE,) * 80, 1, 1, 1, adapters(targets=ATTENTION)).total == 44_564_480
    assert adapter_parameters(arch, (DENSE,) * 80, 1, 1, 1, adapters(targets=("no_such",))).total == 0
    whole = adapter_parameters(arch, (DENSE,) * 80, 1, 1, 1, adapters()).total
    assert whole - 44_564_480 == 16 * 80 * ((8192 + 2 * 28672) + (28672 + 8192))


@pytest.mark.parametrize("tp", [2, 4])
def test_both_matrices_of_an_adapter_are_split_over_tensor_parallel_ranks(tp: int) -> None:
    """Megatron's column-parallel A [r / TP, i] or row-parallel A [r, i / TP], and column-parallel B [o / TP, r]."""
    whole = 16 * ((1024 + 2048) + (1024 + 1024) + (1024 + 8192) + (4096 + 1024))
    assert held(DENSE, tp) == (whole // tp, 0)


@pytest.mark.parametrize(("grouped_gemm", "copies"), [("te", 1), ("turbo", 1), ("sequential", 4), ("legacy", 0)])
def test_a_grouped_linear_has_one_adapter_a_rank_the_legacy_one_none_and_single_experts_one_each(
    grouped_gemm: GroupedGemm, copies: int
) -> None:
    """16 experts over EP 4: fc1 1024 + 1024, fc2 512 + 1024. The shared expert (fc1 1024 + 512, fc2 256 + 1024) always has its own."""
    shared, experts = 16 * (1536 + 1280), 16 * (2048 + 1536)
    assert held(MOE, ep=4, grouped_gemm=grouped_gemm, targets=MLP) == (shared, copies * experts)


def test_a_shared_adapter_does_not_grow_with_the_experts_of_a_rank_and_is_split_over_their_tensor_parallel_ranks() -> None:
    assert held(MOE, ep=1, targets=MLP) == held(MOE, ep=16, targets=MLP)
    assert held(MOE, tp=2, etp=2, targets=MLP)[1] * 2 == held(MOE, tp=2, etp=1, targets=MLP)[1] == held(MOE, targets=MLP)[1]


def test_an_attention_gate_widens_the_adapter_of_qkv() -> None:
    gated = replace(ARCH, attention_output_gate=True)
    assert held(DENSE, arch=gated, targets=ATTENTION)[0] - held(DENSE, targets=ATTENTION)[0] == 16 * 1024


def test_latent_attention_has_other_names_so_the_default_targets_leave_all_but_the_output_projection() -> None:
    """q_down 1024 + 256, q_up 256 + 8 * 192, kv_down 1024 + 576, kv_up 512 + 8 * 256, projection 8 * 128 + 1024."""
    latent = LatentAttention(q_lora_rank=256, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
    arch = replace(ARCH, latent_attention=latent)
    assert held(DENSE, arch=arch, targets=ATTENTION) == (16 * 2048, 0)
    named = ("linear_q_down_proj", "linear_q_up_proj", "linear_kv_down_proj", "linear_kv_up_proj")
    assert held(DENSE, 2, arch=arch, targets=named) == (16 * (1280 + 1792 + 1600 + 2560) // 2, 0)


def test_depths_of_multi_token_prediction_have_adapters_like_the_last_layer() -> None:
    chunk = Chunk(layers=(0, 1), loss=True, mtp_layers=2)
    total = trained_parameters(ARCH, (chunk,), 1, 4, 1, adapters())
    one, last = held(DENSE, ep=4), held(MOE, ep=4)
    assert (total.dense, total.expert) == (one[0] + 3 * last[0], 3 * last[1])


RATES = Rates(make_cluster("mi355x", memory_safety_margin=0.0), RooflineGemm(make_cluster("mi355x", memory_safety_margin=0.0)))


def pieces(shape: LayerShape, **config: Any) -> list[Piece]:
    settings = layer_settings(TrainingConfig(**{"finetune": "lora", "lora_rank": 16, "lora_targets": EVERY, **config}))
    return adapter_pieces(RATES, ARCH, settings, shape)


def test_an_adapter_takes_the_passes_that_its_eager_operations_make() -> None:
    """128 tokens, BF16. Forward 1 input and 6 outputs, backward 5 and 4; dropout adds 2.5 inputs to each."""
    inputs, outputs = 1024 + 1024 + 1024 + 4096, 2048 + 1024 + 8192 + 1024
    (plain,) = pieces(DENSE)
    assert plain.forward_s == pytest.approx(RATES.pass_s(128 * 2 * (inputs + 6 * outputs)))
    assert plain.backward_s == pytest.approx(RATES.pass_s(128 * 2 * (5 * inputs + 4 * outputs)))
    (dropped,) = pieces(DENSE, lora_dropout=0.05)
    assert dropped.forward_s - plain.forward_s == pytest.approx(RATES.pass_s(128 * 2 * 2.5 * inputs))
    assert dropped.backward_s - plain.backward_s == pytest.approx(RATES.pass_s(128 * 2 * 2.5 * inputs))


def test_adapters_of_experts_take_time_by_the_rows_not_by_the_experts_and_the_legacy_grouped_gemm_has_none() -> None:
    """Top-2: 256 rows through fc1 (1024 -> 1024) and fc2 (512 -> 1024), beside the shared expert's 128."""
    mlp = {"lora_targets": MLP, "ep": 4}
    (legacy,), (grouped,), (single,) = (pieces(MOE, grouped_gemm=kind, **mlp) for kind in ("legacy", "te", "sequential"))
    assert legacy.forward_s == pytest.approx(RATES.pass_s(128 * 2 * ((1024 + 256) + 6 * (512 + 1024))))
    assert grouped.forward_s - legacy.forward_s == pytest.approx(RATES.pass_s(256 * 2 * ((1024 + 512) + 6 * (1024 + 1024))))
    assert single == grouped


def _kernels(shape: LayerShape, **config: Any) -> tuple[float, float]:
    settings = layer_settings(TrainingConfig(**{"finetune": "lora", "lora_rank": 16, "lora_targets": EVERY, **config}))
    return adapter_launches(ARCH, settings, shape)


def test_every_adapter_launches_its_kernels_once_a_module() -> None:
    """Dense: four. Mixture over EP 4: two of attention, two of the shared expert, two grouped or eight alone."""
    forward, backward = TIME["launches.adapter.forward"], TIME["launches.adapter.backward"]
    assert _kernels(DENSE) == (4 * forward, 4 * backward)
    counts = {"legacy": 4, "te": 6, "sequential": 12}
    assert {kind: _kernels(MOE, ep=4, grouped_gemm=kind)[0] / forward for kind in counts} == counts
    assert _kernels(DENSE, finetune="full") == (0.0, 0.0)


def test_a_row_parallel_adapter_gathers_its_whole_output_and_a_column_parallel_one_reduces_its_input_gradient() -> None:
    """TP 2 without sequence parallelism: rank 16 moves 128 * 16 * 2 B, whole rows 128 * 1024 * 2 B."""
    low, wide = 128.0 * 16 * 2, 128.0 * 1024 * 2
    reduced_s, gathered_s = RATES.all_reduce_s(low, 2, 1), RATES.all_gather_s(low, 2, 1)
    row, column = (pieces(DENSE, tp=2, lora_targets=(target,))[1] for target in ATTENTION[::-1])
    assert row.forward_s == pytest.approx(reduced_s + RATES.all_gather_s(wide, 2, 1))
    assert row.backward_s == pytest.approx(reduced_s)
    assert column.forward_s == pytest.approx(gathered_s)
    assert column.backward_s == pytest.approx(reduced_s + RATES.all_reduce_s(wide, 2, 1))
    assert {row.collective, column.collective} == {"tp"}


def test_sequence_parallelism_leaves_the_input_gradient_to_the_base_linear_unless_it_overlaps() -> None:
    low, wide = 128.0 * 16 * 2, 128.0 * 1024 * 2
    base, overlapped = (
        pieces(DENSE, tp=2, sequence_parallel=True, tp_comm_overlap=overlap, lora_targets=("linear_qkv",))[1] for overlap in (False, True)
    )
    assert base.backward_s == pytest.approx(RATES.all_reduce_s(low, 2, 1))
    assert overlapped.forward_s - base.forward_s == pytest.approx(RATES.all_gather_s(wide, 2, 1))
    assert overlapped.backward_s - base.backward_s == pytest.approx(RATES.reduce_scatter_s(wide, 2, 1))


def test_experts_outside_of_tensor_parallelism_send_nothing_more() -> None:
    assert len(pieces(MOE, tp=2, etp=1, ep=2, lora_targets=MLP, sequence_parallel=True, grouped_gemm="legacy")) == 2
    legacy, grouped = (
        pieces(MOE, tp=2, etp=1, ep=2, lora_targets=MLP, sequence_parallel=True, grouped_gemm=kind)[1] for kind in ("legacy", "te")
    )
    assert legacy == grouped


def test_adapters_of_down_projections_see_the_shard_that_these_read() -> None:
    """TP 2, 128 tokens, 64 a rank: kv_down 1024 -> 576; A's 16 columns and the whole rows are gathered."""
    latent = LatentAttention(q_lora_rank=256, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
    arch = replace(ARCH, latent_attention=latent)
    settings = layer_settings(
        TrainingConfig(finetune="lora", lora_rank=16, lora_targets=("linear_kv_down_proj",), tp=2, sequence_parallel=True)
    )
    passes, traffic = adapter_pieces(RATES, arch, settings, DENSE)
    assert passes.forward_s == pytest.approx(RATES.pass_s(64 * 2 * (1024 + 6 * 576)))
    assert traffic.forward_s == pytest.approx(RATES.all_gather_s(64 * 2 * 16, 2, 1) + RATES.all_gather_s(64 * 2 * 576, 2, 1))
