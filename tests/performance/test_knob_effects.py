"""Every knob moves the time of a named configuration, in the direction that its mechanism says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from time_cases import DENSE, DENSE_CONFIG, FOUR_NODES, MOE, ONE_NODE, TWO_NODES, cluster_of, dense, moe

from primus_mcp.inputs.training import Recompute, TrainingConfig
from primus_mcp.projection.parameters import total_parameters
from primus_mcp.projection.performance import PerformanceProjection, project_performance
from primus_mcp.projection.performance.exchange import trained_parameters
from primus_mcp.projection.placement import place

PIPELINE = {"pp": 4, "gbs": 256}


def test_overlapped_gradient_reduction_hides_most_of_it() -> None:
    exposed, hidden = dense(overlap_grad_reduce=False, overlap_param_gather=False), dense(overlap_param_gather=False)
    assert hidden.iteration_s < exposed.iteration_s
    assert exposed.exposed_s["gradients"] == pytest.approx(exposed.communication_s["gradients"])
    assert hidden.exposed_s["gradients"] < exposed.exposed_s["gradients"]


def test_overlapped_parameter_gather_hides_most_of_it() -> None:
    assert dense().exposed_s["parameters"] < dense(overlap_param_gather=False).exposed_s["parameters"]
    assert dense().iteration_s < dense(overlap_param_gather=False).iteration_s


def test_without_distributed_optimizer_every_rank_updates_everything_and_gathers_nothing() -> None:
    plain = dense(use_distributed_optimizer=False, overlap_param_gather=False)
    assert plain.communication_s["parameters"] == 0
    assert plain.communication_s["gradients"] > dense().communication_s["gradients"]
    assert plain.time_breakdown_s["optimizer"] > dense().time_breakdown_s["optimizer"]


def test_fsdp_gathers_parameters_in_every_micro_batch() -> None:
    sharded = {"use_torch_fsdp2": True, "use_distributed_optimizer": False, "gradient_accumulation_fusion": False}
    one, four = dense(**sharded, gbs=8), dense(**sharded, gbs=32)
    assert four.communication_s["parameters"] == pytest.approx(4 * one.communication_s["parameters"])
    assert one.communication_s["parameters"] > dense(gbs=8).communication_s["parameters"]


def test_fsdp_reduces_gradients_in_their_own_dtype_unless_told_otherwise() -> None:
    """Megatron hands torch's fully_shard no mixed-precision policy: a scatter of BF16 gradients takes half of the two BF16 gathers."""
    sharded = {"use_torch_fsdp2": True, "use_distributed_optimizer": False, "gradient_accumulation_fusion": False}
    own, whole = dense(**sharded), dense(**sharded, fsdp_reduce_bytes=4)
    assert own.communication_s["gradients"] == pytest.approx(own.communication_s["parameters"] / 2, rel=0.02)
    assert own.communication_s["gradients"] < whole.communication_s["gradients"]
    assert dense(**sharded, main_grad_bytes=2).communication_s["gradients"] == own.communication_s["gradients"]


def test_loss_fusion_saves_logit_traffic() -> None:
    eager, fused = dense(), dense(cross_entropy_loss_fusion=True, cross_entropy_impl="te")
    native = dense(cross_entropy_loss_fusion=True, cross_entropy_impl="native")
    assert fused.iteration_s < native.iteration_s < eager.iteration_s
    assert fused.time_breakdown_s["output_layer"] == eager.time_breakdown_s["output_layer"]


@pytest.mark.parametrize("recipe", ["delayed", "tensorwise", "mxfp8"])
def test_fp8_beats_bf16_on_a_dense_model(recipe: str) -> None:
    assert dense(fp8="hybrid", fp8_recipe=recipe).iteration_s < 0.85 * dense().iteration_s


def test_scales_by_block_cost_products_some_of_their_rate_on_amd() -> None:
    # kernels timed alone: MXFP8 2,345 and blocks of 128 about 1,400 TFLOP/s where one scale a tensor reaches 2,860 and bf16 1,500
    tensor, mx, blocks = (dense(fp8="hybrid", fp8_recipe=recipe).iteration_s for recipe in ("delayed", "mxfp8", "blockwise"))
    assert tensor < mx < blocks
    assert blocks == pytest.approx(dense().iteration_s, rel=0.15), "blocks of 128 win little over bf16, if anything"


def test_fp8_says_what_of_its_recipe_no_run_validates() -> None:
    assert "0.82" in dict(dense(fp8="e4m3", fp8_recipe="mxfp8").warnings)["fp8_not_validated"]
    assert "alike" in dict(dense(fp8="hybrid").warnings)["fp8_priced_alike"]
    assert not {"fp8_not_validated", "fp8_priced_alike"} & set(dict(dense().warnings))


def test_tensorwise_scaling_pays_for_its_second_read() -> None:
    assert dense(fp8="hybrid", fp8_recipe="delayed").iteration_s < dense(fp8="hybrid", fp8_recipe="tensorwise").iteration_s


def test_fp8_parameter_gather_halves_the_gather_and_drops_the_weight_casts() -> None:
    cast, gathered = dense(fp8="hybrid"), dense(fp8="hybrid", fp8_param_gather=True)
    assert "weight_cast" in cast.time_breakdown_s
    assert "weight_cast" not in gathered.time_breakdown_s
    assert gathered.communication_s["parameters"] < 0.6 * cast.communication_s["parameters"]


def test_delayed_scaling_leaves_legacy_and_turbo_experts_in_bf16_and_runs_te_experts_in_fp8() -> None:
    for kernel in ("legacy", "turbo"):
        assert moe(grouped_gemm=kernel, fp8="hybrid").time_breakdown_s["experts"] == moe(grouped_gemm=kernel).time_breakdown_s["experts"]
    assert moe(grouped_gemm="te", fp8="hybrid").time_breakdown_s["experts"] < moe(grouped_gemm="te").time_breakdown_s["experts"]
    turbo_fp8 = moe(grouped_gemm="turbo", fp8="e4m3", fp8_recipe="tensorwise")
    assert turbo_fp8.time_breakdown_s["experts"] < moe(grouped_gemm="turbo").time_breakdown_s["experts"]


def test_turbo_gemm_under_delayed_scaling_silently_runs_bf16() -> None:
    assert dense(fp8="hybrid", turbo_gemm=True).time_breakdown_s["mlp"] == dense(turbo_gemm=True).time_breakdown_s["mlp"]


def test_deepep_moves_fewer_copies_than_the_library() -> None:
    assert moe(dispatcher="deepep").communication_s["a2a"] < 0.5 * moe().communication_s["a2a"]


def test_forced_balance_sends_fewer_copies_than_learned_routing_under_deepep_only() -> None:
    forced, learned = moe(dispatcher="deepep"), moe(dispatcher="deepep", forced_balance=False)
    assert forced.communication_s["a2a"] < learned.communication_s["a2a"]
    assert moe().communication_s["a2a"] == moe(forced_balance=False).communication_s["a2a"]


def test_sync_free_stages_shorten_a_launch_bound_step_one_by_one() -> None:
    small = {"mbs": 1, "gbs": 64, "dispatcher": "deepep"}
    stages = [moe(**small)] + [moe(**small, sync_free_stage=stage) for stage in (1, 2)]
    stages.append(moe(**small, sync_free_stage=3))
    stalled = [result.time_breakdown_s["host"] for result in stages]
    assert stalled[0] > stalled[1] > stalled[2] > stalled[3]


def test_sync_free_stage_three_walks_worst_case_buffers() -> None:
    kept = {"sync_free_stage": 2, "fused_expert_activation": True}
    two, three = moe(**kept), moe(**{**kept, "sync_free_stage": 3})
    assert three.time_breakdown_s["expert_activation"] == pytest.approx(8 * two.time_breakdown_s["expert_activation"])


def test_target_ep_size_prices_the_exchange_of_a_larger_group() -> None:
    larger = moe(FOUR_NODES, a2a_ep_size=32)
    assert larger.communication_s["a2a"] > moe(FOUR_NODES).communication_s["a2a"]
    assert larger.time_breakdown_s["experts"] == moe(FOUR_NODES).time_breakdown_s["experts"]
    assert "exchange_override" in dict(larger.warnings)


def test_expert_parallelism_costs_exchange_and_saves_weight_traffic() -> None:
    alone, spread = moe(ep=1), moe(ep=8)
    assert alone.communication_s.get("a2a", 0.0) == 0.0
    assert spread.communication_s["a2a"] > 0
    assert alone.time_breakdown_s["experts"] > spread.time_breakdown_s["experts"]
    assert alone.communication_s["gradients"] > spread.communication_s["gradients"]


def test_expert_parallelism_across_nodes_costs_more_than_inside() -> None:
    assert moe(FOUR_NODES, ep=32).communication_s["a2a"] > moe(FOUR_NODES, ep=8).communication_s["a2a"]


def test_expert_tensor_parallelism_adds_traffic() -> None:
    tp = {"tp": 2, "ep": 4, "sequence_parallel": True}
    assert moe(**tp, etp=2).communication_s["tp"] > moe(**tp, etp=1).communication_s["tp"]


def test_tensor_parallelism_narrows_weights_and_pays_for_activations() -> None:
    wide, narrow = dense(gbs=64), dense(tp=8, sequence_parallel=True, gbs=64)
    assert wide.communication_s.get("tp", 0.0) == 0.0
    assert narrow.communication_s["tp"] > 0
    # one rank does 1/8 of every matrix of 8 times as many micro-batches: the same matrix work, less efficiently
    assert narrow.time_breakdown_s["mlp"] > wide.time_breakdown_s["mlp"]
    assert narrow.iteration_s > wide.iteration_s


def test_two_ranks_of_a_mesh_share_one_link() -> None:
    assert dense(tp=2, sequence_parallel=True).communication_s["tp"] > 0.9 * dense(tp=8, sequence_parallel=True).communication_s["tp"] / 4


def test_sequence_parallelism_divides_norms() -> None:
    assert dense(tp=4, sequence_parallel=True).time_breakdown_s["norm"] < dense(tp=4).time_breakdown_s["norm"]


def test_tensor_parallel_overlap_hides_traffic() -> None:
    tp = {"tp": 8, "sequence_parallel": True}
    assert dense(**tp, tp_comm_overlap=True).exposed_s["tp"] < dense(**tp).exposed_s["tp"]


@pytest.mark.parametrize("kind", ["p2p", "all_gather", "a2a"])
def test_context_parallelism_costs_traffic(kind: str) -> None:
    split = dense(cp=4, cp_comm_type=kind)
    assert split.communication_s["cp"] > 0
    assert split.exposed_s["cp"] <= split.communication_s["cp"]
    assert dense().communication_s.get("cp", 0.0) == 0.0


def test_ring_context_parallelism_hides_behind_attention_where_all_gather_does_not() -> None:
    long = replace(DENSE, seq_length=32768)
    ring, gather = (
        project_performance(long, replace(DENSE_CONFIG, cp=4, cp_comm_type=kind), ONE_NODE, gemm_backend="roofline")
        for kind in ("p2p", "all_gather")
    )
    assert ring.exposed_s["cp"] < gather.exposed_s["cp"]


@pytest.mark.parametrize(("nodes", "cp", "tp"), [(1, 4, 1), (1, 2, 1), (4, 8, 4)])
def test_a_ring_sends_to_its_neighbour_over_one_link_of_a_mesh_or_one_nic(nodes: int, cp: int, tp: int) -> None:
    # Each of CP - 1 steps: 8 x 8,192 / CP tokens, keys and values of 8 / TP heads of 128 in bf16; forward once, backward twice; 32 layers.
    cluster = cluster_of(nodes)
    found = dense(cluster, cp=cp, tp=tp, sequence_parallel=tp > 1, mbs=8)
    network, profile = cluster.network, cluster.profile
    link = network.node_bandwidth_bytes_per_s / 7 * profile.link_efficiency
    rate = link if nodes == 1 else network.nic_bandwidth_bytes_per_s * profile.nic_efficiency
    step_s = 8 * 8192 / cp * 2 * 8 / tp * 128 * 2 / rate
    assert found.communication_s["cp"] == pytest.approx(found.micro_batches * 32 * 3 * (cp - 1) * step_s, rel=0.12)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (Recompute(), Recompute(granularity="selective", modules=("core_attn",))),
        (Recompute(granularity="selective", modules=("core_attn",)), Recompute(granularity="full", method="block", num_layers=16)),
        (Recompute(granularity="full", method="block", num_layers=16), Recompute(granularity="full", method="uniform", num_layers=1)),
        (Recompute(granularity="full", layer_ids=(0, 1)), Recompute(granularity="full", layer_ids=(0, 1, 2))),
    ],
)
def test_more_recompute_takes_longer(less: Recompute, more: Recompute) -> None:
    assert dense(recompute=less).iteration_s < dense(recompute=more).iteration_s


def test_uniform_recompute_repeats_every_layer_whatever_its_group_size() -> None:
    one, four = (dense(recompute=Recompute(granularity="full", method="uniform", num_layers=n)) for n in (1, 4))
    assert one.iteration_s == four.iteration_s


def test_full_recompute_adds_a_forward_pass_of_the_layers() -> None:
    none, full = dense(), dense(recompute=Recompute(granularity="full", method="uniform", num_layers=1))
    assert 1.2 < full.iteration_s / none.iteration_s < 1.36


def test_interleaving_shrinks_the_bubble() -> None:
    plain = dense(FOUR_NODES, **PIPELINE)
    interleaved = dense(FOUR_NODES, **PIPELINE, vpp=4, schedule="interleaved", overlap_p2p=True)
    assert interleaved.bubble_ratio < plain.bubble_ratio
    assert interleaved.iteration_s < plain.iteration_s


@pytest.mark.parametrize(
    ("schedule", "vpp"), [("zero-bubble", 1), ("zero-bubble-heuristic", 1), ("zbv-formatted", 2), ("v-half", 2), ("v-min", 2)]
)
def test_split_weight_gradients_shrink_the_bubble_of_few_micro_batches(schedule: str, vpp: int) -> None:
    few = {"pp": 4, "gbs": 64}
    assert dense(FOUR_NODES, **few, schedule=schedule, vpp=vpp).bubble_ratio < dense(FOUR_NODES, **few).bubble_ratio


@pytest.mark.parametrize("pp", [4, 8])
@pytest.mark.parametrize("gbs", [32, 256])
def test_the_busiest_rank_idles_no_more_than_all_do_on_average(pp: int, gbs: int) -> None:
    found = dense(FOUR_NODES, pp=pp, gbs=gbs)
    parts = found.time_breakdown_s
    assert 0 < parts["bubble"] / found.iteration_s <= found.bubble_ratio
    assert sum(parts.values()) == pytest.approx(found.iteration_s)


def test_a_longer_pipeline_has_a_larger_bubble() -> None:
    assert dense(FOUR_NODES, pp=2, gbs=128).bubble_ratio < dense(FOUR_NODES, pp=8, gbs=32).bubble_ratio


def test_blocking_transfers_take_longer_than_overlapped_ones() -> None:
    assert dense(FOUR_NODES, **PIPELINE, overlap_p2p=True).iteration_s < dense(FOUR_NODES, **PIPELINE).iteration_s


def test_a_larger_micro_batch_relieves_a_launch_bound_step() -> None:
    assert moe(mbs=4, gbs=256).tokens_per_s_per_gpu > 1.5 * moe(mbs=1, gbs=256).tokens_per_s_per_gpu
    assert "launch_bound" in dict(moe(mbs=1, gbs=64).warnings)


def test_a_larger_global_batch_amortises_what_runs_once() -> None:
    assert dense(gbs=512).tokens_per_s_per_gpu > dense(gbs=8).tokens_per_s_per_gpu


@pytest.mark.parametrize(
    "knob",
    [
        {"gradient_accumulation_fusion": False},
        {"fused_swiglu": False, "fused_expert_activation": False},
        {"expert_load_imbalance": 1.5},
        {"fused_rope": False},
        {"turbo_attention": True},
        {"flash_attention": False},
    ],
)
def test_each_costs_time(knob: dict[str, object]) -> None:
    assert moe(**knob).iteration_s > moe().iteration_s


@pytest.mark.parametrize(
    "knob",
    [
        {"permute_fusion": True},
        {"fused_router": True},
        {"shared_expert_overlap": True},
        {"main_grad_bytes": 2},
        {"full_graph": True},
    ],
)
def test_each_saves_time(knob: dict[str, object]) -> None:
    assert moe(**knob).iteration_s < moe().iteration_s


def test_overlapped_exchange_hides_transfers_at_the_price_of_launches() -> None:
    large, small = {"mbs": 16, "gbs": 1024}, {"mbs": 1, "gbs": 64}
    assert moe(**large, overlap_moe_a2a=True).iteration_s < moe(**large).iteration_s
    assert moe(**small, overlap_moe_a2a=True).iteration_s > moe(**small).iteration_s


def test_overlapped_exchange_is_felt_in_full_where_no_pair_hides_it() -> None:
    # 2 micro-batches pair once a chunk, 32 pair nearly always.
    few, many = (moe(overlap_moe_a2a=True, mbs=16, gbs=16 * 8 * m) for m in (2, 32))
    plain_few, plain_many = (moe(mbs=16, gbs=16 * 8 * m) for m in (2, 32))

    def felt(found: PerformanceProjection) -> float:
        return found.exposed_s["a2a"] / found.communication_s["a2a"]

    assert felt(plain_few) == felt(plain_many) == pytest.approx(1)
    assert 0.2 < felt(many) < 0.25 < 0.5 < felt(few) < 0.65
    assert sum(few.time_breakdown_s.values()) == pytest.approx(few.iteration_s)


def test_lora_has_no_weight_gradients_and_a_small_optimizer_step() -> None:
    full, lora = dense(), dense(finetune="lora", lora_rank=16, lora_targets=("linear_qkv", "linear_proj"))
    assert 0.6 < lora.iteration_s / full.iteration_s < 0.8
    assert lora.communication_s["gradients"] < 0.05 * full.communication_s["gradients"]


def test_lower_precision_states_make_the_optimizer_step_shorter() -> None:
    small = dense(main_param_bytes=2, exp_avg_bytes=2, exp_avg_sq_bytes=2, main_grad_bytes=2)
    assert small.time_breakdown_s["optimizer"] < dense().time_breakdown_s["optimizer"]


def test_a_dense_model_ignores_every_moe_knob() -> None:
    knobs = {"dispatcher": "deepep", "sync_free_stage": 2, "permute_fusion": True, "forced_balance": True, "grouped_gemm": "turbo"}
    assert dense(**knobs).iteration_s == dense().iteration_s


def test_data_parallel_groups_follow_their_own_replicas() -> None:
    result = moe(TWO_NODES, tp=2, ep=4, etp=1, sequence_parallel=True)
    assert (result.dp, result.expert_dp) == (8, 4)


def test_windowed_layers_attend_less_unless_turbo_attention_ignores_the_window() -> None:
    windowed = replace(DENSE, sliding_window=1024, windowed_layers=(True,) * DENSE.num_layers)
    config = TrainingConfig(mbs=1, gbs=64)
    times = {
        (name, turbo): project_performance(arch, replace(config, turbo_attention=turbo), ONE_NODE, gemm_backend="roofline")
        for name, arch in (("full", DENSE), ("window", windowed))
        for turbo in (False, True)
    }
    core = {key: result.time_breakdown_s["attention_core"] for key, result in times.items()}
    assert core["window", False] < 0.5 * core["full", False]
    assert core["window", True] == core["full", True]


def test_a_tied_embedding_adds_a_sum_between_first_and_last_stage_unless_it_is_frozen() -> None:
    tied = replace(MOE, tied_embeddings=True)
    config = TrainingConfig(mbs=1, gbs=64, pp=2, ep=8)
    results = [project_performance(arch, config, TWO_NODES, gemm_backend="roofline") for arch in (MOE, tied)]
    assert results[1].communication_s["gradients"] > results[0].communication_s["gradients"]
    lora = replace(config, finetune="lora", lora_rank=16)
    frozen = [project_performance(arch, lora, TWO_NODES, gemm_backend="roofline") for arch in (MOE, tied)]
    assert frozen[1].communication_s["gradients"] == frozen[0].communication_s["gradients"]
    assert "lora_on_experts" in {code for code, _ in frozen[0].warnings}


def test_the_embedding_that_prediction_depths_copy_is_trained_and_summed_with_the_first_stage_like_a_tied_one() -> None:
    deeper = replace(MOE, mtp_num_layers=1)
    config = TrainingConfig(mbs=1, gbs=64, pp=2, ep=8)
    placement = place(deeper, config, TWO_NODES.world_size)
    held = [trained_parameters(deeper, placement.of_rank(rank), 1, 1, 1, None).total for rank in range(2)]
    matrix = deeper.padded_vocab_size(1) * deeper.hidden_size
    padding = 2 * (matrix - deeper.vocab_size * deeper.hidden_size)
    assert sum(held) == total_parameters(deeper, include_mtp=True) + padding + matrix
    untied, tied = (
        project_performance(replace(deeper, tied_embeddings=tied), config, TWO_NODES, gemm_backend="roofline") for tied in (False, True)
    )
    assert untied.communication_s["gradients"] == tied.communication_s["gradients"]


def test_multi_token_prediction_adds_a_layer_and_a_head() -> None:
    deeper = replace(DENSE, mtp_num_layers=1)
    config = TrainingConfig(mbs=1, gbs=64)
    plain, mtp = (project_performance(arch, config, ONE_NODE, gemm_backend="roofline") for arch in (DENSE, deeper))
    assert mtp.time_breakdown_s["output_layer"] == pytest.approx(2 * plain.time_breakdown_s["output_layer"])
    assert mtp.model_flops > plain.model_flops
