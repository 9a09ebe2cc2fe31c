"""A knob owns every trainer key that must change with it, and only those."""

from __future__ import annotations

from typing import Any

import pytest
from space_cases import MODELS, make_workload, nodes

from primus_mcp.inputs.layout import parse_layout
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.knobs import TrialConfig, knob_values
from primus_mcp.space.legality import check_legality
from primus_mcp.space.trainer_keys import resolve, trainer_keys


def keys(workload: Workload, **knobs: Any) -> dict[str, Any]:
    return trainer_keys(TrialConfig(**knobs), workload)


@pytest.mark.parametrize("model", MODELS)
def test_the_empty_trial_has_no_keys_and_is_the_baseline(model: str) -> None:
    workload = make_workload(model)
    assert keys(workload) == {}
    assert resolve(workload, TrialConfig()) is workload.baseline


@pytest.mark.parametrize("model", MODELS)
def test_setting_every_knob_to_what_it_is_changes_nothing(model: str) -> None:
    workload = make_workload(model)
    own = {name: value for name, value in knob_values(workload.baseline).items() if value is not None}
    own = {name: value for name, value in own.items() if name not in ("enable_zero_bubble", "use_turbo_deepep")} | {"fp8": "none"}
    assert resolve(workload, TrialConfig.model_validate(own)) == workload.baseline


def test_degrees_and_batches_are_their_own_keys() -> None:
    changed = keys(make_workload("moe"), tp=2, ep=4, expert_tensor_parallel_size=1, mbs=4, gbs=512)
    assert changed == {
        "tensor_model_parallel_size": 2,
        "expert_model_parallel_size": 4,
        "expert_tensor_parallel_size": 1,
        "micro_batch_size": 4,
        "global_batch_size": 512,
    }


def test_an_even_depth_sets_virtual_stages_and_an_uneven_one_a_layout() -> None:
    workload = make_workload("dense")
    assert keys(workload, pp=4, vpp=2) == {"pipeline_model_parallel_size": 4, "num_virtual_stages_per_pipeline_rank": 2}
    uneven = keys(workload, pp=5)
    assert uneven["pipeline_model_parallel_size"] == 5
    chunks = parse_layout(uneven["pipeline_model_parallel_layout"])
    assert len(chunks) == 5
    assert sum(len(chunk.layers) for chunk in chunks) == 32


def test_a_new_depth_clears_every_other_way_of_splitting_layers() -> None:
    workload = make_workload(
        "dense", pipeline_model_parallel_size=2, pipeline_model_parallel_layout="Et*8|t*8|t*8|t*8L", microbatch_group_size_per_vp_stage=4
    )
    changed = keys(workload, pp=4)
    assert changed["pipeline_model_parallel_layout"] is None
    assert changed["num_virtual_stages_per_pipeline_rank"] == 2
    assert changed["microbatch_group_size_per_vp_stage"] is None
    assert resolve(workload, TrialConfig(pp=1)).vpp == 1


def test_a_layout_of_the_workload_survives_trials_that_keep_its_depth() -> None:
    workload = make_workload("dense", pipeline_model_parallel_size=4, pipeline_model_parallel_layout="Et*9|t*8|t*8|t*7L")
    assert resolve(workload, TrialConfig(pp=4, mbs=1)).pipeline_layout == "Et*9|t*8|t*8|t*7L"


@pytest.mark.parametrize(
    ("knob", "vpp", "algorithm", "schedule"),
    [
        ("zerobubble", 1, "zero-bubble", "zero-bubble"),
        ("zerobubble-heuristic", 1, "zero-bubble-heuristic", "zero-bubble-heuristic"),
        ("zbv-formatted", 2, "zbv-formatted", "zbv-formatted"),
        ("zbv-greedy-half", 2, "v-half", "v-half"),
        ("zbv-greedy-min", 2, "v-min", "v-min"),
    ],
)
def test_a_schedule_turns_the_primus_pipeline_on_with_all_it_needs(knob: str, vpp: int, algorithm: str, schedule: str) -> None:
    workload = make_workload("dense", gradient_accumulation_fusion=False, eval_iters=32)
    changed = keys(workload, pp=4, vpp=vpp, pp_schedule=knob)
    expected = {
        "patch_primus_pipeline": True,
        "pp_algorithm": algorithm,
        "overlap_grad_reduce": False,
        "overlap_param_gather": False,
        "gradient_accumulation_fusion": True,
        "eval_iters": 0,
    }
    assert expected.items() <= changed.items()
    assert resolve(workload, TrialConfig(pp=4, vpp=vpp, pp_schedule=knob)).schedule == schedule  # type: ignore[arg-type]


def test_enable_zero_bubble_picks_the_schedule_of_the_virtual_stages() -> None:
    workload = make_workload("dense")
    assert resolve(workload, TrialConfig(pp=4, enable_zero_bubble=True)).schedule == "zero-bubble"
    assert resolve(workload, TrialConfig(pp=4, vpp=2, enable_zero_bubble=True)).schedule == "zbv-formatted"
    assert resolve(workload, TrialConfig(pp=4, vpp=2, pp_schedule="auto")).schedule == "interleaved"


def test_a_patched_baseline_follows_its_virtual_stages() -> None:
    workload = make_workload("dense", patch_primus_pipeline=True, pp_algorithm="1f1b", pipeline_model_parallel_size=4)
    assert keys(workload, vpp=2)["pp_algorithm"] == "1f1b-interleaved"
    assert keys(workload, pp=1)["patch_primus_pipeline"] is False


def test_recompute_modes_write_complete_and_consistent_keys() -> None:
    full = make_workload("dense", recompute_granularity="full", recompute_method="uniform", recompute_num_layers=4)
    assert keys(full, recompute_granularity="none") == {
        "recompute_granularity": None,
        "recompute_method": None,
        "recompute_num_layers": None,
    }
    selective = resolve(full, TrialConfig(recompute_granularity="selective")).recompute
    assert (selective.granularity, selective.method, selective.num_layers) == ("selective", None, None)
    inherited = resolve(full, TrialConfig(recompute_num_layers=2)).recompute
    assert (inherited.method, inherited.num_layers) == ("uniform", 2)
    fresh = resolve(make_workload("dense"), TrialConfig(pp=4, recompute_granularity="full")).recompute
    assert (fresh.method, fresh.num_layers) == ("block", 8)


def test_a_baseline_of_full_block_zero_recomputes_nothing_until_a_trial_asks_for_layers() -> None:
    workload = make_workload("dense", recompute_granularity="full", recompute_method="block", recompute_num_layers=0)
    assert workload.baseline.recompute.granularity == "none"
    assert resolve(workload, TrialConfig(recompute_num_layers=5)).recompute.num_layers == 5
    assert resolve(workload, TrialConfig(recompute_granularity="full")).recompute.num_layers == 32


def test_global_layer_ids_survive_a_new_depth() -> None:
    workload = make_workload("dense", recompute_granularity="full", recompute_layer_ids="0,3,31", pipeline_model_parallel_size=4)
    assert resolve(workload, TrialConfig(pp=8, recompute_granularity="full")).recompute.layer_ids == (0, 3, 31)
    counted = resolve(workload, TrialConfig(recompute_num_layers=2)).recompute
    assert (counted.method, counted.num_layers, counted.layer_ids) == ("block", 2, None)


def test_deepep_and_sync_free_stages_bring_their_switches() -> None:
    workload = make_workload("moe", moe_shared_expert_overlap=True, moe_use_legacy_grouped_gemm=True)
    assert keys(workload, use_turbo_deepep=True) == {
        "use_turbo_deepep": True,
        "enable_primus_turbo": True,
        "moe_router_dtype": "fp32",
        "moe_shared_expert_overlap": False,
    }
    changed = keys(workload, sync_free_stage=2)
    expected = {"use_turbo_deepep": True, "use_turbo_grouped_gemm": True, "moe_use_legacy_grouped_gemm": False, "moe_router_dtype": "fp32"}
    assert expected.items() <= changed.items()
    assert "use_turbo_fused_act_with_probs" not in changed
    assert resolve(workload, TrialConfig(sync_free_stage=3)).fused_expert_activation


def test_deepep_over_sixteen_ranks_keeps_to_32_compute_units() -> None:
    workload = make_workload(
        "latent",
        use_turbo_deepep=True,
        enable_primus_turbo=True,
        moe_router_dtype="fp32",
        turbo_deepep_num_cu=80,
        moe_shared_expert_overlap=False,
    )
    assert keys(workload, ep=16)["turbo_deepep_num_cu"] == 32
    assert "turbo_deepep_num_cu" not in keys(workload, ep=4)


@pytest.mark.parametrize(
    ("model", "arguments", "fp8", "resolved"),
    [
        ("dense", {}, "hybrid", ("hybrid", "delayed")),
        ("dense", {}, "delayed", ("hybrid", "delayed")),
        ("dense", {}, "e4m3", ("e4m3", "delayed")),
        ("dense", {}, "mxfp8", ("e4m3", "mxfp8")),
        ("dense", {"fp8": "e4m3", "fp8_recipe": "mxfp8"}, "hybrid", ("hybrid", "delayed")),
        ("dense", {"use_turbo_gemm": True, "enable_primus_turbo": True}, "hybrid", ("hybrid", "tensorwise")),
        ("latent", {}, "hybrid", ("hybrid", "tensorwise")),
        ("latent", {"fp8": "hybrid", "fp8_recipe": "blockwise"}, "hybrid", ("hybrid", "blockwise")),
    ],
)
def test_fp8_takes_the_recipe_that_runs(model: str, arguments: dict[str, Any], fp8: Any, resolved: tuple[str, str]) -> None:
    config = resolve(make_workload(model, **arguments), TrialConfig(fp8=fp8))
    assert (config.fp8, config.fp8_recipe) == resolved


def test_optimizer_sharding_is_exclusive_and_full_precision_without_it() -> None:
    workload = make_workload(
        "dense", use_precision_aware_optimizer=True, main_grads_dtype="bf16", exp_avg_dtype="bf16", ckpt_format="torch"
    )
    sharded = resolve(workload, TrialConfig(use_torch_fsdp2=True))
    assert (sharded.use_distributed_optimizer, sharded.gradient_accumulation_fusion, sharded.overlap_param_gather) == (False, False, False)
    assert (sharded.main_grad_bytes, sharded.exp_avg_bytes) == (4, 4)
    assert keys(workload, use_torch_fsdp2=True)["ckpt_format"] == "torch_dist"
    plain = resolve(workload, TrialConfig(use_distributed_optimizer=False))
    assert (plain.use_torch_fsdp2, plain.overlap_param_gather, plain.exp_avg_bytes) == (False, False, 4)


def test_tensor_parallelism_turns_off_what_cannot_follow_it() -> None:
    workload = make_workload("dense", use_turbo_gemm=True, enable_primus_turbo=True)
    assert keys(workload, tp=2)["use_turbo_gemm"] is False
    assert keys(make_workload("moe", sequence_parallel=False), tp=2)["sequence_parallel"] is True


def test_a_dense_model_keeps_the_workloads_own_sequence_parallelism_and_experts_must_have_it() -> None:
    dense, moe = make_workload("dense", sequence_parallel=False), make_workload("moe", sequence_parallel=False)
    assert "sequence_parallel" not in keys(dense, tp=2)
    assert "sequence_parallel" not in keys(moe, tp=1)
    assert keys(moe, tp=2)["sequence_parallel"] is True


def test_context_parallelism_chooses_a_communication_that_runs() -> None:
    assert keys(make_workload("dense", window_size=[128, 0]), cp=2)["cp_comm_type"] == "all_gather"
    turbo = make_workload("dense", use_turbo_attention=True, enable_primus_turbo=True)
    assert keys(turbo, cp=2)["use_turbo_attention"] is False


def test_overlaps_follow_the_first_of_them() -> None:
    workload = make_workload("dense")
    assert keys(workload, overlap_grad_reduce=False) == {"overlap_grad_reduce": False, "overlap_param_gather": False}
    assert keys(workload, overlap_param_gather=False) == {"overlap_param_gather": False}


def test_target_ep_size_changes_the_estimate_and_no_key() -> None:
    workload = make_workload("moe")
    assert keys(workload, target_ep_size=4) == {}
    assert resolve(workload, TrialConfig(target_ep_size=4)).a2a_ep_size == 4


def test_an_expert_degree_that_was_written_as_tp_follows_tp_and_another_stays() -> None:
    follows = make_workload("moe", tensor_model_parallel_size=2, expert_tensor_parallel_size=2)
    assert keys(follows, tp=4)["expert_tensor_parallel_size"] == 4
    alone = make_workload("moe", tensor_model_parallel_size=2, expert_tensor_parallel_size=1)
    assert "expert_tensor_parallel_size" not in keys(alone, tp=4)


def test_a_communication_that_cannot_run_at_another_cp_becomes_point_to_point() -> None:
    split = {"context_parallel_size": 4, "cp_comm_type": "a2a+p2p", "hierarchical_context_parallel_sizes": [2, 2]}
    assert resolve(make_workload("dense", **split), TrialConfig(cp=2)).cp_comm_type == "p2p"
    assert resolve(make_workload("dense", **split), TrialConfig(cp=4)).cp_comm_type == "a2a+p2p"


def test_overlapped_tp_communication_goes_where_the_trial_has_no_sequence_parallelism() -> None:
    """T13: at TP 1 the trainer switches sequence parallelism off and then asks for it."""
    workload = make_workload("dense", tensor_model_parallel_size=4, tp_comm_overlap=True)
    assert keys(workload, tp=1)["tp_comm_overlap"] is False
    assert "tp_comm_overlap" not in keys(workload, tp=2)
    assert check_legality(workload, TrialConfig(tp=1), nodes()).legal
    plain = make_workload("dense", tensor_model_parallel_size=4, tp_comm_overlap=True, sequence_parallel=False)
    assert keys(plain, tp=2)["tp_comm_overlap"] is False


def test_what_needs_virtual_stages_goes_with_the_last_of_them() -> None:
    written = {"overlap_p2p_comm_warmup_flush": True, "overlap_param_gather_with_optimizer_step": True, "ckpt_format": "torch"}
    workload = make_workload("dense", pipeline_model_parallel_size=4, num_virtual_stages_per_pipeline_rank=2, **written)
    assert check_legality(workload, TrialConfig(), nodes(), allow_policy=True).legal
    for pp in (1, 2):
        changed = keys(workload, pp=pp, vpp=1)
        assert changed["overlap_p2p_comm_warmup_flush"] is False
        assert changed["overlap_param_gather_with_optimizer_step"] is False
    assert keys(workload, overlap_param_gather=False)["overlap_param_gather_with_optimizer_step"] is False
    assert keys(workload, mbs=1) == {"micro_batch_size": 1}


def test_a_checkpoint_format_of_fsdp2_does_not_outlive_it() -> None:
    fsdp2 = {"use_torch_fsdp2": True, "use_distributed_optimizer": False, "overlap_param_gather": False}
    workload = make_workload("dense", gradient_accumulation_fusion=False, ckpt_format="torch_dcp", **fsdp2)
    assert check_legality(workload, TrialConfig(), nodes(), allow_policy=True).legal
    assert keys(workload, tp=2)["ckpt_format"] == "torch_dist"
    assert keys(workload, use_distributed_optimizer=True)["ckpt_format"] == "torch_dist"
    assert "ckpt_format" not in keys(workload, mbs=1)


def test_what_fp8_and_fp4_bring_goes_with_them() -> None:
    gathered = {"fp8": "e4m3", "fp8_recipe": "mxfp8", "fp8_param_gather": True, "reuse_grad_buf_for_mxfp8_param_ag": True}
    assert keys(make_workload("dense", **gathered), fp8="none")["reuse_grad_buf_for_mxfp8_param_ag"] is False
    assert keys(make_workload("dense", fp4="e2m1", fp4_param=True), fp8="mxfp8")["fp4_param"] is False
