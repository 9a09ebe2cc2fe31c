"""The whole space over MCP: the best become trials, other clusters are compared, long sweeps are jobs that can be cancelled."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_cases import LLAMA, MIXTRAL, Connect, Mode, call, refused

from primus_mcp.search.sweep_result import SweepResult
from primus_mcp.server.app import PrimusServer, build_server
from primus_mcp.server.options import ServeOptions

pytest_plugins = ("mcp_fixtures",)
pytestmark = pytest.mark.anyio
FEW = {"axes": ["tp", "mbs", "recompute_granularity"]}


async def test_the_top_of_a_sweep_become_trials_and_nothing_else(connect: Connect) -> None:
    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        found = await call(client, "sweep", **FEW, top=3)
        assert found["proven"] is True
        assert [row["trial_id"] for row in found["top"]] == [0, 1, 2]
        rates = [row["tokens_per_s_per_gpu"] for row in found["top"]]
        assert rates == sorted(rates, reverse=True)
        history = await call(client, "get_history")
        assert history["total"] == 3
        assert {row["origin"] for row in history["trials"]} == {"sweep"}
        assert (await call(client, "get_best"))["trial_id"] == next(row["trial_id"] for row in found["top"] if row["recommended"])
        for row in found["top"]:
            again = await call(client, "evaluate_simulate", config_json=row["changes"])
            assert again["repeated"] is True
            assert again["tokens_per_s_per_gpu"] == row["tokens_per_s_per_gpu"]
        await call(client, "sweep", **FEW, top=3)
        assert (await call(client, "get_history"))["total"] == 3
        spent = {name: row["spent"] for name, row in (await call(client, "get_budget_status"))["budgets"].items()}
        assert not any(spent.values()), "a sweep is limited by nothing but time"


async def test_every_configuration_of_the_space_is_accounted_for(connect: Connect) -> None:
    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        (told,) = (await call(client, "sweep", **FEW))["clusters"]
        assert sum(told["of_the_legal"].values()) == told["legal"]
        assert sum(told["refused_by_rule"].values()) + told["legal"] == told["combinations"]
        assert told["proof"].startswith("proven under the model")


async def test_conditions_hold_and_nothing_outside_of_them_is_recommended(connect: Connect) -> None:
    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        found = await call(client, "sweep", where="tp=4 and memory_per_gpu_gb<100", **FEW)
        assert found["top"]
        assert all(row["changes"]["tp"] == 4 and row["memory_per_gpu_gb"] < 100 for row in found["top"])
        assert not [line for line in found["how_sure"] if "TP" in line]
        assert "no knob 'tpp'" in await refused(client, "sweep", axes=["tpp"])
        assert "axis is off" in await refused(client, "sweep", axes=["gbs"])
        wrong = await refused(client, "sweep", where="tp<<8")
        assert wrong.startswith("where: ")
        assert "--" not in wrong
        assert "give both" in await refused(client, "sweep", deadline_days=3)
        assert (await call(client, "sweep", axes="tp,mbs", nodes="1"))["proven"], "lists may come as text"


async def test_other_clusters_are_compared_with_the_numbers_that_set_cluster_shows(connect: Connect) -> None:
    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        found = await call(client, "sweep", **FEW, nodes=[1, 2], gpus=["mi300x", "mi355x"], target_tokens=1e12, deadline_days=30)
        rows = {row["cluster"]: row for row in found["top"]}
        assert len(rows) == len(found["clusters"]) == 4
        assert [row["cluster"] for row in found["top"] if row["trial_id"] is not None] == ["mi300x_1nodes"]
        assert (await call(client, "get_history"))["total"] == 1
        assert found["in_time"]
        assert all(point["days"] > 0 for point in found["front"])
        await call(client, "set_cluster", gpu="mi355x", nodes=2)
        there = await call(client, "evaluate_simulate", config_json=rows["mi355x_2nodes"]["changes"])
        assert there["repeated"] is False
        assert there["tokens_per_s_per_gpu"] == rows["mi355x_2nodes"]["tokens_per_s_per_gpu"]
        assert "a100" in (await refused(client, "sweep", gpus=["mi300x", "a100_typo"])).lower()
        assert "at most" in await refused(client, "sweep", nodes=list(range(1, 14)), gpus=["mi300x", "mi355x"])


async def test_a_cluster_that_cannot_run_the_workload_is_told_beside_the_others(connect: Connect) -> None:
    async with connect() as client:
        await call(client, "open_session", **LLAMA, global_batch_size=64)
        found = await call(client, "sweep", **FEW, nodes=[1, 1000])
        assert found["proven"] is False
        assert [row["cluster"] for row in found["top"]] == ["mi300x_1nodes"]
        assert "batch" in found["clusters"][-1]["error"]


async def test_a_long_sweep_is_a_job_that_stops_when_told_and_claims_nothing(hasty: PrimusServer, mode: Mode) -> None:
    async with Client(hasty, mode=mode) as client:
        await call(client, "open_session", **MIXTRAL)
        handle = await call(client, "sweep")
        assert handle["state"] == "running"
        await call(client, "evaluate_simulate")
        await call(client, "cancel_job", job_id=handle["job_id"])
        ended = await call(client, "get_job", job_id=handle["job_id"], wait_s=30)
        assert ended["state"] == "cancelled"
        assert ended["result"]["proven"] is False
        assert "not proven" in ended["result"]["clusters"][0]["proof"]


async def test_progress_never_goes_back_and_tells_the_best(server: PrimusServer, mode: Mode) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with Client(server, mode=mode) as client:
        await call(client, "open_session", **LLAMA)
        await client.call_tool("sweep", {**FEW, "nodes": [1, 2]}, progress_callback=listen)
    assert [entry[0] for entry in heard] == sorted(entry[0] for entry in heard)
    assert {entry[1] for entry in heard} <= {None, 2000}, "none before the work says how much it is"
    assert heard[-1][2]
    assert "legal configurations" in heard[-1][2]


async def test_complaint_10_a_sweep_in_the_server_starts_no_process(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a process pool inside the server")

    monkeypatch.setattr(concurrent.futures.ProcessPoolExecutor, "__init__", refuse)
    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        assert (await call(client, "sweep", **FEW))["proven"]


async def test_the_report_shows_trials_and_sweep_and_is_a_resource(connect: Connect) -> None:
    async with connect() as client:
        opened = await call(client, "open_session", **LLAMA)
        assert "nothing was tried" in await refused(client, "write_report")
        await call(client, "evaluate_simulate")
        assert (await call(client, "write_report"))["swept"] is False
        await call(client, "sweep", **FEW, front=True)
        written = await call(client, "write_report")
        assert written["swept"] is True
        page = Path(written["path"]).read_text(encoding="utf-8")
        read = await client.read_resource(f"primus://sessions/{opened['session_id']}/report")
        assert read.contents[0].text == page  # type: ignore[union-attr]
        assert "Pareto" in page


async def test_the_sureness_of_a_trial_names_what_each_step_changes(connect: Connect) -> None:
    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        await call(client, "evaluate_simulate", config_json={"tp": 1, "mbs": 1})
        assert (await call(client, "explain_trial", trial_id=0))["sensitivity"] is None
        told = (await call(client, "explain_trial", trial_id=0, sensitivity=True, swing=0.1))["sensitivity"]
        assert told["summary"] and told["rates_moved_by"] == 0.1
        assert not [line for line in told["summary"] if "rival" in line or "winner" in line]
        for step in told["one_step"]:
            assert step["change"]
            priced = await call(client, "evaluate_simulate", config_json={"tp": 1, "mbs": 1, **step["change"]})
            base = (await call(client, "get_trial", trial_id=0))["tokens_per_s_per_gpu"]
            assert priced["tokens_per_s_per_gpu"] / base == pytest.approx(step["throughput"], rel=1e-4)


async def test_made_up_numbers_are_not_swept(home: Path, mode: Mode) -> None:
    async with Client(build_server(ServeOptions(home=home, mode="dry")), mode=mode) as client:
        await call(client, "open_session", **LLAMA)
        assert "only a simulated evaluator" in await refused(client, "sweep")


async def test_the_search_can_be_left_out(home: Path) -> None:
    for options in (ServeOptions(home=home, toolsets=("session", "evaluate", "inspect")), ServeOptions(home=home, read_only=True)):
        async with Client(build_server(options)) as client:
            assert "sweep" not in {tool.name for tool in (await client.list_tools()).tools}


def test_every_count_of_a_sweep_is_told() -> None:
    """A new kind of count would silently be missing from the sum."""
    assert set(SweepResult.model_fields["counts"].annotation.model_fields) == {  # type: ignore[union-attr]
        "size",
        "fallen",
        "legal",
        "excluded",
        "slower",
        "over_memory",
        "priced",
        "open",
    }


async def test_complaint_5_nothing_caps_long_work_and_progress_keeps_it_alive(home: Path, mode: Mode) -> None:
    """The time to an answer is the operator's choice; the work goes on after it."""
    heard: list[float] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with Client(build_server(ServeOptions(home=home, answer_within_s=0.3)), mode=mode) as client:
        await call(client, "open_session", **LLAMA)
        handle = dict((await client.call_tool("sweep", {}, progress_callback=listen)).structured_content or {})
        assert handle["state"] == "running"
        assert heard
        with anyio.fail_after(60):
            while (ended := await call(client, "get_job", job_id=handle["job_id"], wait_s=10))["state"] == "running":
                assert ended["total"] == 1000
        assert ended["result"]["proven"] is True
