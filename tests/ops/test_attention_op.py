"""The attention core."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.projection.ops.attention import attended_pairs, flash_attention_s, math_attention_s
from primus_mcp.projection.ops.backend import gemm_model
from primus_mcp.projection.ops.elementwise import hbm_pass_s

MI355X = make_cluster("mi355x")
BASE: dict[str, Any] = {"mbs": 1, "seq_length": 8192, "heads": 32, "qk_head_dim": 128, "v_head_dim": 128}


def _tflops(cluster: Cluster, seq_length: int, direction: int, mbs: int = 8, heads: int = 64) -> float:
    flops = 2 * mbs * seq_length**2 / 2 * heads * 256 * (1, 2.5)[direction]
    return (
        flops / flash_attention_s(cluster, mbs=mbs, seq_length=seq_length, heads=heads, qk_head_dim=128, v_head_dim=128)[direction] / 1e12
    )


def test_causal_pairs_are_half_the_square_and_a_window_leaves_its_band() -> None:
    assert attended_pairs(8192, None) == 8192**2 / 2
    assert attended_pairs(8192, 9000) == attended_pairs(8192, None)
    assert attended_pairs(8192, 128) == 8192 * 128 - 128**2 / 2


# Upper ends of the ranges over batch 1-8 and 32/64 heads, causal, d 128 (ROCm/aiter@e404860 op_tests/cpp/mha; bf16 atomics backward).
@pytest.mark.parametrize(
    ("gpu", "direction", "measured"),
    [
        ("mi355x", 0, {2048: 983, 4096: 1197, 8192: 1324, 16_384: 1398}),
        ("mi355x", 1, {2048: 824, 4096: 977, 8192: 1070, 16_384: 1163}),
        ("mi300x", 0, {2048: 462, 4096: 525, 8192: 553, 16_384: 544}),
        ("mi300x", 1, {2048: 400, 4096: 465, 8192: 492, 16_384: 458}),
    ],
)
def test_published_kernel_rates_are_met_within_five_per_cent(gpu: str, direction: int, measured: dict[int, float]) -> None:
    for seq_length, tflops in measured.items():
        assert _tflops(make_cluster(gpu), seq_length, direction) == pytest.approx(tflops, rel=0.055)


def test_b200_forward_of_64_heads_at_4096_takes_280_us() -> None:
    """Measured 280 us (MooreThreads/SimuMax@4dcaae5, 1961 TFLOP/s counted over the full square)."""
    forward_s, _ = flash_attention_s(make_cluster("b200"), mbs=1, seq_length=4096, heads=64, qk_head_dim=128, v_head_dim=128)
    assert forward_s == pytest.approx(280e-6, rel=0.05)


@pytest.mark.parametrize(("heads", "tflops"), [(64, 370), (32, 353), (16, 309), (8, 245)])
def test_a100_forward_is_met_from_few_to_many_heads(heads: int, tflops: float) -> None:
    """MooreThreads/SimuMax@4dcaae5 a100_pcie, rates counted over the full square."""
    measured_s = 2 * 4096**2 * heads * 256 / (tflops * 1e12)
    assert flash_attention_s(make_cluster("a100"), mbs=1, seq_length=4096, heads=heads, qk_head_dim=128, v_head_dim=128)[
        0
    ] == pytest.approx(measured_s, rel=0.05)


def test_cp_splits_the_work_and_never_the_fill() -> None:
    whole, half = flash_attention_s(MI355X, **BASE), flash_attention_s(MI355X, **BASE, cp=2)
    for one, two in zip(whole, half, strict=True):
        assert one / 2 < two < one


def test_a_window_is_cheaper_than_the_whole_triangle() -> None:
    assert flash_attention_s(MI355X, **BASE, window=128)[1] < flash_attention_s(MI355X, **BASE)[1] / 3


# Milliseconds (forward, backward) of cuDNN 9.19 to 9.27 on causal sequences of 4,096 in BF16, `heads` over the whole batch
# (NVIDIA/cudnn-frontend benchmark/sdpa_benchmark_training/results and benchmark/attention_training/results).
@pytest.mark.parametrize(
    ("gpu", "heads", "dims", "window", "measured_ms"),
    [
        ("gb200", 128, (128, 128), None, (0.391, 1.198)),
        ("gb200", 256, (192, 128), None, (0.976, 3.241)),
        ("gb200", 256, (64, 64), 128, (0.210, 0.455)),
        ("gb200", 128, (64, 64), 1024, (0.209, 0.487)),
        ("gb300", 128, (128, 128), None, (0.323, 1.101)),
        ("gb300", 256, (192, 128), None, (0.864, 3.127)),
        ("gb300", 256, (64, 64), 128, (0.202, 0.442)),
        ("h200", 128, (128, 128), None, (0.897, 2.747)),
        ("h200", 256, (64, 64), 128, (0.262, 0.919)),
    ],
)
def test_cudnn_timings_are_met_within_ten_per_cent(
    gpu: str, heads: int, dims: tuple[int, int], window: int | None, measured_ms: tuple[float, float]
) -> None:
    found = flash_attention_s(
        make_cluster(gpu),
        mbs=1,
        seq_length=4096,
        heads=heads,
        qk_head_dim=dims[0],
        v_head_dim=dims[1],
        window=window,
        latent=dims[0] > dims[1],
    )
    for seconds, milliseconds in zip(found, measured_ms, strict=True):
        assert seconds == pytest.approx(milliseconds / 1e3, rel=0.10)


def test_the_fp8_backward_walks_the_triangle_outside_the_window_too() -> None:
    """MXFP8, 2 x 128 heads of 64, 4,096 tokens on GB200: 2.07 ms with a window of 128, BF16 0.46; it grows as s^2 (same tables)."""
    shape: dict[str, Any] = {"mbs": 2, "seq_length": 4096, "heads": 128, "qk_head_dim": 64, "v_head_dim": 64, "fp8": True}
    windowed, whole = (flash_attention_s(make_cluster("gb200"), **shape, window=window) for window in (128, None))
    assert windowed[0] < whole[0] / 2
    assert windowed[1] == whole[1] == pytest.approx(2.07e-3, rel=0.12)


def test_a_window_as_long_as_the_sequence_is_no_window() -> None:
    assert flash_attention_s(MI355X, **BASE, window=8192) == flash_attention_s(MI355X, **BASE)


def test_the_backward_costs_at_least_two_and_a_half_forwards_of_flops() -> None:
    for gpu in ("mi355x", "mi300x", "h100"):
        forward_s, backward_s = flash_attention_s(make_cluster(gpu), **BASE)
        assert backward_s > 2.5 * forward_s


def test_latent_and_narrow_heads_are_less_efficient() -> None:
    wide = flash_attention_s(MI355X, **(BASE | {"qk_head_dim": 192}))
    latent = flash_attention_s(MI355X, **(BASE | {"qk_head_dim": 192}), latent=True)
    assert latent[0] > wide[0]
    assert latent[1] > wide[1]
    narrow = flash_attention_s(MI355X, **(BASE | {"qk_head_dim": 64, "v_head_dim": 64}))
    assert narrow[0] > flash_attention_s(MI355X, **BASE)[0] / 2


def test_heads_of_64_keep_more_of_the_rate_backward_than_forward_as_on_mi300x() -> None:
    """Milliseconds of 4 x 8,192 causal tokens and 64 heads (AMD-AGI/Primus-Turbo@221d75f output/baseline_attention.csv)."""
    shape: dict[str, Any] = {"mbs": 4, "seq_length": 8192, "heads": 64}
    narrow, wide = (flash_attention_s(make_cluster("mi300x"), **shape, qk_head_dim=width, v_head_dim=width) for width in (64, 128))
    for direction, (of_64, of_128) in enumerate(((5.84, 9.35), (15.65, 29.23))):
        assert narrow[direction] / wide[direction] == pytest.approx(of_64 / of_128, rel=0.03)


def test_sinks_run_in_another_kernel_where_the_caller_says_so() -> None:
    """8 sequences of 64 heads of 64: 52.3 ms backward (ROCm/aiter pull 1576; length and GPU are judged to be 8,192 and MI300X)."""
    mi300x = make_cluster("mi300x")
    shape: dict[str, Any] = {"mbs": 8, "seq_length": 8192, "heads": 64, "qk_head_dim": 64, "v_head_dim": 64}
    plain, sinks = (flash_attention_s(mi300x, **shape, sinks=choice) for choice in (False, True))
    figures = mi300x.profile.figures
    assert sinks[0] / plain[0] == pytest.approx(1 / figures["attention_sink_forward"], rel=0.01)
    assert sinks[1] / figures["attention_backward_operator"] == pytest.approx(52.3e-3, rel=0.12)


def test_unfused_attention_costs_more_and_reads_the_score_matrix() -> None:
    shape: dict[str, Any] = {"mbs": 1, "seq_length": 4096, "heads": 32, "qk_head_dim": 128, "v_head_dim": 128}
    unfused = math_attention_s(MI355X, gemm_model(MI355X, "roofline"), **shape)
    fused = flash_attention_s(MI355X, **shape)
    assert unfused[0] > 2 * fused[0]
    assert unfused[0] > hbm_pass_s(MI355X, 6 * 2 * 32 * 4096**2)


def test_sinks_keep_unfused_attention_out_of_the_fused_softmax() -> None:
    shape: dict[str, Any] = {"mbs": 1, "seq_length": 4096, "heads": 32, "qk_head_dim": 64, "v_head_dim": 64}
    gemm = gemm_model(MI355X, "roofline")
    plain, sinks = (math_attention_s(MI355X, gemm, **shape, sinks=choice) for choice in (False, True))
    one_pass_s = hbm_pass_s(MI355X, 2 * 32 * 4096**2)
    assert sinks[0] - plain[0] == pytest.approx((16 - 4.5) * one_pass_s)
    assert sinks[1] - plain[1] == pytest.approx((19 - 5.5) * one_pass_s)


def test_one_stream_pass_takes_bytes_over_the_achieved_bandwidth() -> None:
    assert hbm_pass_s(MI355X, 0.65 * 8e12) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "name", ["attention_ramp_seq_forward", "attention_ramp_seq_backward", "attention_fill_forward_s", "attention_fill_backward_s"]
)
def test_every_attention_figure_changes_the_time(name: str) -> None:
    figures = dict(MI355X.profile.figures) | {name: 2 * MI355X.profile.figures[name]}
    moved = replace(MI355X, profile=replace(MI355X.profile, figures=figures))
    assert (
        flash_attention_s(moved, **BASE) > flash_attention_s(MI355X, **BASE)
        or flash_attention_s(moved, **BASE)[1] > flash_attention_s(MI355X, **BASE)[1]
    )
