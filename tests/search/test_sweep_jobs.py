"""Many processes, or a Ray cluster, find exactly what one process finds; they can be stopped, and die with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import pytest
from process_cases import children, running
from sweep_cases import evaluator

from primus_mcp.errors import InputError, PrimusMcpError
from primus_mcp.reports.sweep_text import proof_text
from primus_mcp.search import sweep as module
from primus_mcp.search.sweep import Sweep, sweep
from primus_mcp.search.sweep_result import SweepResult
from primus_mcp.search.sweep_units import Walker

ONLY = ["tp", "pp", "ep", "vpp", "mbs", "recompute_granularity", "recompute_num_layers", "use_turbo_deepep", "fp8", "pp_schedule"]


def answer(result: SweepResult) -> dict[str, object]:
    return result.model_dump(exclude={"wall_s", "cpu_s"})


def swept(**how: object) -> SweepResult:
    return sweep(evaluator("mixtral_8x7B_v0.1", 1), only=ONLY, levels=[0.8, 0.6], gemm_backend="roofline", **how)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _every_space_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL_SPACE", 0)


def test_two_processes_give_the_answer_of_one_to_the_last_count() -> None:
    alone = swept()
    assert alone.proven and alone.top_proven
    assert answer(swept(jobs=2)) == answer(alone)


def test_workers_end_without_a_word_also_where_they_held_native_objects(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("origami")
    sweep(evaluator("gpt_oss_20B", 1, "mi325x"), only=["tp", "pp", "ep"], gemm_backend="origami", jobs=2)
    assert capfd.readouterr().err == ""


def test_neither_the_order_of_the_work_nor_what_is_known_before_changes_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = swept(top=5)
    units = Walker.units
    monkeypatch.setattr(Walker, "units", lambda self: units(self)[::-1])
    monkeypatch.setattr(module, "EARLY_LOOKS", 3)
    backwards = Sweep(evaluator("mixtral_8x7B_v0.1", 1), only=ONLY, levels=[0.8, 0.6], gemm_backend="roofline", top=5)
    from primus_mcp.space.knobs import TrialConfig

    for one in alone.top[1:]:
        backwards._price(TrialConfig(**one.trial), enumerated=True)
    assert answer(backwards.run()) == answer(alone)


def test_a_stopped_sweep_of_processes_ends_at_once_and_claims_no_proof() -> None:
    asked = iter([False, False, True])
    result = swept(jobs=2, should_stop=lambda: next(asked, True))
    assert result.stopped == "cancelled" and not result.proven
    assert result.gap is None and "up to" not in proof_text(result)
    c = result.counts
    assert c.legal == c.excluded + c.slower + c.over_memory + c.priced + c.open


def test_a_sweep_that_is_stopped_before_it_found_anything_does_not_say_that_nothing_fits() -> None:
    result = sweep(evaluator("mixtral_8x7B_v0.1", 1), only=ONLY, gemm_backend="roofline", jobs=2, should_stop=lambda: True)
    assert not result.top and result.gap is None and "nothing legal fits" not in proof_text(result)


def test_a_worker_of_another_engine_is_refused() -> None:
    problem = Sweep(evaluator("llama3.1_8B", 1)).walker.problem
    with pytest.raises(PrimusMcpError, match="same version"):
        Walker(replace(problem, engine="0.0.0+another"))


_ENDLESS = """
import sys
from primus_mcp.evaluation.evaluators import FullEvaluator, Rules
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.search.sweep import sweep
if __name__ == "__main__":
    cluster = make_cluster("mi355x", num_nodes=32)
    rules = Rules(workload=workload_from_model("deepseek_v3"), cluster=cluster, axes={}, pins={})
    found = sweep(FullEvaluator(rules), gemm_backend="roofline", jobs=2, progress=lambda done, *_: print(done, flush=True))
    print(found.stopped, flush=True)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes through /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_the_sweep(how: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(_ENDLESS, encoding="utf-8")
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        workers = children(process.pid)
        assert len(workers) >= 2
        if how == signal.SIGINT:
            os.killpg(process.pid, how)  # as a terminal does
        else:
            process.kill()
        printed, errors = process.communicate(timeout=60)
    end = time.monotonic() + 30
    while any(running(pid) for pid in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [pid for pid in workers if running(pid)]
    if how == signal.SIGINT:
        assert printed.split()[-1] == b"interrupted" and b"Traceback" not in errors


def test_ray_that_is_missing_or_unreachable_is_bad_input() -> None:
    with pytest.raises(InputError, match="Ray"):
        swept(ray="127.0.0.1:1")


def test_two_workers_of_a_ray_cluster_give_the_answer_of_one_process() -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'primus-mcp[ray]'")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        assert answer(swept(ray="auto")) == answer(swept())
    finally:
        ray.shutdown()


@pytest.mark.parametrize("later", [0.0, 0.5])
def test_a_worker_that_is_killed_is_named_whenever_it_happens(later: float) -> None:
    def kill(done: int, *_: object) -> None:
        for worker in active_children() if done else []:
            worker.kill()
        time.sleep(later)

    with pytest.raises(PrimusMcpError, match="a worker process ended by itself"):
        sweep(evaluator("deepseek_v3", 32), gemm_backend="roofline", jobs=2, progress=kill)
