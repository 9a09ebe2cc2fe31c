"""GEMM roofline and grouped GEMMs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_mcp.errors import InputError, UnknownFigureError
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.hardware_files import gpu_names, gpu_profile
from primus_mcp.projection.ops.backend import gemm_model
from primus_mcp.projection.ops.gemm import GroupedKernel, RooflineGemm, grouped_seconds, peak_flops, sustained_flops

MI355X = make_cluster("mi355x")
SIDES = st.integers(min_value=1, max_value=65_536)


@pytest.mark.parametrize("gpu", gpu_names())
def test_8192_cubed_takes_exactly_the_sustained_rate(gpu: str) -> None:
    cluster = make_cluster(gpu)
    model = RooflineGemm(cluster)
    for precision, rate in cluster.profile.sustained_flops.items():
        assert 2 * 8192**3 / model.seconds(8192, 8192, 8192, precision) == pytest.approx(rate, rel=1e-9)


@pytest.mark.parametrize("gpu", gpu_names())
@given(m=SIDES, n=SIDES, k=SIDES)
def test_no_gemm_beats_the_peak(gpu: str, m: int, n: int, k: int) -> None:
    cluster = make_cluster(gpu)
    model = gemm_model(cluster, "roofline")
    for precision in cluster.profile.sustained_flops:
        assert 2 * m * n * k / model.seconds(m, n, k, precision) <= peak_flops(cluster, precision)


@given(m=SIDES, n=SIDES, k=SIDES)
def test_more_depth_and_wider_results_never_cost_less(m: int, n: int, k: int) -> None:
    model = gemm_model(MI355X, "roofline")
    assert model.seconds(m, n, k + 64, "bf16") > model.seconds(m, n, k, "bf16")
    assert model.seconds(m, n, k, "bf16", output_bytes=8) > model.seconds(m, n, k, "bf16")


def test_fp8_beats_bf16_for_wide_layers_and_fp4_beats_fp8() -> None:
    model = gemm_model(MI355X, "roofline")
    for k, n in ((4096, 4096), (8192, 28_672), (16_384, 53_248)):
        assert model.seconds(8192, n, k, "fp4") < model.seconds(8192, n, k, "fp8") < model.seconds(8192, n, k, "bf16")


def test_a_skinny_gemm_is_bound_by_hbm() -> None:
    """[1, k] x [k, n]: 2 k n bytes over 0.85 x 8 TB/s bound it from below, and not by far."""
    bound = 2 * 16_384 * 53_248 / (0.85 * 8e12)
    assert bound < gemm_model(MI355X, "roofline").seconds(1, 53_248, 16_384, "bf16") < 1.6 * bound


def test_a_faster_clock_speeds_gemms_up_in_proportion_where_they_are_compute_bound() -> None:
    slow = make_cluster("mi355x", gpu_clock_mhz=1200)
    ratio = gemm_model(slow, "roofline").seconds(8192, 8192, 8192, "bf16") / gemm_model(MI355X, "roofline").seconds(
        8192, 8192, 8192, "bf16"
    )
    assert ratio == pytest.approx(2.0, rel=1e-6)


def test_equal_gemms_run_together_cost_no_more_than_one_by_one() -> None:
    model = gemm_model(MI355X, "roofline")
    for m in (64, 300, 2048):
        assert model.seconds(m, 2048, 4096, "bf16", batch=16) <= 16 * model.seconds(m, 2048, 4096, "bf16") * (1 + 1e-9)


def test_an_empty_gemm_is_free() -> None:
    assert gemm_model(MI355X, "roofline").seconds(0, 4096, 4096, "bf16") == 0.0
    assert grouped_seconds(gemm_model(MI355X, "roofline"), MI355X, m=0, n=1, k=1, groups=4, precision="bf16", kernel="loop") == 0.0


def test_a_gpu_without_fp8_raises_and_names_what_it_has() -> None:
    cluster = make_cluster("a100")
    with pytest.raises(UnknownFigureError, match=r"fp8.*known: bf16"):
        sustained_flops(cluster, "fp8")
    with pytest.raises(UnknownFigureError, match="fp8"):
        gemm_model(cluster, "roofline").seconds(8192, 8192, 8192, "fp8")


def _grouped(cluster: Cluster, kernel: GroupedKernel, m: float = 2048, groups: int = 32) -> float:
    return grouped_seconds(gemm_model(cluster, "roofline"), cluster, m=m, n=4096, k=7168, groups=groups, precision="bf16", kernel=kernel)


def test_one_persistent_kernel_beats_a_loop_at_few_rows_and_both_beat_a_sequence() -> None:
    """At thousands of rows an expert library products win (AMD-AGI/Primus-Turbo pull 284: 1,507 against 1,292 TFLOP/s at 4,096)."""
    for m in (64, 512):
        assert _grouped(MI355X, "persistent", m) < _grouped(MI355X, "loop", m) < _grouped(MI355X, "sequential", m)
    assert _grouped(MI355X, "loop", 4096, 16) < _grouped(MI355X, "persistent", 4096, 16)


LOOPS_AND_TRITON = [
    (16, 2048, 4096, 7168, 1063, 1271),
    (16, 2048, 7168, 4096, 1139, 1230),
    (16, 4096, 4096, 7168, 1507, 1292),
    (16, 4096, 7168, 4096, 1526, 1257),
    (16, 2048, 7168, 2048, 1219, 1092),
    (16, 2048, 2048, 7168, 1261, 1080),
    (16, 4096, 7168, 2048, 1298, 1139),
    (16, 4096, 2048, 7168, 1317, 1143),
]


@pytest.mark.parametrize(("kernel", "column"), [("loop", 4), ("persistent", 5)])
def test_forward_and_dgrad_of_deepseek_v3_experts_are_met_by_both_kernels(kernel: GroupedKernel, column: int) -> None:
    """TFLOP/s of hipBLAS loops (grouped_gemm) and of Primus-Turbo's Triton kernel on MI355X, AMD-AGI/Primus-Turbo pull 284."""
    model, errors = gemm_model(MI355X, "roofline"), []
    for case in LOOPS_AND_TRITON:
        groups, m, n, k = case[:4]
        seconds = grouped_seconds(model, MI355X, m=m, n=n, k=k, groups=groups, precision="bf16", kernel=kernel)
        errors.append(2 * m * n * k * groups / seconds / 1e12 / case[column] - 1)
    assert sum(abs(error) for error in errors) / len(errors) < 0.12
    assert abs(sum(errors)) / len(errors) < 0.06


def test_a_loop_pays_for_every_expert() -> None:
    """128 experts of 256 rows against 8 of 4096: the same work, 120 more kernels of 3.2 us each at least."""
    assert _grouped(MI355X, "loop", 256, 128) - _grouped(MI355X, "loop", 4096, 8) > 120 * 3.2e-6


@pytest.mark.parametrize(
    ("m", "n", "k", "measured_ms"), [(2048, 4096, 7168, 3.26), (2048, 7168, 2048, 1.80), (2048, 2048, 7168, 1.63), (2048, 7168, 4096, 3.47)]
)
def test_fused_moe_grouped_gemms_of_mi355x_are_met_within_ten_per_cent(m: int, n: int, k: int, measured_ms: float) -> None:
    """AMD-AGI/Primus MegaMoE tables: DeepSeek-V3 shapes, EP 8, 32 local experts, 8192 tokens a rank."""
    modelled = grouped_seconds(gemm_model(MI355X, "roofline"), MI355X, m=m, n=n, k=k, groups=32, precision="bf16", kernel="persistent")
    assert modelled * 1e3 == pytest.approx(measured_ms, rel=0.10)


def test_faster_rates_and_hbm_never_slow_a_gemm_down() -> None:
    gpu, profile = MI355X.gpu, MI355X.profile
    faster = replace(MI355X, profile=replace(profile, sustained_flops={"bf16": 1.1 * profile.sustained_flops["bf16"]}))
    wider = replace(MI355X, gpu=replace(gpu, hbm_bandwidth_bytes_per_s=1.2 * gpu.hbm_bandwidth_bytes_per_s))
    for shape in ((4096, 4096, 4096), (16, 8192, 8192), (8192, 1024, 256)):
        base = RooflineGemm(MI355X).seconds(*shape, "bf16")
        assert RooflineGemm(faster).seconds(*shape, "bf16") < base
    assert RooflineGemm(wider).seconds(16, 8192, 8192, "bf16") < RooflineGemm(MI355X).seconds(16, 8192, 8192, "bf16")


def test_the_backend_is_one_instance_per_cluster_and_refuses_what_it_cannot_do() -> None:
    assert gemm_model(MI355X, "roofline") is gemm_model(make_cluster("mi355x"), "roofline")
    assert gemm_model(make_cluster("h100"), "auto").name == "roofline"
    with pytest.raises(InputError, match="origami"):
        gemm_model(make_cluster("h100"), "origami")


@pytest.mark.parametrize(
    "figure",
    ["gemm_tile_m", "gemm_tile_n", "gemm_wave_exponent", "gemm_norm_exponent", "gemm_k_ramp_bf16", "gemm_k_ramp_fp8", "gemm_k_ramp_fp4"],
)
def test_every_gemm_figure_changes_some_time(figure: str) -> None:
    figures = dict(MI355X.profile.figures)
    figures[figure] *= 1.1
    moved = RooflineGemm(replace(MI355X, profile=replace(MI355X.profile, figures=figures)))
    base = RooflineGemm(MI355X)
    shape = (300, 1100, 700)
    assert any(moved.seconds(*shape, precision) != base.seconds(*shape, precision) for precision in ("bf16", "fp8", "fp4"))


def test_every_gpu_knows_its_own_name() -> None:
    assert all(gpu_profile(name).name == name for name in gpu_names())
