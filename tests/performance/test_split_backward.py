"""What a split backward defers: products of linears and what the host launches for them, and what it loses by deferring them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from time_cases import DENSE, DENSE_CONFIG, FOUR_NODES, MOE, MOE_CONFIG, ONE_NODE, dense

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.layout import Chunk
from primus_mcp.inputs.training import GroupedGemm, Recompute, TrainingConfig
from primus_mcp.projection.layers.build import decoder_layer, embedding, head
from primus_mcp.projection.layers.record import PartCost, joined_s
from primus_mcp.projection.layers.settings import layer_settings
from primus_mcp.projection.performance.projection import rates_for
from primus_mcp.projection.performance.stages import StageCost, stage_cost

RATES = rates_for(ONE_NODE, "roofline")
TWO_LAYERS = Chunk(layers=(0, 1), embedding=False, loss=False, mtp_layers=0)


def _stage(arch: Architecture, config: TrainingConfig, recompute: Recompute | None = None) -> StageCost:
    return stage_cost(RATES, arch, layer_settings(config), TWO_LAYERS, recompute or Recompute())


def _layer(config: TrainingConfig, arch: Architecture = MOE) -> PartCost:
    return decoder_layer(RATES, arch, layer_settings(config), moe=arch.is_moe, windowed=False)


def test_weight_gradients_take_part_of_the_launches_of_a_backward() -> None:
    kinds: tuple[GroupedGemm, ...] = ("legacy", "te", "turbo", "sequential")
    for kind, turbo, graphed in product(kinds, (False, True), ((), ("moe_router",))):
        cost = _layer(replace(MOE_CONFIG, grouped_gemm=kind, sync_free_stage=2 * turbo, graphed=graphed)).host
        assert 0 < cost.weight_s < cost.backward_s / 2
    assert (
        head(RATES, DENSE, layer_settings(DENSE_CONFIG)).host.weight_s
        > 0
        == embedding(RATES, DENSE, layer_settings(DENSE_CONFIG)).host.weight_s
    )


def test_a_loop_over_experts_launches_half_of_its_backward_for_weights() -> None:
    few, many = (_layer(replace(MOE_CONFIG, ep=ep, grouped_gemm="te")).host for ep in (8, 4))
    assert many.weight_s - few.weight_s == pytest.approx((many.backward_s - few.backward_s) / 2)


def test_frozen_weights_and_graphs_defer_no_launches() -> None:
    assert _layer(replace(DENSE_CONFIG, finetune="lora", lora_rank=16), DENSE).host.weight_s == 0
    assert _layer(replace(DENSE_CONFIG, graphed=("attn", "mlp")), DENSE).host.weight_s == 0


def test_the_weight_gradient_of_the_router_stays_with_the_input_gradient() -> None:
    assert all(piece.weight_s == 0 for piece in _layer(MOE_CONFIG).pieces if piece.name == "router")


def test_where_the_host_holds_a_backward_up_it_holds_up_the_input_gradient_more() -> None:
    """4,096 tokens of narrow experts are bound by launches, of which weight gradients have few."""
    bound, free = replace(MOE_CONFIG, mbs=1), replace(MOE_CONFIG, mbs=1, full_graph=True)
    kernels, cost = _stage(MOE, free), _stage(MOE, bound)
    assert cost.weight_s / kernels.weight_s < cost.backward_s / kernels.backward_s
    layer = _layer(bound)
    whole_s = joined_s(2 * (layer.backward_s + layer.weight_s), 2 * layer.host.backward_s)
    assert cost.backward_s + cost.weight_s == pytest.approx(whole_s)


def test_without_a_host_the_gradients_take_their_kernels() -> None:
    config, layer = replace(MOE_CONFIG, full_graph=True), _layer(replace(MOE_CONFIG, full_graph=True))
    cost = _stage(MOE, config)
    assert (cost.backward_s, cost.weight_s) == pytest.approx((2 * layer.backward_s, 2 * layer.weight_s))


def test_a_replay_lengthens_the_input_gradient_alone_where_the_gpu_decides() -> None:
    config = replace(MOE_CONFIG, full_graph=True)
    plain, again = _stage(MOE, config), _stage(MOE, config, Recompute(granularity="full", method="uniform", num_layers=1))
    assert again.weight_s == pytest.approx(plain.weight_s)
    assert again.backward_s == pytest.approx(plain.backward_s + plain.forward_s)


@pytest.mark.parametrize("distributed", [True, False])
def test_a_split_backward_hides_no_data_parallel_traffic(distributed: bool) -> None:
    def exposed(schedule: str, *, overlap: bool) -> float:
        found = dense(
            FOUR_NODES,
            pp=2,
            gbs=256,
            schedule=schedule,
            use_distributed_optimizer=distributed,
            overlap_grad_reduce=overlap,
            overlap_param_gather=overlap and distributed,
        )
        return found.exposed_s["gradients"] + found.exposed_s.get("parameters", 0.0)

    assert exposed("1f1b", overlap=True) < exposed("1f1b", overlap=False)
    assert exposed("zero-bubble", overlap=True) == exposed("zero-bubble", overlap=False) == pytest.approx(exposed("1f1b", overlap=False))


def test_linears_of_turbo_add_gradients_in_the_product_under_a_split_backward_only() -> None:
    te, turbo = (layer_settings(replace(DENSE_CONFIG, pp=2, schedule="zero-bubble", turbo_gemm=on)) for on in (False, True))
    assert te == turbo
    plain = [_layer(replace(DENSE_CONFIG, turbo_gemm=on), DENSE).weight_s for on in (False, True)]
    assert plain[0] < plain[1]
