"""Clients and suites from npm: MCP Inspector, the official conformance suite, the TypeScript SDK, mcpb.

`scripts/setup_node.sh` installs them into .node/; PRIMUS_MCP_NODE names another folder. Without Node >= 22 every test here is skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from mcp_cases import LLAMA, HttpServer, command, environment

pytest_plugins = ("mcp_fixtures",)
ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("PRIMUS_MCP_NODE", ROOT / ".node"))
BIN = FOLDER / "node_modules" / ".bin"
SDK = FOLDER / "node_modules" / "@modelcontextprotocol" / "sdk" / "dist" / "esm"
SUFFIX = ".cmd" if sys.platform == "win32" else ""
WHY = "needs Node >= 22 and the MCP tools of npm: run scripts/setup_node.sh"
pytestmark = pytest.mark.skipif(not (BIN / f"mcp-inspector{SUFFIX}").exists() or not SDK.is_dir(), reason=WHY)
ERA = pytest.mark.parametrize("era", ["legacy", "modern"])


def node(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """One of npm's programs; never asks the network."""
    env = environment(MCP_INSPECTOR_SECRET_STORE="memory", **variables)
    env["PATH"] = f"{BIN}{os.pathsep}{env['PATH']}"
    program = shutil.which(words[0], path=env["PATH"])
    assert program, words[0]
    return subprocess.run(
        [program, *words[1:]], capture_output=True, text=True, env=env, check=False, timeout=240, stdin=subprocess.DEVNULL
    )


def inspect(target: list[str], era: str, *words: str, code: int = 0) -> Any:
    """A call of the Inspector's command line; its JSON answer. 5 is its exit code for an error of a tool."""
    done = node("mcp-inspector", "--cli", *target, "--protocol-era", era, *words, "--format", "json", "-q")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)["result"] if code == 0 else None


@pytest.fixture
def stdio(home: Path) -> list[str]:
    return command("serve", "--home", str(home))


@ERA
def test_the_inspector_finds_nothing_to_complain_about_over_stdio(stdio: list[str], era: str) -> None:
    done = node("mcp-inspector", "--cli", *stdio, "--protocol-era", era, "--method", "tools/list", "--strict", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    assert len(json.loads(done.stdout)["result"]["tools"]) == 28
    assert len(inspect(stdio, era, "--method", "prompts/list")["prompts"]) == 4
    assert inspect(stdio, era, "--method", "resources/list")["resources"]
    got = inspect(stdio, era, "--method", "prompts/get", "--prompt-name", "explain_best")
    assert got["messages"]


@ERA
def test_the_inspector_calls_tools_over_stdio(stdio: list[str], era: str) -> None:
    assert inspect(stdio, era, "--method", "tools/call", "--tool-name", "list_gpus")["structuredContent"]["gpus"]
    opened = inspect(stdio, era, "--method", "tools/call", "--tool-name", "open_session", "--tool-args-json", json.dumps(LLAMA))
    assert opened["structuredContent"]["world_size"] == 8
    inspect(stdio, era, "--method", "tools/call", "--tool-name", "get_best", code=5)


Call = Callable[[str, dict[str, Any]], dict[str, Any]]
WITHOUT_GPU = "evaluate_with_benchmark"


def _call_every_tool(call: Call, session_id: str) -> set[str]:
    """Every tool that needs an open session, once or more, with arguments that work; long ones answer with a job."""
    s = {"session_id": session_id}
    calls: list[tuple[str, dict[str, Any]]] = [("list_models", {}), ("list_gpus", {}), ("get_legal_axes", s), ("get_architecture", s)]
    calls += [("get_cluster", s), ("describe_config", {**s, "config_json": {"tp": 2}}), ("evaluate_memory_only", s)]
    calls += [("evaluate_simulate", s), ("evaluate_simulate", {**s, "config_json": '{"mbs": 1}'}), ("seed_trials", s)]
    calls += [("sweep", {**s, "axes": ["tp", "mbs"], "where": "tp<=4", "front": True}), ("get_history", {**s, "limit": 3})]
    calls += [("get_best", s), ("get_trial", {**s, "trial_id": 0}), ("compare_trials", {**s, "trial_ids": [0, 1]})]
    calls += [("explain_trial", {**s, "trial_id": 0, "sensitivity": True}), ("plot_trials", s), ("write_report", s), ("export_best", s)]
    calls += [("note_to_scratchpad", {**s, "note": "hello"}), ("read_scratchpad", s), ("get_budget_status", s)]
    calls += [
        ("set_budget", {**s, "budget": "max_usd", "limit": 1}),
        ("query_llm", {**s, "prompt": "why?"}),
        ("set_cluster", {**s, "nodes": 2}),
    ]
    called = {name for name, _ in calls}
    for name, arguments in calls:
        result = call(name, arguments)
        assert result, name
        if "job_id" in result:
            ended = call("get_job", {"job_id": result["job_id"], "wait_s": 45})
            assert ended["state"] == "finished", ended
            assert call("cancel_job", {"job_id": result["job_id"]})["result"] == ended["result"]
            called |= {"get_job", "cancel_job"}
    return called


class _Model(BaseHTTPRequestHandler):
    """A language model that says hello."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps({"choices": [{"message": {"content": "hello"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def llm() -> Iterator[dict[str, str]]:
    """Variables that set up a language model on this machine."""
    served = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield {"LLM_MODEL": "openai/x", "OPENAI_API_KEY": "k", "OPENAI_API_BASE": f"http://127.0.0.1:{served.server_port}/v1"}
    served.shutdown()
    served.server_close()


@ERA
def test_the_inspector_calls_every_tool_over_http(home: Path, era: str, llm: dict[str, str]) -> None:
    """One process of the Inspector a call."""
    server = HttpServer(home, "--answer-within", "0", **llm)
    target = [server.url, "--transport", "http"]

    def call(name: str, arguments: dict[str, Any], code: int = 0) -> dict[str, Any]:
        words = ("--method", "tools/call", "--tool-name", name, "--tool-args-json", json.dumps(arguments))
        result = inspect(target, era, *words, code=code)
        return dict(result["structuredContent"]) if result else {}

    try:
        tools = {tool["name"] for tool in inspect(target, era, "--method", "tools/list", "--strict")["tools"]}
        session_id = call("open_session", LLAMA)["session_id"]
        called = _call_every_tool(call, session_id)
        call(WITHOUT_GPU, {"session_id": session_id}, code=5)
    finally:
        server.stop()
    assert called | {"open_session", WITHOUT_GPU} == tools


@ERA
def test_the_inspector_calls_every_tool_over_stdio(home: Path, era: str, llm: dict[str, str]) -> None:
    """The Inspector's connection program: one server process for all calls, as hosts have it."""
    with TemporaryDirectory(prefix="mcpdo") as folder:
        private = {"MCP_INSPECTOR_DAEMON_DIR": folder, "MCP_INSPECTOR_DAEMON_TOKEN": token_hex(16)}

        def mcpdo(*words: str, code: int = 0) -> Any:
            done = node("mcpdo", "--format", "json", *words, **private)
            assert done.returncode == code, done.stdout + done.stderr
            return json.loads(done.stdout)

        def call(name: str, arguments: dict[str, Any], code: int = 0) -> dict[str, Any]:
            told = mcpdo("--connection", connection, "tools/call", name, json.dumps(arguments), code=code)
            return dict(told.get("structuredContent") or {})

        variables = [word for name, value in llm.items() for word in ("-e", f"{name}={value}")]
        server = command("serve", "--home", str(home), "--answer-within", "0")
        try:
            opened = mcpdo("connect", "--era", era, *variables, "--", *server)
            assert opened["protocolEra"] == era
            connection = opened["name"]
            tools = {tool["name"] for tool in mcpdo("--connection", connection, "tools/list")["tools"]}
            called = _call_every_tool(call, call("open_session", LLAMA)["session_id"])
            call(WITHOUT_GPU, {}, code=5)
        finally:
            node("mcpdo", "daemon", "stop", **private)
    assert called | {"open_session", WITHOUT_GPU} == tools


@pytest.fixture
def fixture_url(home: Path) -> Iterator[str]:
    """Our server with the suite's fixtures mounted."""
    script = Path(__file__).with_name("conformance_server.py")
    process = subprocess.Popen(
        [sys.executable, str(script), str(home)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
    )
    assert process.stdout
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait(20)
    process.stdout.close()


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_official_conformance_suite_passes(fixture_url: str, revision: str, tmp_path: Path) -> None:
    """No baseline of expected failures is needed. Scenarios that the revision does not score (extensions, pending) are not counted."""
    done = node("conformance", "server", "--url", fixture_url, "--requirements", revision, "-o", str(tmp_path))
    assert done.returncode == 0, done.stdout[-6000:]
    summary = done.stdout[done.stdout.index("SUMMARY") :]
    scored, _, unscored = summary.partition("Not scored for")
    allowed = {line.split()[1] for line in unscored.splitlines() if line.strip().startswith("✗")}
    failing = {line.split()[1].rstrip(":") for line in scored.splitlines() if line.startswith("✗")}
    assert failing <= allowed
    assert scored.count("✓") >= 29


def test_the_typescript_sdk_drives_a_whole_session_over_stdio(home: Path, stdio: list[str]) -> None:
    done = node("node", str(Path(__file__).with_name("ts_session.mjs")), "stdio", *stdio, TS_SDK=str(SDK))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["progress"] >= 1


def test_the_typescript_sdk_drives_a_whole_session_over_http(http_server: HttpServer) -> None:
    done = node("node", str(Path(__file__).with_name("ts_session.mjs")), http_server.url, TS_SDK=str(SDK))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["updates"] >= 1


def test_the_bundle_for_claude_desktop_is_valid_and_packs(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(ROOT / "mcpb", folder)
    valid = node("mcpb", "validate", str(folder / "manifest.json"))
    assert valid.returncode == 0, valid.stdout + valid.stderr
    packed = node("mcpb", "pack", str(folder), str(tmp_path / "primus.mcpb"))
    assert packed.returncode == 0, packed.stdout + packed.stderr
    assert (tmp_path / "primus.mcpb").stat().st_size > 500
