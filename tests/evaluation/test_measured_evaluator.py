"""The measuring evaluator: cheap refusals first, one artefact for many trials, and what the answer says about its anchor."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from device_cases import MI300X, TE, answer

from primus_mcp.errors import InputError
from primus_mcp.evaluation.accuracy import accuracy_of
from primus_mcp.evaluation.evaluators import FullEvaluator, Rules, make_evaluator
from primus_mcp.evaluation.measured import BenchmarkSettings, MeasuredEvaluator
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.measurement.artefact import load
from primus_mcp.measurement.job import Job, Kernels, RankReport, UnitFailure
from primus_mcp.measurement.launch import MeasurementError
from primus_mcp.measurement.measure import MeasureSettings
from primus_mcp.space.knobs import TrialConfig

PLAIN: Kernels = {"linear": "torch", "attention": "torch", "experts": "torch"}


class Device:
    """Answers for a GPU: every unit takes 10 ms forward and 20 ms backward."""

    def __init__(self, gpu: str | None = "mi300x", kernels: Kernels = TE) -> None:
        self.jobs: list[Job] = []
        self.kernels = kernels
        self.environment = MI300X.model_copy(update={"name": f"AMD Instinct {gpu}", "gpu": gpu})

    def run(self, job: Job, **_: Any) -> tuple[RankReport, ...]:
        self.jobs.append(job)
        return (answer(job, self.environment, self.kernels),)


def evaluator(device: Device, *, both: bool = False, **settings: Any) -> MeasuredEvaluator:
    workload = workload_from_model("llama3.1_8B", seq_length=4096, gbs=128)
    rules = Rules(workload=workload, cluster=make_cluster("mi300x"), axes={}, pins={}, allow_policy=True)
    made = make_evaluator(
        rules,
        profiling_mode="both" if both else "benchmark",
        has_gpu=True,
        gemm_backend="roofline",
        benchmark=BenchmarkSettings(gpus=8, runner=device.run, **settings),
    )
    assert isinstance(made, MeasuredEvaluator)
    return made


def text_of(result: EvaluationResult, code: str) -> str:
    return " | ".join(warning.text for warning in result.warnings if warning.code == code)


def test_measured_layers_replace_modelled_ones_and_the_answer_says_so() -> None:
    device = Device()
    result = evaluator(device).evaluate(TrialConfig(mbs=1))
    assert (result.fidelity, result.source) == ("benchmark", "benchmark") and result.iteration_ms is not None
    # 32 layers of (20 + 10) ms forward and (40 + 20) ms backward for 16 micro-batches, and the ends
    assert result.iteration_ms > 16 * 32 * 90
    assert "anchor: kernels" in text_of(result, "anchor") and "device: gpu" in text_of(result, "anchor")
    assert result.memory_breakdown is not None and result.memory_breakdown["measured_overhead"] == 8.0
    assert sum(result.memory_breakdown.values()) == pytest.approx(result.memory_per_gpu_gb)


def test_reference_kernels_keep_the_class_and_confidence_of_the_projection() -> None:
    result = evaluator(Device(kernels=PLAIN)).evaluate(TrialConfig(mbs=1))
    assert result.fidelity == "simulate" and result.confidence == accuracy_of("simulate", "amd").text
    assert "anchor: reference-kernels" in text_of(result, "anchor")


def test_both_modes_are_told_side_by_side() -> None:
    result = evaluator(Device(), both=True).evaluate(TrialConfig(mbs=1))
    told = text_of(result, "simulate_against_benchmark")
    assert result.source == "both" and "iteration: simulate" in told and "memory: simulate" in told


def test_layers_are_measured_once_for_all_trials_and_kept_in_the_store(tmp_path: Path) -> None:
    device, store = Device(), tmp_path / "bench.json"
    first = evaluator(device, store=store)
    first.evaluate(TrialConfig(mbs=1))
    first.evaluate(TrialConfig(mbs=1, recompute_granularity="full", recompute_num_layers=16))
    assert len(device.jobs) == 1, "recompute runs the same layers"
    first.evaluate(TrialConfig(mbs=2))
    assert len(device.jobs) == 2
    again = Device()
    evaluator(again, store=store).evaluate(TrialConfig(mbs=2))
    assert not again.jobs and len(load(store).units) > 6


def test_other_kernels_are_measured_apart_and_each_only_once(tmp_path: Path) -> None:
    device, store = Device(), tmp_path / "bench.json"
    made = evaluator(device, store=store)
    config = made.rules.check(TrialConfig(mbs=1)).config
    assert config is not None
    turbo = replace(config, turbo_attention=True)
    for _ in range(2):
        made.price(TrialConfig(mbs=1), config)
        made.price(TrialConfig(mbs=1), turbo)
    assert [job.kernels["attention"] for job in device.jobs] == ["te", "turbo"]
    assert load(store).wanted["attention"] == "te"


def test_what_cannot_fit_or_is_illegal_is_not_measured() -> None:
    device = Device()
    made = evaluator(device)
    assert made.evaluate(TrialConfig(mbs=16)).within_margin is False
    assert not made.evaluate(TrialConfig(tp=3)).legal
    assert not device.jobs


def test_a_run_is_started_for_a_trial_that_is_legal_and_may_fit_alone() -> None:
    made = evaluator(Device())
    assert [made.starts_a_run(TrialConfig(**knobs)) for knobs in ({"mbs": 1}, {"mbs": 16}, {"tp": 3})] == [True, False, False]  # type: ignore[arg-type]


def test_out_of_memory_is_a_result_and_a_crash_is_not() -> None:
    def fails(failure: Any) -> Any:
        def run(*_: Any, **__: Any) -> tuple[RankReport, ...]:
            raise MeasurementError(failure, "rank 0 says why")

        return run

    device = Device()
    device.run = fails("out_of_memory")  # type: ignore[method-assign]
    result = evaluator(device).evaluate(TrialConfig(mbs=1))
    assert result.legal and result.within_margin is False and result.reason == "rank 0 says why" and result.tokens_per_s_per_gpu is None
    device.run = fails("crashed")  # type: ignore[method-assign]
    with pytest.raises(MeasurementError, match="says why"):
        evaluator(device).evaluate(TrialConfig(mbs=1))


def test_what_a_broken_off_run_had_measured_is_kept_and_only_the_rest_is_measured_again(tmp_path: Path) -> None:
    store, device = tmp_path / "bench.json", Device()

    def ends_early(job: Job, **_: Any) -> tuple[RankReport, ...]:
        whole = Device().run(job)[0]
        late = UnitFailure(key=job.units[2].key, text="the run ended while it was measured")
        raise MeasurementError("timeout", "it took too long", (whole.model_copy(update={"units": whole.units[:2], "failures": (late,)}),))

    made = evaluator(device, store=store)
    made._settings = replace(made._settings, runner=ends_early)
    with pytest.raises(MeasurementError, match=r"2 measured parts are in .*bench\.json: run again"):
        made.evaluate(TrialConfig(mbs=1))
    assert len(load(store).units) == 2 and load(store).failures
    assert evaluator(device, store=store).evaluate(TrialConfig(mbs=1)).iteration_ms is not None
    (job,) = device.jobs
    assert len(job.units) == 4 and job.units[-1].key == "dense_mlp:" + job.units[-1].key.partition(":")[2], "what failed comes last"
    assert not load(store).failures


def test_a_full_disk_costs_the_file_not_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    made = evaluator(Device(), store=tmp_path / "bench.json", residuals=(tmp_path / "residuals.jsonl",))
    result = made.evaluate(TrialConfig(mbs=1))
    assert result.iteration_ms is not None and "the artefact is not kept" in text_of(result, "benchmark_note")
    assert "residuals are not kept" in text_of(result, "benchmark_note")
    assert not [entry.name for entry in tmp_path.iterdir() if not entry.name.endswith(".lock")]


def test_without_a_gpu_known_figures_anchor_their_own_shapes_and_only_guide_others(tmp_path: Path) -> None:
    store = tmp_path / "bench.json"
    measured = evaluator(Device(), store=store).evaluate(TrialConfig(mbs=1))
    device = Device()
    rules = evaluator(device).rules
    settings = BenchmarkSettings(gpus=0, runner=device.run, known=load(store))
    made = make_evaluator(rules, profiling_mode="benchmark", has_gpu=False, gemm_backend="roofline", benchmark=settings)
    again, wider = made.evaluate(TrialConfig(mbs=1)), made.evaluate(TrialConfig(mbs=2))
    assert not made.measures and not device.jobs
    assert (again.fidelity, again.iteration_ms) == ("benchmark", measured.iteration_ms)
    assert wider.fidelity == "simulate" and "its factor is that of" in text_of(wider, "benchmark_note")
    assert wider.iteration_ms != FullEvaluator(rules, gemm_backend="roofline").evaluate(TrialConfig(mbs=2)).iteration_ms


def test_a_session_keeps_layers_and_residuals_in_its_out_dir(tmp_path: Path) -> None:
    device = Device()
    made = evaluator(device)
    made.keep_in(tmp_path)
    made.evaluate(TrialConfig(mbs=1))
    assert {entry.name for entry in tmp_path.iterdir()} >= {"benchmark.json", "residuals.jsonl"}
    again = evaluator(device)
    again.keep_in(tmp_path)
    again.evaluate(TrialConfig(mbs=1))
    assert len(device.jobs) == 1


def test_figures_of_another_device_are_refused_unless_they_are_meant() -> None:
    with pytest.raises(InputError, match="benchmark_arch"):
        evaluator(Device(gpu="h200")).evaluate(TrialConfig(mbs=1))
    told = evaluator(Device(gpu="h200"), benchmark_arch="h200").evaluate(TrialConfig(mbs=1))
    assert "carried from one GPU to the other" in text_of(told, "benchmark_note")
    with pytest.raises(InputError, match=r"not in the catalogue|benchmark_arch"):
        evaluator(Device(gpu=None)).evaluate(TrialConfig(mbs=1))
    device = Device()
    with pytest.raises(InputError, match="device: cpu"):
        evaluator(device, measure=MeasureSettings(device="cpu")).evaluate(TrialConfig(mbs=1))
    assert not device.jobs, "refused before anything was measured"
