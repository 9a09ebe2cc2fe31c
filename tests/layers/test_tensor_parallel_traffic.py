"""Traffic of tensor parallelism: what hides beside which GEMM, and that sequence parallelism costs no more than its extra all-gather."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from architecture_cases import decoder
from counting_rates import counting_rates

from primus_mcp.inputs.architecture import LatentAttention
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.constants import TIME
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.layers.build import decoder_layer, head
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import Piece
from primus_mcp.projection.layers.settings import layer_settings
from primus_mcp.projection.layers.tensor_parallel import tensor_parallel
from primus_mcp.projection.ops.gemm import RooflineGemm

GPT = decoder(layers=2, hidden=4096, ffn=14336, heads=32, groups=8, vocab=128000, seq=4096, name="gqa")
LATENT = LatentAttention(q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
SIZE_BYTES = 4096 * 4096 * 2
MESH, SWITCH = "mi355x", "b200"


def _rates(gpu: str) -> Rates:
    cluster = make_cluster(gpu)
    return Rates(cluster, RooflineGemm(cluster))


def _block(gpu: str, reader: Piece, closer: Piece, **config: Any) -> Piece:
    settings = layer_settings(TrainingConfig(**{"tp": 2, "sequence_parallel": True, **config}))
    return tensor_parallel(_rates(gpu), GPT, settings, (reader,), closer)[0]


def _linear(seconds: float) -> Piece:
    return Piece(name="mlp", forward_s=seconds, backward_s=seconds, weight_s=seconds)


def _collectives(gpu: str) -> tuple[float, float]:
    rates = _rates(gpu)
    return rates.all_gather_s(SIZE_BYTES, 2, 1), rates.reduce_scatter_s(SIZE_BYTES, 2, 1)


@pytest.mark.parametrize("gpu", [MESH, SWITCH])
def test_what_runs_beside_a_gemm_is_felt_in_part_and_what_outlasts_it_whole(gpu: str) -> None:
    gather, scatter = _collectives(gpu)
    felt = TIME["tp_regather"]
    long, short = _linear(100 * gather), _linear(gather / 4)
    assert _block(gpu, long, long).backward_s == pytest.approx(gather + felt * (gather + scatter))
    assert _block(gpu, short, long).backward_s == pytest.approx(gather + gather + scatter - (1 - felt) * 2 * gather / 4)
    alone = _block(gpu, long, long, sequence_parallel=False)
    assert [alone.forward_s, alone.backward_s] == pytest.approx([gather + scatter, felt * (gather + scatter)])


@pytest.mark.parametrize("gpu", [MESH, SWITCH])
@pytest.mark.parametrize("gemm", [0.0, 0.1, 0.7, 1.0, 1.5, 3.0, 100.0])
def test_a_block_with_sequence_parallelism_is_slower_by_no_more_than_one_all_gather(gpu: str, gemm: float) -> None:
    """Backward, with G an all-gather, S a reduce-scatter, G + S an all-reduce, g either GEMM, and c of a hidden second felt:
    with 2 G + S - (1 - c) (min(G, g) + min(S, g)), without G + S - (1 - c) min(G + S, g). The difference is
    G - (1 - c) (min(G, g) + min(S, g) - min(G + S, g)), whose bracket lies between 0 and min(G, S): between c G and G.
    """
    gather, _ = _collectives(gpu)
    linear = _linear(gemm * gather)
    with_, without = (_block(gpu, linear, linear, sequence_parallel=on) for on in (True, False))
    assert with_.forward_s == pytest.approx(without.forward_s)
    assert with_.backward_total_s - without.backward_total_s == pytest.approx(gather)
    assert TIME["tp_regather"] * gather * (1 - 1e-9) <= with_.backward_s - without.backward_s <= gather * (1 + 1e-9)


@pytest.mark.parametrize("gpu", [MESH, SWITCH])
@pytest.mark.parametrize("latent", [None, LATENT])
@pytest.mark.parametrize("tp", [2, 8])
def test_a_layer_with_sequence_parallelism_is_slower_by_no_more_than_the_all_gathers_of_its_two_blocks(
    gpu: str, latent: LatentAttention | None, tp: int
) -> None:
    arch, rates = replace(GPT, latent_attention=latent), _rates(gpu)
    times = [
        decoder_layer(rates, arch, layer_settings(TrainingConfig(tp=tp, sequence_parallel=on)), moe=False, windowed=False)
        for on in (True, False)
    ]
    with_, without = (part.forward_s + part.backward_s + part.weight_s for part in times)
    assert with_ - without <= 2 * rates.all_gather_s(SIZE_BYTES, tp, 1) * (1 + 1e-9)


def test_frozen_weights_gather_no_input_again_and_hide_nothing() -> None:
    gather, scatter = _collectives(MESH)
    frozen = replace(_linear(100 * gather), weight_s=0.0)
    found = _block(MESH, frozen, frozen, finetune="lora", lora_rank=16)
    assert found.backward_s == found.backward_total_s == pytest.approx(gather + scatter)


def test_user_buffers_hide_no_more_than_the_gemm_they_weave_into_and_nothing_without_sequence_parallelism() -> None:
    gather, scatter = _collectives(MESH)
    long, short = _linear(100 * gather), _linear(gather / 4)
    assert _block(MESH, long, long, tp_comm_overlap=True).forward_s == pytest.approx((gather + scatter) * (1 - TIME["tp_overlap"]))
    assert _block(MESH, short, short, tp_comm_overlap=True).forward_s == pytest.approx(gather + scatter - 2 * gather / 4)
    assert _block(MESH, long, long, tp_comm_overlap=True, sequence_parallel=False) == _block(MESH, long, long, sequence_parallel=False)


def test_the_head_reads_the_whole_hidden_state_and_sums_nothing_in_its_forward_pass() -> None:
    rates = _rates(MESH)
    gather, scatter = _collectives(MESH)
    for on, forward, backward in ((True, gather, gather + scatter), (False, 0.0, gather + scatter)):
        part = head(rates, GPT, layer_settings(TrainingConfig(tp=2, sequence_parallel=on)))
        piece = next(p for p in part.pieces if p.name == "tp")
        assert [piece.forward_total_s, piece.backward_total_s] == pytest.approx([forward, backward])


@pytest.mark.parametrize(
    ("recipe", "inputs", "gradients"),
    [("delayed", 1.0, 1.0), ("tensorwise", 1.0, 1.0), ("mxfp8", 1 + 1 / 32, 2 + 2 / 32), ("blockwise", 1 + 4 / 128, 2 + 8 / 128)],
)
def test_linears_in_fp8_gather_what_they_multiply_and_sum_in_bf16(recipe: Any, inputs: float, gradients: float) -> None:
    """Scales: none a tensor, one byte for 32 elements, four for 128; an output gradient with block scales comes in both directions."""
    rates, elements = counting_rates(), 4096 * 4096
    settings = layer_settings(TrainingConfig(tp=8, sequence_parallel=True, fp8="hybrid", fp8_recipe=recipe))
    piece = tensor_parallel(rates, GPT, settings, (_linear(1.0),), _linear(1.0))[0]
    each = 4 if recipe == "tensorwise" else 0  # the maximum, before a cast
    assert piece.forward_total_s == pytest.approx(elements * (inputs + 2) + each)
    assert piece.backward_total_s == pytest.approx(elements * (gradients + inputs + 2) + each)
    assert next(p for p in head(rates, GPT, settings).pieces if p.name == "tp").forward_total_s == 2 * elements, "the head is BF16"


def test_fewer_query_groups_than_ranks_gather_the_whole_fused_output_and_keep_one_key_each() -> None:
    rates, ungrouped = counting_rates(), counting_rates()
    settings = layer_settings(TrainingConfig(tp=16, sequence_parallel=True, fused_rope=True))
    decoder_layer(rates, GPT, settings, moe=False, windowed=False)
    decoder_layer(ungrouped, replace(GPT, num_query_groups=16), settings, moe=False, windowed=False)
    whole = 2 * 4096 * (32 + 2 * 8) * 128
    added = Counter(rates.transfers) - Counter(ungrouped.transfers)
    assert added == Counter([("all_gather", whole), ("reduce_scatter", whole)])
    assert (4096, (32 + 2 * 8) * 128 / 16, 4096) in rates.products, "the weight is split evenly"
    assert 4096 * (2 + 1) * 128 * TIME["rope.fused"] in rates.passed, "two query heads and one key"
