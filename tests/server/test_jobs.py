"""Long work: progress, handles, cancellation, and answers in time."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp_cases import LLAMA, Mode, call, refused
from process_cases import running

from primus_mcp.errors import InputError
from primus_mcp.measurement import launch
from primus_mcp.server.app import PrimusServer
from primus_mcp.server.jobs import MAX_EACH, MAX_RUNNING, JobRunner
from primus_mcp.session import SeedRun, TuningSession
from primus_mcp.tools.results import Noted, Result

pytest_plugins = ("mcp_fixtures",)


class SlowSeeds:
    """Replaces the seed plan: ten steps, each waits for `go` or a stop."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.steps = 0

    def __call__(
        self, session: TuningSession, plan: object = None, *, progress: Callable[..., None], should_stop: Callable[[], bool]
    ) -> SeedRun:
        while self.steps < 10 and not should_stop():
            self.steps += 1
            progress(self.steps, 10, None)
            self.go.wait(0.03)
        stopped = should_stop()
        return SeedRun(stopped_because="cancelled" if stopped else "seed plan finished", priced=self.steps, skipped=())


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowSeeds]:
    seeds = SlowSeeds()
    monkeypatch.setattr(TuningSession, "run_seeds", lambda self, plan=None, **more: seeds(self, plan, **more))
    yield seeds
    seeds.go.set()


@asynccontextmanager
async def opened(server: PrimusServer, mode: Mode) -> AsyncIterator[Client]:
    async with Client(server, mode=mode) as client:
        await call(client, "open_session", **LLAMA)
        yield client


@pytest.mark.anyio
async def test_progress_is_reported_while_it_is_asked_for_and_never_after_the_answer(
    server: PrimusServer, mode: Mode, slow: SlowSeeds
) -> None:
    """Complaint 6: a progress message after the response makes a client drop the connection."""
    heard: list[float] = []
    answered = False

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        assert not answered
        heard.append(progress)
        assert total == 10
        assert message

    async with opened(server, mode) as client:
        result = await client.call_tool("seed_trials", {}, progress_callback=listen)
        answered = True
        assert not result.is_error
        await anyio.sleep(0.3)
    assert heard == sorted(heard)
    assert len(heard) >= 2


@pytest.mark.anyio
async def test_complaints_1_to_4_work_that_takes_longer_than_a_client_waits_returns_a_handle_and_its_result_later(
    hasty: PrimusServer, mode: Mode, slow: SlowSeeds
) -> None:
    async with opened(hasty, mode) as client:
        handle = await call(client, "seed_trials")
        assert handle["state"] == "running"
        assert "get_job" in handle["next"]
        ended = await call(client, "get_job", job_id=handle["job_id"], wait_s=20)
        assert ended["state"] == "finished"
        assert ended["result"]["priced"] == 10
        again = await call(client, "get_job", job_id=handle["job_id"])
        assert again["result"] == ended["result"]


def test_no_answer_takes_longer_than_clients_wait() -> None:
    from primus_mcp.server.host import MAX_WAIT_S
    from primus_mcp.server.options import ANSWER_WITHIN_S
    from primus_mcp.tools.llm import TIMEOUT_S

    assert max(MAX_WAIT_S, ANSWER_WITHIN_S, TIMEOUT_S) <= 50


@pytest.mark.anyio
async def test_a_job_can_be_cancelled_and_says_so(hasty: PrimusServer, mode: Mode, slow: SlowSeeds) -> None:
    async with opened(hasty, mode) as client:
        handle = await call(client, "seed_trials")
        ended = await call(client, "cancel_job", job_id=handle["job_id"])
        assert ended["state"] == "cancelled"
        assert slow.steps < 10
        assert "job_id" in await refused(client, "get_job", job_id="j_unknown")


@pytest.mark.anyio
async def test_complaint_33_a_cancelled_call_cancels_its_work_and_the_server_goes_on(
    server: PrimusServer, mode: Mode, slow: SlowSeeds
) -> None:
    async with opened(server, mode) as client:
        with anyio.move_on_after(0.1):
            await client.call_tool("seed_trials", {})
        await call(client, "list_gpus")
        for _ in range(100):
            jobs = list(server.app.jobs._jobs.values())
            if jobs and jobs[0].state == "cancelled":
                break
            await anyio.sleep(0.02)
        assert jobs[0].state == "cancelled"
        assert slow.steps < 10


@pytest.mark.anyio
async def test_complaint_11_other_calls_are_answered_while_long_work_runs(server: PrimusServer, mode: Mode, slow: SlowSeeds) -> None:
    async with opened(server, mode) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "seed_trials", {})
        while slow.steps == 0:
            await anyio.sleep(0.01)
        await call(client, "get_budget_status")
        await call(client, "evaluate_simulate")
        assert slow.steps < 10
        slow.go.set()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "name", ["evaluate_simulate", "explain_trial", "get_history", "plot_trials", "open_session", "export_best", "sweep", "write_report"]
)
async def test_complaint_33_any_call_may_be_cancelled(server: PrimusServer, mode: Mode, name: str) -> None:
    async with opened(server, mode) as client:
        await call(client, "evaluate_simulate")
        arguments: dict[str, object] = {"trial_id": 0} if name == "explain_trial" else dict(LLAMA) if name == "open_session" else {}
        with anyio.move_on_after(0.001):
            await client.call_tool(name, arguments)
        assert (await call(client, "get_history"))["total"] == 1


def _runner_job(runner: JobRunner, work: Callable[..., Result], owner: str = "") -> object:
    return runner.start("test", owner, lambda report, should_stop: work(should_stop))


def test_the_number_of_jobs_at_once_is_limited() -> None:
    runner, go = JobRunner(), threading.Event()

    def work(should_stop: Callable[[], bool]) -> Result:
        go.wait(20)
        return Noted(characters=0)

    for _ in range(MAX_EACH):
        _runner_job(runner, work)
    with pytest.raises(InputError, match="cancel_job: j_"):
        _runner_job(runner, work)
    for number in range(MAX_RUNNING - MAX_EACH):
        _runner_job(runner, work, owner=f"other {number}")
    with pytest.raises(InputError, match="other clients"):
        _runner_job(runner, work, owner="the last")
    go.set()
    runner.stop_all(5)


def test_a_bug_in_a_job_is_a_failed_job_that_tells_nothing() -> None:
    runner = JobRunner()

    def work(report: object, should_stop: object) -> Result:
        raise RuntimeError("secret detail")

    job = runner.start("test", "", work)
    job.finished.wait(5)
    assert job.state == "failed"
    assert "secret" not in str(job.error)


def test_stopping_gives_work_the_time_to_end_its_child_processes() -> None:
    runner = JobRunner()
    children: list[subprocess.Popen[bytes]] = []

    def work(report: object, should_stop: Callable[[], bool]) -> Result:
        children.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdin=subprocess.DEVNULL))
        while not should_stop():
            time.sleep(0.01)
        children[0].kill()
        children[0].wait()
        return Noted(characters=0)

    runner.start("test", "", work)
    while not children:
        time.sleep(0.01)
    runner.stop_all(5)
    assert children[0].poll() is not None


@pytest.mark.skipif(sys.platform == "win32", reason="process groups")
@pytest.mark.anyio
async def test_cancelling_a_measured_run_ends_its_processes_as_a_group(
    hasty: PrimusServer, mode: Mode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    rank = "import time; time.sleep(60)"
    launcher = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {rank!r}])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setattr(launch, "command", lambda *_: [sys.executable, "-c", launcher])
    monkeypatch.setattr(launch, "find_spec", lambda _: object())
    monkeypatch.setattr(launch, "cache_folder", lambda: tmp_path)
    cluster = (
        "target_cluster: {gpu_arch: mi300x, num_nodes: 1}\n"
        "available_for_benchmark: {has_gpu: true, benchmark_gpus: 1, benchmark_arch: mi300x}\n"
    )
    async with Client(hasty, mode=mode) as client:
        await call(client, "open_session", workload="llama3.1_8B", cluster=cluster)
        handle = await call(client, "evaluate_with_benchmark", config_json={"recompute_granularity": "full", "mbs": 1})
        assert handle["state"] == "running", handle
        with anyio.fail_after(20):
            while not (pids.exists() and pids.read_text()):
                await anyio.sleep(0.05)
        await call(client, "cancel_job", job_id=handle["job_id"])
        ended = await call(client, "get_job", job_id=handle["job_id"], wait_s=20)
        assert ended["state"] == "cancelled"
        assert "cancelled" in ended["error"]
        assert (await call(client, "get_history"))["total"] == 0
        spent = (await call(client, "get_budget_status"))["budgets"]["max_benchmark_calls"]["spent"]
        assert spent == 1, "a cancelled run has cost its reservation"
    with anyio.fail_after(20):
        while any(running(int(pid)) for pid in pids.read_text().split()):
            await anyio.sleep(0.05)
