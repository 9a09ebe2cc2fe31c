"""The adapted baseline is the nearest configuration that runs, keeps the batch where it can, and says what it changed."""

from __future__ import annotations

from typing import Any

import pytest
from space_cases import make_workload, nodes

from primus_mcp.errors import InputError
from primus_mcp.space.adapted import adapt_baseline, source_gpus
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.legality import check_legality


def test_a_baseline_that_runs_is_left_alone() -> None:
    workload = make_workload("moe")
    adapted = adapt_baseline(workload, nodes(4))
    assert adapted.workload is workload
    assert (adapted.trial, adapted.lines) == (TrialConfig(), ())


def test_a_pipeline_too_deep_for_the_cluster_becomes_shallower_with_the_batch_kept() -> None:
    workload = make_workload("moe", pipeline_model_parallel_size=4)
    adapted = adapt_baseline(workload, nodes(1))
    assert adapted.workload.baseline.pp == 1
    assert adapted.workload.baseline.gbs == 256
    assert "8 GPUs are not a multiple of ETP 1 x EP 8 x PP 4 = 32" in adapted.lines[0]
    assert all("\n" not in line for line in adapted.lines)
    assert check_legality(adapted.workload, TrialConfig(), nodes(1), allow_policy=True).legal


def test_mbs_is_lowered_before_the_batch_is_touched() -> None:
    adapted = adapt_baseline(make_workload("dense", micro_batch_size=8), nodes(8))
    assert (adapted.trial, adapted.workload.baseline.gbs) == (TrialConfig(mbs=4), 256)


def test_a_depth_that_the_trainer_refuses_gets_a_layout() -> None:
    adapted = adapt_baseline(make_workload("dense", num_layers=30, pipeline_model_parallel_size=4), nodes(4))
    assert adapted.trial == TrialConfig(pp=4)
    assert adapted.workload.baseline.pipeline_layout is not None


def test_the_batch_is_scaled_by_gpus_when_nothing_keeps_it() -> None:
    # one sequence a step on 8 GPUs; 7 nodes have no configuration with a batch of 1 (CP and TP must divide by 7)
    workload = make_workload("dense", micro_batch_size=1, global_batch_size=8, num_layers=6)
    adapted = adapt_baseline(workload, nodes(7))
    assert source_gpus(workload, nodes(7)) == 8
    assert adapted.workload.baseline.gbs == 56
    assert any("scaled by 56 / 8 GPUs" in line for line in adapted.lines)


def test_options_set_or_scale_the_batch() -> None:
    workload = make_workload("dense", global_batch_size=64)
    assert adapt_baseline(workload, nodes(4), gbs=128).workload.baseline.gbs == 128
    assert adapt_baseline(workload, nodes(4), scale_gbs=True).workload.baseline.gbs == 256
    with pytest.raises(InputError, match="no legal configuration on 56 GPUs has a batch of 3"):
        adapt_baseline(make_workload("dense", num_layers=6), nodes(7), gbs=3)


def test_trials_inherit_from_the_adapted_baseline() -> None:
    adapted = adapt_baseline(make_workload("moe", pipeline_model_parallel_size=4), nodes(1)).workload
    verdict = check_legality(adapted, TrialConfig(mbs=1), nodes(1))
    assert verdict.legal
    assert verdict.config is not None
    assert (verdict.config.pp, verdict.config.mbs) == (1, 1)


def test_levers_that_tie_the_workload_to_a_topology_go_before_the_batch_does() -> None:
    """24 GPUs divide a batch of 256 only with PP 3, which FSDP2 excludes; one GPU has no expert group for DeepEP."""
    sharded = make_workload(
        "dense", use_torch_fsdp2=True, use_distributed_optimizer=False, gradient_accumulation_fusion=False, overlap_param_gather=False
    )
    adapted = adapt_baseline(sharded, nodes(3))
    own = adapted.workload.baseline
    assert (own.pp, own.gbs, own.use_torch_fsdp2, own.use_distributed_optimizer) == (3, 256, False, True)
    experts = make_workload("moe", use_turbo_deepep=True, enable_primus_turbo=True, moe_router_dtype="fp32", turbo_sync_free_moe_stage=1)
    alone = adapt_baseline(experts, nodes(1, gpus_per_node=1)).workload.baseline
    assert (alone.ep, alone.dispatcher, alone.sync_free_stage) == (1, "alltoall", 1)
    within = adapt_baseline(experts, nodes(3, gpus_per_node=4)).workload.baseline
    assert (within.ep, within.dispatcher) == (4, "deepep")


def test_a_workload_of_another_gpu_loses_what_this_one_cannot_run_and_says_so() -> None:
    fp8 = make_workload("dense", fp8="hybrid")
    adapted = adapt_baseline(fp8, nodes(1, gpu="a100"))
    assert adapted.workload.baseline.fp8 is None
    assert "a100 (sm_80) has a peak of 312 TFLOP/s in BF16 and none in FP8" in adapted.lines[0]
    assert "fp8 none" in adapted.lines[1]
    deepep = {"use_turbo_deepep": True, "enable_primus_turbo": True, "moe_router_dtype": "fp32", "turbo_sync_free_moe_stage": 1}
    adapted = adapt_baseline(make_workload("moe", **deepep), nodes(4, gpu="mi250x"))
    assert (adapted.workload.baseline.dispatcher, adapted.workload.baseline.sync_free_stage) == ("alltoall", 0)
    assert "gfx942 and gfx950" in adapted.lines[0]


def test_what_the_gpu_can_run_is_kept() -> None:
    adapted = adapt_baseline(make_workload("dense", fp8="hybrid", micro_batch_size=8), nodes(8))
    assert adapted.trial == TrialConfig(mbs=4)


def test_a_batch_beyond_what_a_trial_may_have_is_one_line() -> None:
    for batch in (0, -1, 2**31):
        with pytest.raises(InputError, match="--gbs: is "):
            adapt_baseline(make_workload("dense"), nodes(4), gbs=batch)
    with pytest.raises(InputError, match="no legal configuration on 56 GPUs"):
        adapt_baseline(make_workload("dense", num_layers=6, global_batch_size=2**32), nodes(7))


def test_a_micro_batch_of_any_size_is_answered_at_once() -> None:
    assert adapt_baseline(make_workload("dense", micro_batch_size=2**40), nodes(4)).trial == TrialConfig(mbs=8)


def test_mxfp8_becomes_plain_fp8_where_the_gpu_has_no_block_scales_and_a_schedule_goes_before_the_batch_does() -> None:
    mxfp8 = adapt_baseline(make_workload("dense", fp8="e4m3", fp8_recipe="mxfp8"), nodes(4, gpu="mi300x"))
    assert mxfp8.trial.fp8 == "hybrid" and mxfp8.workload.baseline.fp8_recipe == "delayed"
    patched = {"patch_primus_pipeline": True, "pp_algorithm": "zero-bubble", "overlap_grad_reduce": False, "overlap_param_gather": False}
    workload = make_workload("dense", pipeline_model_parallel_size=4, **patched)
    alone = adapt_baseline(workload, nodes(1, gpus_per_node=1)).workload.baseline
    assert (alone.pp, alone.schedule, alone.gbs) == (1, "1f1b", 256)


@pytest.mark.parametrize(
    ("model", "arguments", "kept"),
    [
        ("dense", {"fp8_recipe": "blockwise"}, "delayed"),
        ("dense", {"fp8_recipe": "mxfp8", "ffn_hidden_size": 14400}, "delayed"),
        ("latent", {"fp8_recipe": "blockwise"}, "none"),
    ],
)
def test_a_recipe_that_no_gemm_of_the_model_takes_on_the_gpu_gives_way(model: str, arguments: dict[str, Any], kept: str) -> None:
    adapted = adapt_baseline(make_workload(model, fp8="e4m3", **arguments), nodes(1, "mi355x"))
    assert adapted.trial.fp8 == kept
    assert adapted.lines[-1].endswith(f"fp8 {kept}")
    assert check_legality(adapted.workload, TrialConfig(), nodes(1, "mi355x"), allow_policy=True).legal
