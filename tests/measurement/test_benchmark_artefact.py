"""The artefact: whole or not at all, of one machine, shared by trials through their shapes; and what it anchors."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from device_cases import MI300X, TE
from test_reduced_run import DENSE, MOE

from primus_mcp.errors import InputError
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.measurement.anchor import AnchorKind, anchor_performance
from primus_mcp.measurement.artefact import Artefact, load, merged, save, with_residuals
from primus_mcp.measurement.device_model import require_same_device
from primus_mcp.measurement.factors import group_of, modelled_s
from primus_mcp.measurement.job import DeviceMemory, Environment, Job, Kernels, RankReport, TransferTime, UnitTime
from primus_mcp.measurement.measure import MeasureSettings, job_for, measure
from primus_mcp.measurement.memory import anchor_memory, memory_residuals
from primus_mcp.measurement.plan import ReducedRun, plan_reduced_run
from primus_mcp.projection.layers.build import decoder_layer
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.settings import layer_settings
from primus_mcp.projection.memory import project_memory
from primus_mcp.projection.ops.backend import gemm_model
from primus_mcp.projection.performance import project_performance

CLUSTER = make_cluster("mi300x")
CONFIG = TrainingConfig(gbs=64, tp=2, sequence_parallel=True)
GPU = MI300X.model_copy(update={"memory_bytes": 206_141_652_992, "clock_mhz": 2100.0, "runtime": "HIP 7.0", "driver": "6.14"})
MEMORY = DeviceMemory(peak_allocated_bytes=8 << 30, peak_reserved_bytes=9 << 30, reserved_bytes=9 << 30, device_bytes=12 << 30)


def pretended(plan: ReducedRun, *, seconds: float = 0.01, kernels: Kernels = TE, environment: Environment = GPU) -> Any:
    """A runner that answers without a device, and counts the units that it was asked for."""

    def run(job: Job, **_: Any) -> tuple[RankReport, ...]:
        run.asked.append([unit.key for unit in job.units])  # type: ignore[attr-defined]
        units = tuple(
            UnitTime(
                key=u.key,
                number=job.number,
                forward_s=seconds * (1 if u.kind == "attention_core" else 2),
                backward_s=seconds * (2 if u.kind == "attention_core" else 5),
                samples=5,
                spread=0.0,
                saved_bytes=1 << 20,
            )
            for u in job.units
        )
        transfers = tuple(
            TransferTime(key=t.key, kind=t.kind, ranks=t.ranks, model_bytes=t.model_bytes, time_s=1e-3) for t in job.transfers
        )
        return tuple(
            RankReport(rank=rank, environment=environment, kernels=kernels, units=units, transfers=transfers, memory=MEMORY)
            for rank in range(job.ranks)
        )

    run.asked = []  # type: ignore[attr-defined]
    return run


def artefact_of(config: TrainingConfig = CONFIG, **options: Any) -> tuple[ReducedRun, Artefact]:
    plan = plan_reduced_run(DENSE, config, gpus=2)
    return plan, measure(plan, None, MeasureSettings(), runner=pretended(plan, **options))


def modelled(config: TrainingConfig, target: Cluster = CLUSTER) -> float:
    return project_performance(DENSE, config, target, gemm_backend="roofline").iteration_s


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    _, artefact = artefact_of()
    save(artefact, tmp_path / "deep" / "bench.json")
    assert load(tmp_path / "deep" / "bench.json") == artefact


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "primus-mcp-benchmark", "version": 2}', "\x00\xff", "1e999"])
def test_a_file_that_is_none_is_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bench.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(InputError, match="no benchmark artefact"):
        load(path)
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / "absent.json")


def test_times_that_cannot_be_are_refused(tmp_path: Path) -> None:
    _, artefact = artefact_of()
    document = json.loads(artefact.model_dump_json())
    document["units"][0]["forward_s"] = -1.0
    (tmp_path / "bench.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"units\.0\.forward_s"):
        load(tmp_path / "bench.json")


def test_a_full_disk_leaves_the_old_artefact(tmp_path: Path) -> None:
    _, artefact = artefact_of()
    path = tmp_path / "bench.json"
    save(artefact, path)
    before = path.read_bytes()
    with (
        mock.patch.object(os, "fsync", side_effect=OSError(errno.ENOSPC, "No space left on device")),
        pytest.raises(InputError, match="No space"),
    ):
        save(artefact.model_copy(update={"ranks": 7}), path)
    assert path.read_bytes() == before and [entry.name for entry in tmp_path.iterdir()] == ["bench.json"]


def test_a_second_trial_measures_only_what_is_new() -> None:
    plan, artefact = artefact_of()
    assert job_for(plan, artefact, MeasureSettings()) is None
    other = plan_reduced_run(DENSE, replace(CONFIG, pp=2, recompute=CONFIG.recompute), gpus=2)
    job = job_for(other, artefact, MeasureSettings())
    assert job is not None and not job.units and [transfer.kind for transfer in job.transfers] == ["point_to_point"]
    wider = plan_reduced_run(DENSE, replace(CONFIG, mbs=2), gpus=2)
    runner = pretended(wider)
    both = measure(wider, artefact, MeasureSettings(), runner=runner)
    assert len(runner.asked[0]) == 5 and not any(key.startswith("optimizer") for key in runner.asked[0])
    assert both.unit(plan.units[0].key) is not None and both.unit(wider.units[0].key) is not None


def test_figures_of_two_machines_or_kernels_are_not_mixed() -> None:
    _, artefact = artefact_of()
    other = artefact.model_copy(update={"environment": GPU.model_copy(update={"torch": "2.10"})})
    with pytest.raises(InputError, match=r"torch 2\.9"):
        merged(artefact, other)
    with pytest.raises(InputError, match="measured with"):
        merged(artefact, artefact.model_copy(update={"kernels": {"linear": "torch", "attention": "torch"}}))


def test_on_the_target_s_own_shape_and_kernels_a_layer_takes_what_was_measured() -> None:
    plan, artefact = artefact_of()
    anchor = anchor_performance(DENSE, CONFIG, CLUSTER, artefact, plan, backend="roofline")
    assert anchor.kind == "kernels"
    forward_s, backward_s = modelled_s(anchor.measured.parts["dense"].pieces)
    assert forward_s == pytest.approx(0.02 + 0.02) and backward_s == pytest.approx(0.05 + 0.05)
    core = [piece for piece in anchor.measured.parts["dense"].pieces if group_of(piece, moe=False) == "attention_core"]
    assert modelled_s(core) == pytest.approx((0.01, 0.02))


def test_measured_as_modelled_the_projection_does_not_change() -> None:
    """Units that take exactly what the model says give the modelled iteration, apart from host time, which measured layers contain."""
    config = replace(CONFIG, full_graph=True)
    plan = plan_reduced_run(DENSE, config, gpus=1)
    part = decoder_layer(Rates(CLUSTER, gemm_model(CLUSTER, "roofline")), DENSE, layer_settings(config), moe=False, windowed=False)
    groups = {
        name: modelled_s([p for p in part.pieces if p.collective is None and group_of(p, moe=False) in names])
        for name, names in {
            "attention_core": {"attention_core"},
            "attention": {"attention_core", "attention_rest"},
            "dense_mlp": {"dense_mlp"},
        }.items()
    }
    _, artefact = artefact_of(config)
    exact = tuple(
        unit.model_copy(update={"forward_s": groups[kind][0], "backward_s": groups[kind][1]})
        for unit in artefact.units
        if (kind := unit.key.split(":")[0]) in groups
    )
    anchor = anchor_performance(
        DENSE, config, CLUSTER, artefact.model_copy(update={"units": exact, "transfers": ()}), plan, backend="roofline"
    )
    found = project_performance(DENSE, config, CLUSTER, gemm_backend="roofline", measured=anchor.measured)
    assert found.iteration_s == pytest.approx(modelled(config), rel=1e-9)


def test_reference_kernels_leave_absolute_times_to_the_model_and_say_so() -> None:
    torch: Kernels = {"linear": "torch", "attention": "torch", "experts": "torch"}
    plan, artefact = artefact_of(kernels=torch, seconds=5.0)
    anchor = anchor_performance(DENSE, CONFIG, CLUSTER, artefact, plan, backend="roofline")
    found = project_performance(DENSE, CONFIG, CLUSTER, gemm_backend="roofline", measured=anchor.measured)
    assert anchor.kind == "reference-kernels" and any("other kernels" in note for note in anchor.notes)
    assert found.iteration_s == pytest.approx(modelled(CONFIG), rel=1e-9)


def test_reference_kernels_anchor_ratios_across_shapes() -> None:
    torch: Kernels = {"linear": "torch", "attention": "torch", "experts": "torch"}
    wide = replace(CONFIG, mbs=4)
    plan, first = artefact_of(kernels=torch)
    first = with_residuals(first, anchor_performance(DENSE, CONFIG, CLUSTER, first, plan, backend="roofline").residuals)
    wide_plan = plan_reduced_run(DENSE, wide, gpus=2)
    both = measure(wide_plan, first, MeasureSettings(), runner=pretended(wide_plan, kernels=torch))
    anchor = anchor_performance(DENSE, wide, CLUSTER, both, wide_plan, backend="roofline")
    # four times the tokens in the same time: the factor of the wide shape is about a quarter, half below the mean of both
    assert anchor.factors["dense"]["dense_mlp"].forward == pytest.approx(0.5, rel=0.1)


def test_experts_and_dense_layers_have_factors_of_their_own() -> None:
    config = TrainingConfig(gbs=64, ep=8)
    plan = plan_reduced_run(MOE, config, gpus=2)
    artefact = measure(plan, None, MeasureSettings(), runner=pretended(plan))
    anchor = anchor_performance(MOE, config, CLUSTER, artefact, plan, backend="roofline")
    assert set(anchor.factors) == {"dense", "moe", "embedding", "head"} and set(anchor.factors["moe"]) == {
        "attention_core",
        "attention_rest",
        "moe",
    }
    assert anchor.measured.traffic["all_to_all"][0][1] > 0


def test_another_device_is_refused_unless_it_is_meant() -> None:
    _, artefact = artefact_of()
    other = make_cluster("mi355x")
    assert require_same_device(artefact, CLUSTER, benchmark_arch=None, force=False) == ()
    with pytest.raises(InputError, match="benchmark_arch"):
        require_same_device(artefact, other, benchmark_arch=None, force=False)
    assert require_same_device(artefact, other, benchmark_arch="mi300x", force=False)
    cpu = artefact.model_copy(update={"environment": GPU.model_copy(update={"device": "cpu", "gpu": None})})
    with pytest.raises(InputError, match="device: cpu"):
        require_same_device(cpu, CLUSTER, benchmark_arch="mi300x", force=False)
    assert require_same_device(cpu, CLUSTER, benchmark_arch=None, force=True)


def test_memory_takes_the_measured_overhead_and_the_sum_still_holds() -> None:
    _, artefact = artefact_of()
    projection = project_memory(DENSE, CONFIG, CLUSTER)
    residuals = memory_residuals(DENSE, CONFIG, artefact)
    assert residuals.overhead_bytes == 3 << 30
    kinds: tuple[AnchorKind, ...] = ("kernels", "reference-kernels")
    for kind in kinds:
        found = anchor_memory(projection, residuals, kind)
        assert "runtime" not in found.worst.components and found.worst.components["measured_overhead"] == 3 << 30
        assert sum(found.worst.components.values()) == found.device_bytes <= found.upper_bytes
        assert ("measured_live_tensors" in found.worst.components) == (kind == "kernels")
