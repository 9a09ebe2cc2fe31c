"""Legal axes: exactly the values that some configuration may take, pinned ones alone."""

from __future__ import annotations

from dataclasses import replace

from space_cases import make_workload, nodes

from primus_mcp.space.axes import legal_axes, vpp_values, with_pins
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.legality import check_legality


def test_the_axes_of_an_moe_model_on_32_gpus() -> None:
    axes = legal_axes(make_workload("moe"), nodes())
    assert axes["tp"] == (1, 2, 4, 8)
    assert axes["pp"] == (1, 2, 4, 8, 16, 32)
    assert axes["ep"] == (1, 2, 4, 8)
    assert axes["cp"] == (1, 2, 4, 8)
    assert axes["mbs"] == (1, 2, 4, 8, 16)
    assert axes["gbs"] == (128, 256, 512, 1024)
    assert not {"seaailab-ilp", "dualpipe", "dualpipe-v"} & set(axes["pp_schedule"])


def test_a_dense_model_has_no_expert_axes() -> None:
    axes = legal_axes(make_workload("dense"), nodes())
    assert axes["ep"] == (1,)
    assert axes["use_turbo_deepep"] == (False,)
    assert axes["sync_free_stage"] == (0,)

    assert axes["expert_tensor_parallel_size"] == (None,)


def test_no_deepep_or_sync_free_stage_is_offered_where_primus_turbo_is_not_built() -> None:
    axes = legal_axes(make_workload("moe"), nodes(gpu="mi250x"))
    assert (axes["use_turbo_deepep"], axes["sync_free_stage"]) == ((False,), (0,))


def test_turbos_attention_sinks_keep_tp_and_cp_at_one() -> None:
    sinks = {"enable_primus_turbo": True, "use_turbo_attention": True, "use_sink_attention": True}
    axes = legal_axes(make_workload("moe", **sinks), nodes())
    assert (axes["tp"], axes["cp"], axes["expert_tensor_parallel_size"]) == ((1,), (1,), (1,))


def test_v_schedules_are_offered_where_two_stages_a_rank_divide_the_layers() -> None:
    """32 layers over PP 2 x VPP 2; 27 layers over no PP > 1."""
    assert "zbv-greedy-half" in legal_axes(make_workload("dense"), nodes())["pp_schedule"]
    assert legal_axes(make_workload("latent"), nodes())["pp_schedule"] == ("auto", "zerobubble", "zerobubble-heuristic")


def test_a_hybrid_stack_has_no_virtual_stages() -> None:
    arch = replace(make_workload("dense").architecture, layer_kinds=("mixer_alone", "mlp_alone") * 16)
    assert vpp_values(arch, 4) == [1]


def test_no_fp8_is_offered_where_the_gpu_has_no_fp8_matrix_cores() -> None:
    assert legal_axes(make_workload("dense"), nodes(gpu="a100"))["fp8"] == ("none",)
    assert "hybrid" in legal_axes(make_workload("dense"), nodes(gpu="h100"))["fp8"]


def test_mxfp8_is_offered_where_the_gpu_has_it_and_the_model_may_use_it() -> None:
    assert "mxfp8" in legal_axes(make_workload("dense"), nodes())["fp8"]
    assert "mxfp8" not in legal_axes(make_workload("dense"), nodes(gpu="mi300x"))["fp8"]
    assert "mxfp8" not in legal_axes(make_workload("latent"), nodes())["fp8"]


def test_the_workloads_own_value_is_always_there() -> None:
    assert 6 in legal_axes(make_workload("dense", micro_batch_size=6, global_batch_size=192), nodes())["mbs"]


def test_an_axis_that_is_off_and_a_pin_leave_one_value() -> None:
    axes = legal_axes(make_workload("dense"), nodes(), axes={"tp": False, "recompute": False}, pins={"pp": 4})
    assert (axes["tp"], axes["recompute_granularity"], axes["pp"]) == ((1,), ("none",), (4,))


def test_each_degree_alone_is_legal_in_some_configuration() -> None:
    workload, cluster = make_workload("moe"), nodes()
    axes = legal_axes(workload, cluster)
    for tp in axes["tp"]:
        assert check_legality(workload, TrialConfig(tp=int(tp or 0), expert_tensor_parallel_size=1), cluster).legal
    for pp in axes["pp"]:
        assert check_legality(workload, TrialConfig(pp=int(pp or 0), ep=1), cluster).legal
    for cp in axes["cp"]:
        assert check_legality(workload, TrialConfig(cp=int(cp or 0)), cluster).legal


def test_pins_fill_what_a_trial_leaves_unset() -> None:
    assert with_pins(TrialConfig(mbs=2), {"tp": 8}) == TrialConfig(tp=8, mbs=2)
    assert with_pins(TrialConfig(tp=4), {"tp": 8}) == TrialConfig(tp=4)
