"""Measured runs as processes: what they answer, and that nothing is left when something dies, hangs, or runs out of memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from truth import architecture_of, config_of, job_of

from primus_mcp.evaluation.measured import plan_for
from primus_mcp.inputs.architecture import LatentAttention
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.measurement.anchor import anchor_performance
from primus_mcp.measurement.device_model import cpu_cluster
from primus_mcp.measurement.job import Job, Kernels, Transfer, TransferKind, Unit
from primus_mcp.measurement.launch import MeasurementError, run_job
from primus_mcp.measurement.measure import MeasureSettings, job_for, measure
from primus_mcp.projection.performance import project_performance

pytestmark = [
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes are counted in /proc"),
]
TORCH: Kernels = {"linear": "torch", "attention": "torch", "experts": "torch"}
SMALL = Unit(kind="embedding", sizes={"tokens": 64, "hidden": 32, "vocab": 128})
ENDLESS = 10_000_000


def job(*units: Unit, ranks: int = 1, transfers: tuple[Transfer, ...] = (), repeats: int = 3, limit_s: float = 100.0) -> Job:
    return Job(
        ranks=ranks,
        device="cpu",
        number="fp32",
        kernels=TORCH,
        units=units,
        transfers=transfers,
        repeats=repeats,
        warm_up=1,
        limit_s=limit_s,
    )


def processes(mark: str) -> list[int]:
    """Processes, this one apart, whose command line holds a text."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if mark in line:
                found.append(int(entry.name))
    return found


def ranks_of(folder: Path) -> list[int]:
    """The ranks of the run in a folder, without their launcher."""
    return [pid for pid in processes(str(folder)) if b"torch.distributed.run" not in Path(f"/proc/{pid}/cmdline").read_bytes()]


def wait_for(condition: Callable[[], bool], seconds: float = 90.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.2)
    return condition()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary files of a run lie here, so its processes can be found by it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_one_rank_measures_a_dense_layer_and_anchors_the_projection(folder: Path) -> None:
    told: list[str] = []
    description = job_of("one")
    arch, config, cluster = architecture_of(description), config_of(description), cpu_cluster(1)
    plan = plan_for(arch, config, cluster, 1)
    artefact = measure(plan, None, MeasureSettings(device="cpu", repeats=3, warm_up=1, lock=folder / "lock"), progress=told.append)
    anchor = anchor_performance(arch, config, cluster, artefact, plan, backend="roofline")
    found = project_performance(arch, config, cluster, gemm_backend="roofline", measured=anchor.measured)
    layers_s = arch.num_layers * sum(
        unit.forward_s + unit.backward_s for unit in artefact.units if unit.key.split(":")[0] in ("attention", "dense_mlp")
    )
    assert anchor.kind == "kernels" and artefact.environment.device == "cpu"
    assert found.iteration_s >= layers_s * config.gbs * 0.999
    assert told[0].startswith("layer 1 of") and told[-1].startswith("done")
    assert not processes(str(folder))


@pytest.mark.parametrize(("kind", "ranks"), [("mla", 1), ("moe", 2), ("dense", 4)])
def test_every_kind_of_toy_goes_the_whole_way_on_one_two_and_four_ranks(folder: Path, kind: str, ranks: int) -> None:
    arch = architecture_of({**job_of("ep" if kind == "moe" else "one"), "seq": 64, "hidden": 128, "vocab": 256})
    if kind == "mla":
        latent = LatentAttention(q_lora_rank=48, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16)
        arch = replace(arch, latent_attention=latent, qk_norm=True)
    config = TrainingConfig(gbs=8, tp=ranks if kind == "dense" else 1, ep=ranks if kind == "moe" else 1, sequence_parallel=kind == "dense")
    cluster = cpu_cluster(ranks)
    plan = plan_for(arch, config, cluster, ranks)
    artefact = measure(plan, None, MeasureSettings(device="cpu", repeats=3, warm_up=1, lock=folder / "lock"))
    anchor = anchor_performance(arch, config, cluster, artefact, plan, backend="roofline")
    found = project_performance(arch, config, cluster, gemm_backend="roofline", measured=anchor.measured)
    assert artefact.ranks == plan.ranks == ranks and anchor.kind == "kernels" and not anchor.notes
    assert {unit.key for unit in plan.units} == {unit.key for unit in artefact.units}
    assert {transfer.key for transfer in plan.transfers} == {transfer.key for transfer in artefact.transfers}
    assert sum(found.time_breakdown_s.values()) == pytest.approx(found.iteration_s)


def test_two_ranks_time_every_collective(folder: Path) -> None:
    kinds: tuple[TransferKind, ...] = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "point_to_point")
    transfers = tuple(Transfer(kind=kind, ranks=2, elements=4096, model_bytes=8192) for kind in kinds)
    first, second = run_job(job(SMALL, ranks=2, transfers=transfers), lock=folder / "lock")
    assert [transfer.kind for transfer in first.transfers] == list(kinds)
    assert first.transfers == second.transfers, "the slowest rank's time is everybody's"


def test_out_of_memory_is_told_as_such(folder: Path) -> None:
    huge = Unit(kind="embedding", sizes={"tokens": 1, "hidden": 1 << 20, "vocab": 1 << 24})
    with pytest.raises(MeasurementError) as caught:
        run_job(job(huge), lock=folder / "lock")
    assert caught.value.failure == "out_of_memory" and not processes(str(folder))


def test_a_part_that_its_kernels_refuse_costs_only_itself(folder: Path) -> None:
    description = job_of("one")
    arch, config, cluster = architecture_of(description), config_of(description), cpu_cluster(1)
    plan = plan_for(arch, config, cluster, 1)
    broken = {unit.key: unit.model_copy(update={"sizes": {**unit.sizes, "groups": 3}}) for unit in plan.units if unit.kind == "attention"}
    odd = replace(plan, units=tuple(broken.get(unit.key, unit) for unit in plan.units))
    artefact = measure(odd, None, MeasureSettings(device="cpu", repeats=3, warm_up=1, lock=folder / "lock"))
    assert len(artefact.units) == len(plan.units) - 1
    assert [failure.key.split(":")[0] for failure in artefact.failures] == ["attention"] and "Error" in artefact.failures[0].text
    again = job_for(odd, artefact, MeasureSettings(device="cpu"))
    assert again is not None and [unit.kind for unit in again.units] == ["attention"]
    anchor = anchor_performance(arch, config, cluster, artefact, odd, backend="roofline")
    assert set(anchor.factors["dense"]) == {"attention_core", "dense_mlp"}
    assert any("attention_rest of dense layers was not measured" in note for note in anchor.notes)


def test_a_run_without_any_figure_is_an_error_with_the_first_reason(folder: Path) -> None:
    odd = Unit(kind="attention_core", sizes={"mbs": 1, "seq": 8, "heads": 4, "groups": 3, "qk_dim": 8, "v_dim": 8, "window": 0})
    with pytest.raises(MeasurementError, match="no part of the measured run gave a figure; the first: RuntimeError") as caught:
        run_job(job(odd), lock=folder / "lock")
    assert caught.value.failure == "crashed" and not caught.value.partial


@pytest.mark.parametrize("failure", ["timeout", "out_of_memory"])
def test_what_was_measured_before_the_end_is_handed_over(folder: Path, failure: str) -> None:
    slow = Unit(kind="dense_mlp", sizes={"tokens": 16_384, "hidden": 4096, "width": 16_384, "gated": 1})
    huge = Unit(kind="embedding", sizes={"tokens": 1, "hidden": 1 << 20, "vocab": 1 << 24})
    last = slow if failure == "timeout" else huge
    with pytest.raises(MeasurementError) as caught:
        run_job(job(SMALL, last, limit_s=10.0 if failure == "timeout" else 100.0), lock=folder / "lock")
    assert caught.value.failure == failure
    (report,) = caught.value.partial
    assert [unit.key for unit in report.units] == [SMALL.key]
    assert [found.key for found in report.failures] == [last.key]
    assert wait_for(lambda: not processes(str(folder)), 10)


def struck(folder: Path, number: signal.Signals, limit_s: float, wait_s: float) -> MeasurementError:
    """How a run of two ranks without end fails when one of them gets a signal; no process is left."""
    caught: list[MeasurementError] = []

    def run() -> None:
        try:
            run_job(job(SMALL, ranks=2, repeats=ENDLESS, limit_s=limit_s), lock=folder / "lock")
        except MeasurementError as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert wait_for(lambda: len(ranks_of(folder)) == 2)
    os.kill(ranks_of(folder)[0], number)
    thread.join(wait_s)
    assert caught and wait_for(lambda: not processes(str(folder)), 10)
    return caught[0]


def test_a_rank_that_hangs_does_not_hold_the_others_beyond_the_limit(folder: Path) -> None:
    assert struck(folder, signal.SIGSTOP, limit_s=20.0, wait_s=150).failure == "timeout"


def test_a_device_that_is_not_there_is_named(folder: Path) -> None:
    if Path("/dev/kfd").exists() or Path("/dev/nvidiactl").exists():
        pytest.skip("this host has a GPU")
    gpu = job(SMALL).model_copy(update={"device": "gpu", "number": "bf16"})
    with pytest.raises(MeasurementError, match=r"sees 0 GPUs here, the run needs 1") as caught:
        run_job(gpu, lock=folder / "lock")
    assert caught.value.failure == "crashed" and not processes(str(folder))


def test_a_run_over_its_time_is_ended(folder: Path) -> None:
    with pytest.raises(MeasurementError) as caught:
        run_job(job(SMALL, repeats=ENDLESS, limit_s=1.0), lock=folder / "lock")
    assert caught.value.failure == "timeout" and wait_for(lambda: not processes(str(folder)), 10)


def test_one_run_at_a_time(folder: Path) -> None:
    from filelock import FileLock

    with FileLock(folder / "lock"), pytest.raises(MeasurementError) as caught:
        run_job(job(SMALL), lock=folder / "lock")
    assert caught.value.failure == "busy"


def test_a_rank_that_is_killed_ends_the_run_with_a_reason(folder: Path) -> None:
    assert struck(folder, signal.SIGKILL, limit_s=100.0, wait_s=90).failure == "crashed"


def test_nothing_survives_a_kill_of_the_program_that_measures(folder: Path) -> None:
    text = job(SMALL, ranks=2, repeats=ENDLESS).model_dump_json()
    program = (
        "import sys; from pathlib import Path; from primus_mcp.measurement.job import Job;"
        "from primus_mcp.measurement.launch import run_job;"
        "run_job(Job.model_validate_json(sys.argv[1]), lock=Path(sys.argv[2]))"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, text, str(folder / "lock")], stdin=subprocess.DEVNULL)
    assert wait_for(lambda: len(processes("primus-mcp-measure-")) >= 3 and len(processes(str(folder))) >= 4)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert wait_for(lambda: not processes(str(folder)), 60)
