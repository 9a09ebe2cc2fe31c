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
from primus_mcp.measurement.measure import MeasureSettings, measure
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
    caught: list[MeasurementError] = []

    def run() -> None:
        try:
            run_job(job(SMALL, ranks=2, repeats=ENDLESS), lock=folder / "lock")
        except MeasurementError as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    ranks: list[int] = []

    def found() -> bool:
        ranks[:] = [pid for pid in processes(str(folder)) if b"torch.distributed.run" not in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return len(ranks) == 2

    assert wait_for(found)
    os.kill(ranks[0], signal.SIGKILL)
    thread.join(90)
    assert caught and caught[0].failure == "crashed" and wait_for(lambda: not processes(str(folder)), 10)


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
