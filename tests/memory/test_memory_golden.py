"""Published memory figures of single runs, at the tolerance that their completeness allows."""

from __future__ import annotations

from typing import Any

import pytest
from memory_cases import (
    MI355X_USABLE_BYTES,
    configured,
    deepseek_v2,
    deepseek_v2_lite,
    gpt,
    llama_70b,
    llama_405b,
    mixtral_8x7b,
    most_allocated,
    qwen3_30b_a3b,
    run,
)

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.layout import Chunk
from primus_mcp.inputs.training import Recompute, Schedule
from primus_mcp.projection.memory.activations.settings import activation_settings
from primus_mcp.projection.memory.chunks import chunk_profile, layer_profile
from primus_mcp.projection.pipeline.live import live_units
from primus_mcp.units import GIB, MIB

B200: dict[str, Any] = {
    "sequence_parallel": True,
    "cross_entropy_loss_fusion": True,
    "cross_entropy_impl": "te",
    "cp_comm_type": "a2a",
}
FUSED_LOSS: dict[str, Any] = {"cross_entropy_loss_fusion": True, "cross_entropy_impl": "te"}
LITE: dict[str, Any] = {"ep": 8, "gradient_accumulation_fusion": False, "forced_balance": True}
DEEPEP: dict[str, Any] = {**LITE, **FUSED_LOSS, "dispatcher": "deepep", "deepep_num_cu": 64}


@pytest.mark.parametrize(
    ("arch", "settings", "published_gib", "tolerance"),
    [
        (llama_70b(12), {"pp": 2}, 66.55, 0.001),
        (llama_70b(12), {"tp": 2}, 60.68, 0.001),
        (llama_70b(12), {"tp": 4}, 39.07, 0.001),
        (llama_70b(12), {"tp": 8}, 28.29, 0.001),
        (llama_405b(4), {"pp": 2}, 87.08, 0.001),
        (llama_405b(4), {"tp": 2}, 81.59, 0.001),
        (llama_405b(4), {"tp": 4}, 52.89, 0.001),
        (llama_405b(4), {"tp": 8}, 38.57, 0.001),
        (llama_70b(12, 32768), {"cp": 8}, 104.51, 0.001),
        (llama_405b(4, 32768), {"cp": 8}, 139.22, 0.001),
        (llama_70b(12, 131072), {"tp": 2, "cp": 4}, 112.67, 0.001),
        (llama_405b(4, 131072), {"tp": 2, "cp": 4}, 118.13, 0.001),
        (deepseek_v2(4), {"ep": 8}, 45.63, 0.006),
        (deepseek_v2(4), {"ep": 4, "pp": 2}, 44.70, 0.006),
    ],
)
def test_maximum_allocated_on_b200_is_reproduced(
    arch: Architecture, settings: dict[str, Any], published_gib: float, tolerance: float
) -> None:
    rank = most_allocated(run(arch, 8, 8, **{**B200, **settings}))
    assert rank.allocated_bytes / GIB == pytest.approx(published_gib, rel=tolerance)


@pytest.mark.parametrize(
    ("settings", "allocated_gib"),
    [({"schedule": "1f1b"}, (36.26, 32.18, 29.56, 28.77)), ({"schedule": "interleaved", "vpp": 5}, (37.84, None, None, None))],
)
def test_llama_70b_tp8_pp4_regression_against_an_independent_prototype(
    settings: dict[str, Any], allocated_gib: tuple[float | None, ...]
) -> None:
    """8 micro-batches, fused loss; no run of it is published, two programs written apart agree."""
    ranks = run(llama_70b(), 64, 8, tp=8, pp=4, sequence_parallel=True, **FUSED_LOSS, **settings).ranks
    for rank, expected in zip(ranks, allocated_gib, strict=True):
        assert expected is None or rank.allocated_bytes / GIB == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(("schedule", "published_gib"), [("v-half", 14.06), ("v-min", 11.90)])
def test_v_half_and_v_min_lie_where_the_published_schedule_table_has_them(schedule: Schedule, published_gib: float) -> None:
    """Primus's schedule comparison at PP 8 leaves model and batch unsaid, so three of its rows give states S, a micro-batch U and what the
    V placement adds to a rank H: 16.26 = S + 8 U (1F1B), 21.40 = S + 11.5 U (interleaved), 18.11 = S + H + 8 U (ZBV)."""

    def units(name: str, vpp: int) -> float:
        return live_units(name, pp=8, vpp=vpp, micro_batches=64, rank=0)

    one, interleaved, vee = units("1f1b", 1), units("interleaved", 2), units("zbv-formatted", 2)
    unit = (21.40 - 16.26) / (interleaved - one)
    assert 18.11 - (vee - units(schedule, 2)) * unit == pytest.approx(published_gib, rel=0.03)


def test_the_zero_bubble_planner_without_a_cap_keeps_every_micro_batch_alive() -> None:
    """Primus leaves pp_max_mem null: its planner may then run all forwards first."""
    few, many = (
        run(llama_70b(), 64, count, tp=8, pp=4, sequence_parallel=True, schedule="zero-bubble-heuristic").worst.activation_bytes
        for count in (8, 32)
    )
    plain = run(llama_70b(), 64, 32, tp=8, pp=4, sequence_parallel=True, schedule="zero-bubble").worst.activation_bytes
    assert many > 3.5 * few and many > 3.5 * plain


def test_one_more_micro_batch_is_alive_where_the_exchange_is_overlapped_without_a_pipeline() -> None:
    chosen: dict[str, Any] = {"ep": 8, "forced_balance": True}
    plain, overlapped = (run(mixtral_8x7b(8), 8, overlap_moe_a2a=flag, **chosen).worst for flag in (False, True))
    assert overlapped.components["saved_moe"] == pytest.approx(2 * plain.components["saved_moe"], rel=0.01)


@pytest.mark.parametrize("micro_batches", [4, 8, 32])
def test_more_micro_batches_than_the_pipeline_is_deep_do_not_change_memory(micro_batches: int) -> None:
    """The B200 table lists the same memory for 4, 8 and 32 micro-batches."""
    rank = most_allocated(run(llama_70b(12), 8, micro_batches, **{**B200, "pp": 2}))
    assert rank.allocated_bytes / GIB == pytest.approx(66.55, rel=0.001)


def test_the_peak_of_a_pipelined_first_rank_is_in_the_activation_and_of_a_single_rank_in_the_loss() -> None:
    assert most_allocated(run(llama_70b(12), 8, **{**B200, "pp": 2})).peak_moment == "B of activation of chunk 0"
    assert most_allocated(run(llama_70b(12), 8, **{**B200, "tp": 8})).peak_moment == "B of output_and_loss of chunk 0"


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "settings", "units", "published_gib"),
    [
        (48, 6144, 64, {"mbs": 4}, 1.0, 59.25),
        (48, 6144, 64, {"mbs": 4, "sequence_parallel": True, "recompute": "core_attn"}, 1.0, 9.5625),
        (12, 12288, 96, {}, None, 66.84375),
        (12, 12288, 96, {"sequence_parallel": True, "recompute": "core_attn"}, None, 12.3515625),
    ],
)
def test_gpt3_activations_equal_the_formula_of_korthikanti(
    layers: int, hidden: int, heads: int, settings: dict[str, Any], units: float | None, published_gib: float
) -> None:
    """arXiv 2205.05198: 34 + 5 a s / h bytes a token and hidden element; the 175B case is 12 layers a rank times the live units of
    TP8 PP8 VPP3 (8 (1 + 7 / 24) on rank 0)."""
    settings = dict(settings)
    if "recompute" in settings:
        settings["recompute"] = Recompute(granularity="selective", modules=(settings["recompute"],))
    arch = gpt(layers, hidden, heads, 2048, 51200)
    config = configured(64, tp=8, flash_attention=False, **settings)
    saved = chunk_profile(activation_settings(arch, config), Chunk(layers=tuple(range(layers)))).saved_bytes
    live = units or live_units("interleaved", pp=8, vpp=3, micro_batches=64, rank=0)
    assert saved * live / GIB == pytest.approx(published_gib, rel=0.001)


@pytest.mark.parametrize(
    ("arch", "moe", "settings", "published_mib"),
    [
        (llama_70b(), False, {}, 1073.0),
        (llama_70b(), False, {"tp": 8, "sequence_parallel": True}, 134.1),
        (llama_405b(), False, {}, 2050.0),
        (deepseek_v2(), True, {"ep": 8}, 1394.0),
        (deepseek_v2_lite(), True, {"ep": 8}, 525.5),
        (mixtral_8x7b(), True, {"ep": 1}, 946.2),
        (mixtral_8x7b(), True, {"ep": 8}, 946.2),
    ],
)
def test_saved_bytes_of_one_layer_for_4096_tokens(arch: Architecture, moe: bool, settings: dict[str, Any], published_mib: float) -> None:
    config = configured(8, **settings)
    assert layer_profile(activation_settings(arch, config), moe).saved_bytes / MIB == pytest.approx(published_mib, rel=0.001)


@pytest.mark.parametrize(
    ("mbs", "settings", "published_gib"),
    [
        (1, {**LITE, "shared_expert_overlap": True}, 80.8),
        (2, {**LITE, "shared_expert_overlap": True}, 99.4),
        (4, {**LITE, "shared_expert_overlap": True}, 136.7),
        (8, {**LITE, "shared_expert_overlap": True}, 218.2),
        (12, {**LITE, **FUSED_LOSS, "shared_expert_overlap": True}, 265.5),
        (12, DEEPEP, 240.9),
        (12, {**DEEPEP, "sync_free_stage": 1, "fused_router": True, "permute_fusion": True}, 241.6),
        (14, {**DEEPEP, "sync_free_stage": 1, "fused_router": True, "permute_fusion": True}, 273.8),
    ],
)
def test_device_memory_of_deepseek_v2_lite_on_mi355x(mbs: int, settings: dict[str, Any], published_gib: float) -> None:
    """The runtime constant and both fragmentation shares were fitted on these runs: a consistency check."""
    projection = run(deepseek_v2_lite(), 8, vendor="amd", mbs=mbs, **settings)
    assert projection.device_bytes / GIB == pytest.approx(published_gib, rel=0.025)
    assert projection.fits(MI355X_USABLE_BYTES) == "fits"


def test_a_run_that_went_through_at_99_per_cent_of_memory_is_at_risk_and_not_refused() -> None:
    projection = run(deepseek_v2_lite(), 8, vendor="amd", mbs=12, shared_expert_overlap=True, **LITE)
    assert projection.device_bytes / GIB == pytest.approx(285.5, rel=0.025)
    assert projection.fits(MI355X_USABLE_BYTES) == "at_risk"


def test_loss_fusion_saves_what_the_mi355x_runs_show() -> None:
    """285.5 - 265.5 = 20.0 GB on the device at MBS 12."""
    plain = run(deepseek_v2_lite(), 8, vendor="amd", mbs=12, **LITE)
    fused = run(deepseek_v2_lite(), 8, vendor="amd", mbs=12, **LITE, **FUSED_LOSS)
    assert (plain.worst.allocated_bytes - fused.worst.allocated_bytes) / GIB == pytest.approx(20.0, rel=0.1)


def test_qwen3_30b_on_mi355x_with_five_recomputed_layers() -> None:
    """227 GB; nothing fitted here."""
    projection = run(
        qwen3_30b_a3b(),
        8,
        vendor="amd",
        mbs=8,
        ep=8,
        recompute=Recompute(granularity="full", method="block", num_layers=5),
        main_grad_bytes=2,
        main_param_bytes=2,
        exp_avg_bytes=2,
        exp_avg_sq_bytes=2,
        dispatcher="deepep",
        deepep_num_cu=80,
        sync_free_stage=1,
        fused_router=True,
        permute_fusion=True,
        grouped_gemm="legacy",
        fused_swiglu=False,
        forced_balance=True,
        **FUSED_LOSS,
    )
    assert projection.device_bytes / GIB == pytest.approx(227, rel=0.04)
    assert projection.fits(MI355X_USABLE_BYTES) == "fits"


def test_gpt2_774m_allocates_more_than_its_user_summed() -> None:
    """Megatron-LM#525: V100 32 GB, MBS 4, math attention; 28.82 GiB allocated when iteration 1 failed, before Adam's moments exist."""
    arch = gpt(36, 1280, 20, 1024, 50257)
    rank = run(arch, 1, mbs=4, flash_attention=False, use_distributed_optimizer=False).worst
    parameters = rank.components["weights"] / 2
    assert (rank.allocated_bytes - 8 * parameters) / GIB == pytest.approx(28.82, rel=0.03)
    assert rank.device_bytes > 32 * GIB
