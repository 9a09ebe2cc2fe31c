"""What users complained about in other MCP servers, each as a test named `complaint_N`; some stand in the file of their subject.

All of them can happen here. The numbers are those of the public reports below.
"""

from __future__ import annotations

import ast
import json
import math
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_cases import LLAMA, Connect, Mode, call, command, environment, refused, text_of

from primus_mcp.errors import InputError
from primus_mcp.evaluation.evaluators import FullEvaluator
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.server.app import PrimusServer, build_server
from primus_mcp.server.options import ServeOptions
from primus_mcp.tools import TOOLS
from primus_mcp.tools.history import MAX_PAGE
from primus_mcp.tools.results import Result
from primus_mcp.tools.text import MAX_RESULT_CHARACTERS

pytest_plugins = ("mcp_fixtures",)
TESTS = Path(__file__).parent
PACKAGE = TESTS.parents[1] / "primus_mcp"
REPORTS = {
    1: "modelcontextprotocol/typescript-sdk#2250",
    2: "anthropics/claude-code#22542",
    3: "anthropics/claude-code#65643",
    4: "anthropics/claude-code#69487",
    5: "datalayer/jupyter-mcp-server#298",
    6: "anthropics/claude-code#47765",
    7: "twentyhq/twenty#24559",
    8: "hustcc/mcp-mermaid#25",
    9: "modelcontextprotocol/python-sdk#671",
    10: "modelcontextprotocol/python-sdk#817",
    11: "UMEP-dev/SUEWS#1439",
    12: "anthropics/claude-code#27707",
    13: "Q00/ouroboros#2325",
    14: "modelcontextprotocol/python-sdk#3551",
    15: "Comfy-Org/comfy-mcp#267",
    16: "glazperle/kimai_mcp#18",
    17: "modelcontextprotocol/python-sdk#3341",
    18: "anthropics/claude-code#79944",
    19: "dbt-labs/dbt-mcp#178",
    20: "datalayer/jupyter-mcp-server#200",
    21: "PrefectHQ/fastmcp#1036",
    22: "anthropics/claude-code#13717",
    23: "github/copilot-cli#1876",
    24: "makenotion/notion-mcp-server#341",
    25: "HKUDS/Vibe-Trading#993",
    26: "modelcontextprotocol/servers#760",
    27: "anthropics/claude-code#44764",
    28: "anthropics/claude-code#38381",
    29: "palewire/datawrapper-mcp#82",
    30: "ry-ops/unifi-mcp-server#39",
    31: "tsmztech/mcp-server-salesforce#154",
    32: "ArnasDon/wacrm#356",
    33: "nelssec/qualys-mcp#213",
}


def test_every_report_is_held_by_a_test() -> None:
    held: set[int] = set()
    for file in TESTS.glob("test_*.py"):
        for name in re.findall(r"def (test_complaints?_[0-9a-z_]+)", file.read_text(encoding="utf-8")):
            numbers = [int(word) for word in re.findall(r"_(\d+)(?=_)", name)]
            held |= set(range(numbers[0], numbers[-1] + 1)) if "_to_" in name else set(numbers)
    assert held >= set(REPORTS), sorted(set(REPORTS) - held)


@pytest.mark.anyio
async def test_complaint_6_no_progress_follows_an_answer(connect: Connect) -> None:
    heard: list[float] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        await client.call_tool("seed_trials", {}, progress_callback=listen)
        before = len(heard)
        await anyio.sleep(0.3)
        assert len(heard) == before


def test_complaint_7_progress_carries_the_clients_token_and_none_comes_unasked(home: Path) -> None:
    lines: list[dict[str, Any]] = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "open_session", "arguments": LLAMA}},
        {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "tools/call",
            "params": {"name": "seed_trials", "arguments": {}, "_meta": {"progressToken": "tok-1"}},
        },
        {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "seed_trials", "arguments": {}}},
    ]
    process = subprocess.Popen(
        command("serve", "--home", str(home)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()
    )
    assert process.stdin
    assert process.stdout
    tokens = []
    for line in lines:
        process.stdin.write(json.dumps(line).encode() + b"\n")
        process.stdin.flush()
        while "id" in line:
            message = json.loads(process.stdout.readline())
            if message.get("method") == "notifications/progress":
                tokens.append(message["params"]["progressToken"])
                assert line["id"] == 3
            if message.get("id") == line["id"]:
                break
    process.stdin.close()
    process.wait(10)
    process.stdout.close()
    assert set(tokens) == {"tok-1"}


def _starts_of_children() -> list[ast.Call]:
    found = []
    for file in PACKAGE.rglob("*.py"):
        if file.relative_to(PACKAGE).parts[0] in ("driver", "cli"):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {
                "subprocess.run",
                "subprocess.Popen",
                "asyncio.create_subprocess_exec",
                "anyio.run_process",
                "anyio.open_process",
            }:
                found.append(node)
    return found


def test_complaint_9_no_child_process_inherits_the_wire() -> None:
    for start in _starts_of_children():
        assert any(word.arg in ("stdin", "input") for word in start.keywords), ast.unparse(start)


def test_complaint_10_the_server_forks_nothing() -> None:
    for room in ("server", "tools", "evaluation", "projection", "space", "session.py", "trials"):
        target = PACKAGE / room
        for file in [target] if target.is_file() else target.rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            assert "multiprocessing" not in text, file
            assert "os.fork" not in text, file
            assert "os.system" not in text, file
            assert "shell=True" not in text, file


@pytest.mark.anyio
async def test_complaint_13_two_servers_share_one_folder_without_losing_or_doubling_a_trial(home: Path) -> None:
    servers = [build_server(ServeOptions(home=home)) for _ in range(2)]
    async with Client(servers[0]) as one, Client(servers[1]) as two:
        opened = [await call(client, "open_session", **LLAMA) for client in (one, two)]
        assert opened[0]["out_dir"] == opened[1]["out_dir"]
        configs = [{"mbs": mbs, "recompute_granularity": kind} for mbs in (1, 2, 4) for kind in ("none", "full")]
        async with anyio.create_task_group() as tasks:
            for client in (one, two):
                for config in configs:
                    tasks.start_soon(lambda client=client, config=config: call(client, "evaluate_simulate", config_json=config))  # type: ignore[misc]
        pages = [await call(client, "get_history", order="oldest") for client in (one, two)]
    assert pages[0]["trials"] == pages[1]["trials"]
    assert [trial["trial_id"] for trial in pages[0]["trials"]] == list(range(len(configs)))


ERRORS: list[tuple[str, dict[str, Any]]] = [
    ("open_session", {"workload": "nothing", "gpu": "mi300x", "nodes": 1}),
    ("open_session", {"workload": "llama3.1_8B", "gpu": "nothing", "nodes": 1}),
    ("open_session", {"workload": "llama3.1_8B", "cluster": "/nowhere.yaml"}),
    ("evaluate_simulate", {"config_json": {"tp": "eight"}}),
    ("evaluate_simulate", {"config_json": "{"}),
    ("get_trial", {"trial_id": 99}),
    ("get_job", {"job_id": "x"}),
    ("query_llm", {"prompt": "x"}),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "arguments"), ERRORS)
async def test_complaints_15_and_16_errors_keep_their_text_and_are_marked_as_errors(
    connect: Connect, name: str, arguments: dict[str, Any]
) -> None:
    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        message = await refused(client, name, **arguments)
        assert ";" in message or "did you mean" in message
        assert "Error executing tool" not in message
        assert "Traceback" not in message


@pytest.mark.anyio
async def test_complaint_15_of_a_bug_only_the_fact_is_told(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, trial: object) -> EvaluationResult:
        raise RuntimeError("secret detail in /home/user/.key")

    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        monkeypatch.setattr(FullEvaluator, "evaluate", broken)
        message = await refused(client, "evaluate_simulate")
        assert "secret" not in message
        assert "internal error" in message
        monkeypatch.undo()
        await call(client, "evaluate_simulate")


@pytest.mark.anyio
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
async def test_complaint_17_what_is_no_number_arrives_as_null(connect: Connect, monkeypatch: pytest.MonkeyPatch, bad: float) -> None:
    real = FullEvaluator.evaluate

    def poisoned(self: FullEvaluator, trial: Any) -> EvaluationResult:
        result = real(self, trial)
        floats = {name: bad for name in EvaluationResult.model_fields if isinstance(getattr(result, name), float)}
        maps = {
            name: dict.fromkeys(value, bad)
            for name in ("comm_breakdown", "time_breakdown", "memory_breakdown")
            if (value := getattr(result, name))
        }
        return result.model_copy(update={**floats, **maps})

    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        monkeypatch.setattr(FullEvaluator, "evaluate", poisoned)
        result = await client.call_tool("evaluate_simulate", {"config_json": {"recompute_granularity": "full"}})
        for text in (text_of(result), json.dumps(result.structured_content)):
            assert "NaN" not in text
            assert "Infinity" not in text


def test_complaint_17_no_result_can_hold_what_is_no_number() -> None:
    for tool in TOOLS.values():
        assert tool.result_type.model_config["allow_inf_nan"] is False
        assert issubclass(tool.result_type, Result)


@pytest.mark.anyio
async def test_complaint_18_the_structure_has_everything_that_the_text_has(connect: Connect) -> None:
    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        for name in ("list_models", "get_legal_axes", "get_architecture", "evaluate_simulate", "get_budget_status", "read_scratchpad"):
            result = await client.call_tool(name, {})
            assert json.loads(text_of(result)) == result.structured_content


@pytest.mark.anyio
async def test_complaints_19_to_21_results_stay_small_and_pictures_come_once(connect: Connect) -> None:
    async with connect() as client:
        opened = await call(client, "open_session", **LLAMA, out_dir="")
        await call(client, "set_budget", budget="seed_budget", limit=60)
        await call(client, "seed_trials")
        sizes = {}
        for name, arguments in (
            ("get_history", {"limit": MAX_PAGE, "detail": "full"}),
            ("get_legal_axes", {}),
            ("get_architecture", {}),
            ("list_models", {}),
            ("export_best", {}),
        ):
            result = await client.call_tool(name, arguments)
            assert not result.is_error
            sizes[name] = len(text_of(result))
        assert max(sizes.values()) <= MAX_RESULT_CHARACTERS + 5_000, sizes
        page = await call(client, "get_history", limit=MAX_PAGE, detail="full")
        if page["total"] > len(page["trials"]):
            assert page["next_cursor"]
        plot = await client.call_tool("plot_trials", {})
        assert sum(part.type == "image" for part in plot.content) == 1
        assert sum(len(part.data) for part in plot.content if part.type == "image") < 200_000
        assert opened["out_dir"]


@pytest.mark.anyio
async def test_complaint_25_lists_and_objects_may_come_as_text(connect: Connect) -> None:
    async with connect() as client:
        await call(client, "open_session", **{**LLAMA, "nodes": "1"}, pin='{"cp": 1}')
        await call(client, "evaluate_simulate", config_json='{"mbs": 1}')
        await call(client, "evaluate_simulate", config_json={"mbs": 2})
        for ids in ("[0, 1]", "0, 1", [0, 1]):
            assert (await call(client, "compare_trials", trial_ids=ids))["trial_ids"] == [0, 1]
        assert len((await call(client, "get_history", limit="1"))["trials"]) == 1


def test_complaint_26_the_docs_show_absolute_paths_and_name_the_failure() -> None:
    text = (TESTS.parents[1] / "docs" / "hosts.md").read_text(encoding="utf-8")
    assert "spawn uvx ENOENT" in text
    assert "/ABSOLUTE/PATH/uvx" in text


@pytest.mark.anyio
async def test_complaint_31_a_secret_of_the_environment_appears_nowhere(
    home: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    canary = "canary-7c1e92b4aa"
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HF_TOKEN", "PRIMUS_MCP_TOKEN", "PRIMUS_API_KEY"):
        monkeypatch.setenv(name, canary)
    monkeypatch.setenv("LLM_MODEL", "openai/none")
    monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:9")
    cluster = f"target_cluster: {{gpu_arch: mi300x, num_nodes: 1}}\nagent:\n  llm: {{model: openai/x, api_key: {canary}, base_url: 'http://127.0.0.1:9'}}\n"
    seen = []
    needed: dict[str, dict[str, Any]] = {
        "get_trial": {"trial_id": 0},
        "explain_trial": {"trial_id": 0},
        "compare_trials": {"trial_ids": [0, 0]},
        "note_to_scratchpad": {"note": "x"},
        "query_llm": {"prompt": "x"},
        "set_budget": {"budget": "max_usd", "limit": 1},
        "sweep": {"axes": ["tp"]},
    }
    async with Client(build_server(ServeOptions(home=home)), mode=mode) as client:
        opened = await client.call_tool("open_session", {"workload": "llama3.1_8B", "cluster": cluster})
        seen.append(repr(opened))
        assert not opened.is_error
        for name in TOOLS:
            arguments = needed.get(name, {})
            seen.append(repr(await client.call_tool(name, arguments)))
        for resource in (await client.list_resources()).resources:
            seen.append(repr(await client.read_resource(resource.uri)))
        seen.append(repr(await client.list_tools()))
    for file in home.rglob("*"):
        if file.is_file():
            seen.append(file.read_bytes().decode("utf-8", "replace"))
    seen.append(caplog.text)
    assert not [text for text in seen if canary in text]


def test_complaint_31_the_key_is_in_no_message_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    from primus_mcp.tools.llm import llm_client

    client = llm_client({"LLM_MODEL": "openai/x", "OPENAI_API_KEY": "canary-key", "OPENAI_API_BASE": "http://127.0.0.1:9"})
    assert client is not None
    assert "canary-key" not in repr(client)
    with pytest.raises(InputError) as caught:
        client.ask("hello", "")
    assert "canary-key" not in str(caught.value)


@pytest.mark.anyio
async def test_complaint_33_a_cancelled_evaluation_stands_in_the_log_or_can_be_repeated(
    server: PrimusServer, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, begun, go = FullEvaluator.evaluate, threading.Event(), threading.Event()

    def slow(self: FullEvaluator, trial: Any, **how: Any) -> EvaluationResult:
        begun.set()
        go.wait(10)
        return real(self, trial, **how)

    async with Client(server, mode=mode) as client:
        await call(client, "open_session", **LLAMA)
        monkeypatch.setattr(FullEvaluator, "evaluate", slow)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "evaluate_simulate", {})
            assert await anyio.to_thread.run_sync(begun.wait, 10)
            tasks.cancel_scope.cancel()
        await call(client, "list_gpus")
        go.set()
        monkeypatch.undo()
        assert (await call(client, "evaluate_simulate"))["trial_id"] == 0
        for _ in range(200):
            if (await call(client, "get_history"))["total"] == 1:
                break
            await anyio.sleep(0.02)
        assert (await call(client, "get_history"))["total"] == 1
