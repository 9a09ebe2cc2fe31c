"""Laws that hold for any legal configuration, and closed forms worked out by hand."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from time_cases import DENSE, DENSE_CONFIG, FOUR_NODES, MOE, MOE_CONFIG, ONE_NODE, cluster_of, dense, moe

from primus_mcp.errors import InputError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import Recompute, TrainingConfig
from primus_mcp.projection.layers.settings import layer_settings
from primus_mcp.projection.performance import PerformanceProjection, project_performance
from primus_mcp.projection.performance.projection import rates_for
from primus_mcp.projection.performance.stages import stage_cost
from primus_mcp.projection.placement import place_chunks

CASES = 150


def _random_config(dice: random.Random, *, experts: bool) -> TrainingConfig:
    """A configuration that may or may not fit together: `place` and the simulator refuse what does not."""
    tp, pp, cp = dice.choice([1, 1, 2, 4, 8]), dice.choice([1, 1, 2, 4]), dice.choice([1, 1, 2])
    vpp = dice.choice([1, 1, 2]) if pp > 1 else 1
    schedule: Any = dice.choice(["1f1b", "zero-bubble"]) if vpp == 1 else dice.choice(["interleaved", "v-half", "zbv-formatted"])
    grouped: Any = dice.choice(["legacy", "te", "turbo", "sequential"])
    recompute = dice.choice(
        [
            Recompute(),
            Recompute(granularity="selective", modules=("core_attn", "moe")),
            Recompute(granularity="full", method="block", num_layers=dice.randint(1, 4)),
            Recompute(granularity="full", method="uniform", num_layers=1),
        ]
    )
    distributed = dice.random() < 0.7
    return TrainingConfig(
        tp=tp,
        pp=pp,
        cp=cp,
        vpp=vpp,
        ep=dice.choice([1, 2, 8, 16]) if experts else 1,
        etp=dice.choice([1, tp]) if experts else 1,
        mbs=dice.choice([1, 2, 8]),
        gbs=dice.choice([64, 256, 1024]),
        schedule=schedule,
        sequence_parallel=tp > 1 and dice.random() < 0.8,
        cp_comm_type=dice.choice(["p2p", "all_gather", "a2a"]),
        overlap_p2p=dice.random() < 0.5,
        use_distributed_optimizer=distributed,
        use_torch_fsdp2=not distributed and pp == 1 and not experts,
        overlap_grad_reduce=dice.random() < 0.5,
        overlap_param_gather=distributed and dice.random() < 0.5,
        main_grad_bytes=dice.choice([2, 4]),
        recompute=recompute,
        fp8=dice.choice([None, "hybrid"]),
        fp8_recipe=dice.choice(["delayed", "tensorwise"]),
        turbo_gemm=dice.random() < 0.3,
        cross_entropy_loss_fusion=dice.random() < 0.5,
        dispatcher=dice.choice(["alltoall", "deepep"]),
        sync_free_stage=dice.choice([0, 1, 2, 3]) if grouped == "turbo" else dice.choice([0, 1]),
        grouped_gemm=grouped,
        forced_balance=dice.random() < 0.5,
        shared_expert_overlap=dice.random() < 0.3,
        overlap_moe_a2a=dice.random() < 0.2,
        full_graph=dice.random() < 0.2,
    )


def _cases() -> Iterator[tuple[Architecture, TrainingConfig, Cluster]]:
    dice = random.Random(20260101)
    for index in range(CASES):
        experts = index % 2 == 0
        cluster = cluster_of(dice.choice([1, 2, 4]), dice.choice(["mi300x", "mi355x"]))
        yield MOE if experts else DENSE, _random_config(dice, experts=experts), cluster


def _legal() -> list[tuple[Architecture, TrainingConfig, Cluster, PerformanceProjection]]:
    found = []
    for arch, config, cluster in _cases():
        try:
            found.append((arch, config, cluster, project_performance(arch, config, cluster, gemm_backend="roofline")))
        except InputError:
            continue
    return found


LEGAL = _legal()


def _again(arch: Architecture, config: TrainingConfig, cluster: Cluster) -> PerformanceProjection:
    return project_performance(arch, config, cluster, gemm_backend="roofline")


def test_the_random_configurations_are_many_enough_to_mean_something() -> None:
    assert len(LEGAL) > CASES // 4
    assert any(config.pp > 1 for _, config, _, _ in LEGAL)


def test_the_breakdown_sums_to_the_iteration_and_holds_no_negative_part() -> None:
    for _, config, _, result in LEGAL:
        assert sum(result.time_breakdown_s.values()) == pytest.approx(result.iteration_s, rel=1e-9), config
        assert min(result.time_breakdown_s.values()) > -1e-9 * result.iteration_s, config


def test_exposed_communication_never_exceeds_the_whole() -> None:
    for _, config, _, result in LEGAL:
        assert set(result.exposed_s) == set(result.communication_s)
        for name, exposed in result.exposed_s.items():
            assert 0 <= exposed <= result.communication_s[name] * (1 + 1e-9), (name, config)


def test_no_configuration_reaches_three_quarters_of_the_peak() -> None:
    for _, config, _, result in LEGAL:
        assert 0 < result.mfu < 0.75, config


def test_one_pipeline_stage_has_no_bubble() -> None:
    for _, config, _, result in LEGAL:
        if config.pp == 1:
            assert result.bubble_ratio == 0
            assert "bubble" not in result.time_breakdown_s
            assert result.communication_s["pp"] == 0


def test_parallelism_of_one_carries_no_traffic() -> None:
    for _, config, _, result in LEGAL:
        for name, degree in (("tp", max(config.tp, config.etp)), ("cp", config.cp), ("a2a", config.ep)):
            assert degree > 1 or result.communication_s.get(name, 0.0) == 0, (name, config)


@pytest.mark.parametrize("field", ["node_bandwidth_bytes_per_s", "nic_bandwidth_bytes_per_s", "cluster_bandwidth_bytes_per_s"])
def test_more_bandwidth_is_never_slower(field: str) -> None:
    for arch, config, cluster, result in LEGAL[::3]:
        faster = replace(cluster, network=replace(cluster.network, **{field: 2 * getattr(cluster.network, field)}))
        assert _again(arch, config, faster).iteration_s <= result.iteration_s * (1 + 1e-9), config


@pytest.mark.parametrize("field", ["node_latency_s", "nic_latency_s", "cluster_latency_s"])
def test_more_latency_is_never_faster(field: str) -> None:
    for arch, config, cluster, result in LEGAL[::3]:
        slower = replace(cluster, network=replace(cluster.network, **{field: 10 * getattr(cluster.network, field)}))
        assert _again(arch, config, slower).iteration_s >= result.iteration_s * (1 - 1e-9), config


def test_a_slower_clock_is_never_faster() -> None:
    for arch, config, cluster, result in LEGAL[::3]:
        assert _again(arch, config, replace(cluster, clock_ratio=0.7)).iteration_s > result.iteration_s, config


def test_the_same_input_gives_the_same_answer() -> None:
    arch, config, cluster, result = LEGAL[0]
    assert _again(arch, config, cluster) == result


def _uniform(layers: int) -> Architecture:
    """A dense model in which embedding and head are next to nothing."""
    return replace(DENSE, num_layers=layers, moe_layers=(False,) * layers, vocab_size=128)


def test_uniform_stages_take_micro_batches_plus_stages_minus_one_and_the_hops() -> None:
    pp, micro_batches = 4, 16
    arch, config = _uniform(32), replace(DENSE_CONFIG, pp=pp, gbs=8 * micro_batches, overlap_p2p=True)
    result = _again(arch, config, FOUR_NODES)
    rates, settings = rates_for(FOUR_NODES, "roofline"), layer_settings(config)
    middle = stage_cost(rates, arch, settings, place_chunks(arch, config)[1], config.recompute)
    closed_form = (micro_batches + pp - 1) * middle.total_s
    hop = 2 * (pp - 1 + micro_batches - 1 - (micro_batches - 1 + pp - 1) // pp)
    size_bytes = arch.seq_length * arch.hidden_size * 2
    expected = closed_form + hop * rates.point_to_point_s(size_bytes, 8, pp)
    assert max(result.rank_end_s) == pytest.approx(expected, rel=0.01)


def test_one_stage_takes_its_micro_batches_one_after_another() -> None:
    result = dense(gbs=64)
    arch, config = DENSE, replace(DENSE_CONFIG, gbs=64)
    stage = stage_cost(rates_for(ONE_NODE, "roofline"), arch, layer_settings(config), place_chunks(arch, config)[0], config.recompute)
    assert result.micro_batches == 8
    assert result.rank_end_s[0] == pytest.approx(8 * stage.total_s)


def test_tokens_per_second_follow_from_batch_and_iteration() -> None:
    result = dense(gbs=64)
    assert result.tokens_per_s_per_gpu == pytest.approx(64 * 8192 / result.iteration_s / 8)


def test_model_flops_of_a_dense_model_are_six_per_active_weight_and_token_plus_causal_attention() -> None:
    layer = 4096 * (32 + 2 * 8 + 32) * 128 + 3 * 4096 * 14336
    weights = 32 * layer + 128256 * 4096
    attention = 32 * 3 * 2 * (8192**2 / 2) * 32 * 2 * 128
    assert dense(gbs=64).model_flops == pytest.approx(64 * (6 * weights * 8192 + attention))


def test_model_flops_of_experts_count_top_k_shared_and_router() -> None:
    attention = 2048 * (2 * 32 + 2 * 4) * 128
    layer = attention + 3 * 2048 * (8 * 768 + 768) + 2048 * 128
    weights = 48 * layer + 131072 * 2048
    core = 48 * 3 * 2 * (4096**2 / 2) * 32 * 2 * 128
    assert moe(gbs=256).model_flops == pytest.approx(256 * (6 * weights * 4096 + core))


def test_recompute_does_not_count_as_model_flops() -> None:
    full = Recompute(granularity="full", method="uniform", num_layers=1)
    assert dense(recompute=full).model_flops == dense().model_flops


def test_mfu_is_quoted_against_the_precision_of_most_gemms() -> None:
    assert dense().gemm_precision == "bf16"
    assert dense(fp8="hybrid").gemm_precision == "fp8"
    assert MOE.experts is not None
    wide = replace(MOE, experts=replace(MOE.experts, expert_ffn_hidden_size=4 * 768))
    config = replace(MOE_CONFIG, fp8="hybrid")
    assert _again(wide, replace(config, grouped_gemm="legacy"), ONE_NODE).gemm_precision == "bf16"
    assert _again(wide, replace(config, grouped_gemm="te"), ONE_NODE).gemm_precision == "fp8"


def test_the_slowest_rank_decides_an_uneven_layout() -> None:
    even = replace(DENSE_CONFIG, pp=4, gbs=256, pipeline_layout="Et*8|t*8|t*8|t*8L")
    uneven = replace(even, pipeline_layout="Et*5|t*13|t*8|t*6L")
    assert _again(DENSE, uneven, FOUR_NODES).iteration_s > 1.15 * _again(DENSE, even, FOUR_NODES).iteration_s


def test_twice_the_nodes_and_batch_keep_the_throughput_of_each_gpu_within_a_tenth() -> None:
    assert moe(cluster_of(2), gbs=512).tokens_per_s_per_gpu == pytest.approx(moe(gbs=256).tokens_per_s_per_gpu, rel=0.1)


def test_host_work_that_goes_to_zero_leaves_the_gpu_time() -> None:
    quick = replace(ONE_NODE, profile=replace(ONE_NODE.profile, launch_s=0.0))
    config = replace(MOE_CONFIG, grouped_gemm="turbo", dispatcher="deepep", sync_free_stage=3, mbs=1, gbs=64)
    assert _again(MOE, config, quick).time_breakdown_s.get("host", 0.0) == pytest.approx(0, abs=1e-12)
