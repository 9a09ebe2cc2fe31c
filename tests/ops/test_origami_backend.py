"""AMD's Origami behind the GEMM interface; skipped where the optional package is not installed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from primus_mcp.errors import InputError, UnknownFigureError
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware import Precision
from primus_mcp.projection.ops.backend import gemm_model, origami_is_installed
from primus_mcp.projection.ops.origami import OrigamiGemm, tile_set

pytestmark = pytest.mark.skipif(not origami_is_installed(), reason="rocm-origami is not installed (make origami)")

K64_TILES = ((64, 64, 64), (64, 128, 64), (128, 64, 64), (128, 128, 64), (128, 256, 64), (256, 128, 64), (256, 256, 64))


@pytest.mark.parametrize("gpu", ["mi300x", "mi325x", "mi350x", "mi355x"])
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_8192_cubed_takes_the_sustained_rate_not_origamis_boost_clock_rate(gpu: str, precision: Precision) -> None:
    cluster = make_cluster(gpu)
    model = OrigamiGemm(cluster)
    assert 2 * 8192**3 / model.seconds(8192, 8192, 8192, precision) == pytest.approx(cluster.profile.sustained_flops[precision], rel=1e-9)
    assert model.raw_seconds(8192, 8192, 8192, precision) < model.seconds(8192, 8192, 8192, precision)


def test_raw_rates_at_8192_cubed_with_tile_k_64_are_the_published_study_s() -> None:
    """963 and 1703 TFLOP/s (bf16, MI300X and MI355X, no 256x224 tile): a change of Origami's version shows here."""
    for gpu, tflops in (("mi300x", 963), ("mi355x", 1703)):
        model = OrigamiGemm(make_cluster(gpu), tiles={"bf16": K64_TILES})
        assert 2 * 8192**3 / model.raw_seconds(8192, 8192, 8192, "bf16") / 1e12 == pytest.approx(tflops, rel=0.01)


def test_fp8_needs_deep_tiles_to_beat_bf16() -> None:
    cluster = make_cluster("mi355x")
    shallow = OrigamiGemm(cluster, tiles={"bf16": K64_TILES, "fp8": K64_TILES})
    deep = OrigamiGemm(cluster)
    assert shallow.raw_seconds(8192, 8192, 8192, "fp8") > 0.9 * shallow.raw_seconds(8192, 8192, 8192, "bf16")
    assert deep.raw_seconds(8192, 8192, 8192, "fp8") < 0.6 * deep.raw_seconds(8192, 8192, 8192, "bf16")
    assert {k for _, _, k in tile_set("fp8")} >= {128, 256}


def test_no_origami_gemm_beats_the_peak() -> None:
    cluster = make_cluster("mi300x")
    model = gemm_model(cluster, "origami")
    for shape in ((8192, 8192, 8192), (16_384, 16_384, 16_384), (4096, 28_672, 8192)):
        assert 2 * shape[0] * shape[1] * shape[2] / model.seconds(*shape, "fp8") < cluster.gpu.peak_flops["fp8"]


def test_a_precision_without_units_is_an_unknown_figure_as_by_the_roofline() -> None:
    for backend in ("origami", "roofline"):
        with pytest.raises(UnknownFigureError, match=r"fp8.*known: bf16"):
            gemm_model(make_cluster("mi250x"), backend).seconds(8192, 8192, 8192, "fp8")


def test_fp4_is_the_roofline_s() -> None:
    cluster = make_cluster("mi355x")
    assert gemm_model(cluster, "origami").seconds(8192, 8192, 8192, "fp4") == gemm_model(cluster, "roofline").seconds(
        8192, 8192, 8192, "fp4"
    )


def test_auto_takes_the_roofline_on_an_amd_gpu_that_origami_does_not_know() -> None:
    unknown = make_cluster("mi355x")
    unknown = replace(unknown, gpu=replace(unknown.gpu, arch="gfx000"))
    assert gemm_model(unknown, "auto").name == "roofline"
    with pytest.raises(InputError, match="no model of"):
        gemm_model(unknown, "origami")


def test_auto_takes_origami_on_amd_and_says_so() -> None:
    assert gemm_model(make_cluster("mi355x"), "auto").name == "origami"


def test_backends_agree_within_a_third_on_training_shapes() -> None:
    cluster = make_cluster("mi355x")
    for shape in ((8192, 8192, 8192), (8192, 28_672, 4096), (8192, 5120, 8192), (4096, 16_384, 6144)):
        origami, roofline = (gemm_model(cluster, name).seconds(*shape, "bf16") for name in ("origami", "roofline"))
        assert origami == pytest.approx(roofline, rel=0.33)


def test_wider_results_and_empty_shapes() -> None:
    model = gemm_model(make_cluster("mi355x"), "origami")
    assert model.seconds(4096, 4096, 8192, "bf16", output_bytes=8) > model.seconds(4096, 4096, 8192, "bf16")
    assert model.seconds(4096, 0, 8192, "bf16") == 0.0
