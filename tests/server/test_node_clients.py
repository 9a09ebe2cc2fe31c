"""Clients and suites from npm: MCP Inspector, the official conformance suite, the TypeScript SDK, mcpb.

`scripts/setup_node.sh` installs them into .node/; PRIMUS_MCP_NODE names another folder. Without Node >= 22 every test here is skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
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
    env = environment(**variables)
    env["PATH"] = f"{BIN}{os.pathsep}{env['PATH']}"
    program = shutil.which(words[0], path=env["PATH"])
    assert program, words[0]
    return subprocess.run(
        [program, *words[1:]], capture_output=True, text=True, env=env, check=False, timeout=240, stdin=subprocess.DEVNULL
    )


def inspect(target: list[str], era: str, *words: str) -> Any:
    """A call of the Inspector's command line; its JSON answer."""
    done = node("mcp-inspector", "--cli", *target, "--protocol-era", era, *words, "--format", "json", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["result"]


@pytest.fixture
def stdio(home: Path) -> list[str]:
    return command("serve", "--home", str(home))


@ERA
def test_the_inspector_finds_nothing_to_complain_about_over_stdio(stdio: list[str], era: str) -> None:
    tools = inspect(stdio, era, "--method", "tools/list", "--strict")["tools"]
    assert len(tools) == 26
    assert len(inspect(stdio, era, "--method", "prompts/list")["prompts"]) == 4
    assert inspect(stdio, era, "--method", "resources/list")["resources"]
    got = inspect(stdio, era, "--method", "prompts/get", "--prompt-name", "explain_best")
    assert got["messages"]


@ERA
def test_the_inspector_calls_tools_over_stdio(stdio: list[str], era: str) -> None:
    assert inspect(stdio, era, "--method", "tools/call", "--tool-name", "list_gpus")["structuredContent"]["gpus"]
    opened = inspect(stdio, era, "--method", "tools/call", "--tool-name", "open_session", "--tool-args-json", json.dumps(LLAMA))
    assert opened["structuredContent"]["world_size"] == 8
    refused = node(
        "mcp-inspector",
        "--cli",
        *stdio,
        "--protocol-era",
        era,
        "--method",
        "tools/call",
        "--tool-name",
        "get_best",
        "--format",
        "json",
        "-q",
    )
    assert refused.returncode == 5, "an error of a tool is an error for the Inspector"


def _calls(session_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every tool once, with arguments that work; the last two need what this machine has not."""
    s = {"session_id": session_id}
    yield from (("list_models", {}), ("list_gpus", {}), ("get_legal_axes", s), ("get_architecture", s), ("get_cluster", s))
    yield from (("describe_config", {**s, "config_json": {"tp": 2}}), ("evaluate_memory_only", s), ("evaluate_simulate", s))
    yield from (("evaluate_simulate", {**s, "config_json": '{"mbs": 1}'}), ("seed_trials", s), ("get_history", {**s, "limit": 3}))
    yield from (("get_best", s), ("get_trial", {**s, "trial_id": 0}), ("compare_trials", {**s, "trial_ids": [0, 1]}))
    yield from (("explain_trial", {**s, "trial_id": 0}), ("plot_trials", s), ("export_best", s))
    yield from (("note_to_scratchpad", {**s, "note": "hello"}), ("read_scratchpad", s), ("get_budget_status", s))
    yield from (("set_budget", {**s, "budget": "max_usd", "limit": 1}), ("set_cluster", {**s, "nodes": 2}))


REFUSE = ("evaluate_with_benchmark", "query_llm", "get_job", "cancel_job")


@ERA
def test_the_inspector_calls_every_tool_over_http(http_server: HttpServer, era: str) -> None:
    target = [http_server.url, "--transport", "http"]
    tools = {tool["name"] for tool in inspect(target, era, "--method", "tools/list", "--strict")["tools"]}
    opened = inspect(target, era, "--method", "tools/call", "--tool-name", "open_session", "--tool-args-json", json.dumps(LLAMA))
    called = {"open_session", *REFUSE}
    for name, arguments in _calls(opened["structuredContent"]["session_id"]):
        result = inspect(target, era, "--method", "tools/call", "--tool-name", name, "--tool-args-json", json.dumps(arguments))
        assert result["structuredContent"], name
        called.add(name)
    assert called == tools


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
