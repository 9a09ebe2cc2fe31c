"""Sessions: whose they are, how many, where they lie, and who shares a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client
from mcp_cases import LLAMA, MIXTRAL, OTHER_TOKEN, TOKEN, Connect, call, environment, refused

from primus_mcp.errors import InputError
from primus_mcp.server.app import build_server
from primus_mcp.server.jobs import JobRunner
from primus_mcp.server.opening import Request
from primus_mcp.server.options import ServeOptions
from primus_mcp.server.resources import PARTS
from primus_mcp.server.sessions import SessionStore
from primus_mcp.tools.results import Noted

pytest_plugins = ("mcp_fixtures",)
TWO_TOKENS = (TOKEN, OTHER_TOKEN)
REQUEST = Request(workload="llama3.1_8B", gpu="mi300x", nodes=1)


def store(home: Path, **more: object) -> SessionStore:
    return SessionStore(ServeOptions(home=home, http=True, **more))  # type: ignore[arg-type]


def test_a_session_of_another_owner_does_not_exist(home: Path) -> None:
    sessions = store(home, tokens=TWO_TOKENS)
    mine = sessions.open(REQUEST, "a" * 32)
    assert sessions.find(mine.session_id, "a" * 32) is mine
    for owner in ("b" * 32, "", "a"):
        with pytest.raises(InputError, match="not a session that is open here"):
            sessions.find(mine.session_id, owner)


def test_two_tokens_have_their_runs_apart_and_cannot_reach_each_others(home: Path) -> None:
    sessions = store(home, tokens=TWO_TOKENS)
    mine, yours = sessions.open(REQUEST, "a" * 32), sessions.open(REQUEST, "b" * 32)
    assert mine.tuning.folder.path != yours.tuning.folder.path
    mine.tuning.scratchpad.append("mine")
    assert yours.tuning.scratchpad.read() == ""
    for request in (
        Request(workload="llama3.1_8B", gpu="mi300x", nodes=1, out_dir=str(mine.tuning.folder.path)),
        Request(workload=str(mine.tuning.folder.path / "trials" / "trial_0000.yaml"), gpu="mi300x", nodes=1),
        Request(workload="llama3.1_8B", gpu="mi300x", nodes=1, out_dir="../../" + "a" * 16 + "/runs/x"),
    ):
        with pytest.raises(InputError, match="outside the allowed folders"):
            sessions.open(request, "b" * 32)


def test_ids_cannot_be_guessed(home: Path) -> None:
    sessions = store(home)
    ids = {sessions.open(Request(workload="llama3.1_8B", gpu="mi300x", nodes=nodes), "").session_id for nodes in (1, 2, 4)}
    assert len(ids) == 3
    assert all(len(session_id) >= 22 for session_id in ids)


def test_the_session_unused_longest_makes_room_and_loses_nothing(home: Path) -> None:
    sessions = store(home, max_sessions=2)
    first, second = (sessions.open(Request(workload="llama3.1_8B", gpu="mi300x", nodes=nodes), "") for nodes in (1, 2))
    first.tuning.scratchpad.append("kept")
    sessions.find(second.session_id, "")
    sessions.open(Request(workload="llama3.1_8B", gpu="mi300x", nodes=4), "")
    with pytest.raises(InputError):
        sessions.find(first.session_id, "")
    assert sessions.open(REQUEST, "").tuning.scratchpad.read() == "kept\n"


def test_a_job_is_known_only_to_its_owner() -> None:
    runner = JobRunner()
    job = runner.start("test", "a", lambda report, should_stop: Noted(characters=1))
    job.finished.wait(5)
    assert runner.find(job.job_id, "a") is job
    with pytest.raises(InputError):
        runner.find(job.job_id, "b")


@pytest.mark.anyio
async def test_a_folder_that_is_no_run_is_not_written_to(home: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "summary.json").write_text("precious")
    async with Client(build_server(ServeOptions(home=home, roots=(root,)))) as client:
        assert "neither" in await refused(client, "open_session", **LLAMA, out_dir=str(root))
        opened = await call(client, "open_session", **LLAMA, out_dir=str(root / "run"))
        assert opened["out_dir"] == str((root / "run").resolve())
        relative = await call(client, "open_session", **LLAMA, out_dir="team/run")
        assert Path(relative["out_dir"]) == home.resolve() / "runs" / "team" / "run"
    assert (root / "summary.json").read_text() == "precious"


@pytest.mark.anyio
async def test_what_if_in_a_folder_of_ones_own_stays_below_it(connect: Connect) -> None:
    async with connect() as client:
        first = await call(client, "open_session", **MIXTRAL, out_dir="mine")
        other = await call(client, "set_cluster", nodes=8)
        assert Path(other["out_dir"]).parents[1] == Path(first["out_dir"])
        assert (await call(client, "set_cluster", nodes=4))["out_dir"] == first["out_dir"]


@pytest.mark.anyio
async def test_inline_yaml_opens_and_resumes(connect: Connect, home: Path) -> None:
    workload = (Path(__file__).parents[2] / "examples" / "workloads" / "llama3.1_8B-FP8-pretrain.yaml").read_text(encoding="utf-8")
    cluster = "target_cluster:\n  name: inline\n  gpu_arch: mi300x\n  num_nodes: 1\n"
    async with connect() as client:
        first = await call(client, "open_session", workload=workload, cluster=cluster)
        await call(client, "evaluate_simulate")
        again = await call(client, "open_session", workload=workload, cluster=cluster)
        assert again["out_dir"] == first["out_dir"]
        assert again["resumed_trials"] == 1
        assert Path(first["out_dir"]).is_relative_to(home.resolve())


@pytest.mark.anyio
async def test_many_sessions_are_listed_in_pages(connect: Connect) -> None:
    async with connect() as client:
        for nodes in (1, 2, 4, 8, 16, 32, 64):
            await call(client, "open_session", **{**LLAMA, "nodes": nodes})
        first = await client.list_resources()
        assert first.next_cursor
        rest = await client.list_resources(cursor=first.next_cursor)
        uris = [str(resource.uri) for resource in (*first.resources, *rest.resources)]
        assert len(uris) == len(set(uris)) == 1 + 7 * len(PARTS)
        assert rest.next_cursor is None


@pytest.mark.anyio
async def test_a_driver_in_another_process_shares_the_folder_of_a_server(home: Path) -> None:
    """Neither loses or doubles a trial, and each sees the other's."""
    driver = """
import sys
from pathlib import Path
from primus_mcp.api import resolve, resolve_cluster, resolve_workload
from primus_mcp.session import TuningSession
from primus_mcp.space.knobs import TrialConfig
p = resolve(resolve_workload("llama3.1_8B"), resolve_cluster("mi300x", nodes=1))
s = TuningSession.open(p.workload, p.target, p.evaluator, Path(sys.argv[1]))
print("ready", flush=True)
for mbs in (1, 2, 4, 8):
    for tp in (1, 2, 4):
        s.evaluate(TrialConfig(mbs=mbs, tp=tp), origin="llm")
"""
    async with Client(build_server(ServeOptions(home=home))) as client:
        opened = await call(client, "open_session", **LLAMA)
        child = subprocess.Popen(
            [sys.executable, "-c", driver, opened["out_dir"]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment()
        )
        assert child.stdout
        assert child.stdout.readline() == b"ready\n"
        for mbs in (8, 4, 2, 1):
            for tp in (4, 2, 1, 8):
                await call(client, "evaluate_simulate", config_json={"mbs": mbs, "tp": tp})
        assert child.wait(60) == 0
        child.stdout.close()
        page = await call(client, "get_history", order="oldest", limit=100)
    assert [trial["trial_id"] for trial in page["trials"]] == list(range(16))
    changes = [(trial["changes"]["mbs"], trial["changes"]["tp"]) for trial in page["trials"]]
    assert len(set(changes)) == 16
