"""Residual files: one figure a shape, torn or foreign lines are told, evidence of other kernels or GPUs is not mixed in."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from primus_mcp.errors import InputError
from primus_mcp.measurement.calibration import apply_calibration, calibrate
from primus_mcp.measurement.carry import distance, sizes_of
from primus_mcp.measurement.residuals import StoredResidual, keep_residuals, points_of_residuals, read_residuals
from primus_mcp.version import engine_version


def residual(key: str = "dense_mlp:hidden=8", *, gpu: str = "mi300x", slower: float = 1.2, own: bool = True) -> StoredResidual:
    return StoredResidual(
        gpu=gpu,
        profile="dated",
        engine=engine_version(),
        model="toy",
        kind=key.partition(":")[0],
        key=key,
        own_kernels=own,
        device="gpu",
        torch="2.9",
        measured_s=0.01 * slower,
        terms_s={"gemm": 0.008, "memory_bound": 0.002},
        created="2026-01-01",
    )


def test_a_newer_figure_of_a_shape_replaces_the_older_and_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "residuals.jsonl"
    keep_residuals([residual(), residual("moe:hidden=8")], path)
    keep_residuals([residual(slower=1.5), residual(gpu="mi355x")], path)
    found = read_residuals(path)
    assert [(line.kind, line.gpu) for line in found] == [("dense_mlp", "mi300x"), ("moe", "mi300x"), ("dense_mlp", "mi355x")]
    assert [line.measured_s for line in found] == pytest.approx([0.015, 0.012, 0.012])
    assert read_residuals(tmp_path / "absent.jsonl") == ()


def test_two_sessions_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "residuals.jsonl"
    threads = [threading.Thread(target=keep_residuals, args=([residual(f"moe:hidden={n}")], path)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_residuals(path)) == 8


@pytest.mark.parametrize("line", ["{", '{"gpu": "x"}', "null", "\x00"])
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "residuals.jsonl"
    path.write_text(f"{residual().model_dump_json()}\n{line}\n")
    with pytest.raises(InputError, match="line 2 is no residual"):
        read_residuals(path)


def test_layers_that_are_a_fifth_slower_give_multipliers_near_that_and_name_their_points() -> None:
    lines = [residual(f"dense_mlp:hidden={n}") for n in range(1, 9)]
    points, gpu, profile = points_of_residuals(lines)
    found = calibrate(points, gpu=gpu, profile=profile, engine=engine_version(), source="layers")
    assert (found.gpu, found.points) == ("mi300x", 8) and found.multipliers["gemm"] == pytest.approx(1.2, abs=0.06)
    assert found.multipliers["communication"] == 1.0, "nothing was measured there"
    told = apply_calibration({"mlp": 1.0, "a2a": 1.0}, found).text
    assert "8 measured layers" in told and "of layers like them" in told and "traffic" in told
    assert found.error_before == pytest.approx(0.2) and found.error_after < 0.02 and found.log_band is not None


def test_reference_kernels_other_engines_and_several_gpus_are_no_evidence() -> None:
    old = residual().model_copy(update={"engine": "0.0"})
    assert points_of_residuals([residual(own=False), old])[0] == []
    with pytest.raises(InputError, match="several machines"):
        points_of_residuals([residual(), residual(gpu="mi355x")])
    assert len(points_of_residuals([residual(), residual(gpu="mi355x")], "mi355x")[0]) == 1
    assert points_of_residuals([residual()], profile="another")[0] == []


def test_shapes_are_near_when_their_sizes_are() -> None:
    assert sizes_of("moe:experts=8,hidden=4096") == {"experts": 8, "hidden": 4096}
    same, double, flag = "a:gate=0,tokens=8", "a:gate=0,tokens=16", "a:gate=1,tokens=8"
    assert distance(same, same) == 0 < distance(same, double) == pytest.approx(0.6931, abs=1e-4)
    assert distance(same, flag) == 1.0 > distance(same, double)
