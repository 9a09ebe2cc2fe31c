"""The server as a host starts it: a child process on pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_cases import LLAMA, MIXTRAL, Mode, call, command, environment, not_started, refused
from process_cases import children, running

pytest_plugins = ("mcp_fixtures",)
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


class Process:
    """Raw JSON-RPC lines over pipes."""

    def __init__(self, arguments: list[str], **more: Any) -> None:
        self.child = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
        self.lines: list[bytes] = []

    def send(self, message: dict[str, Any] | bytes) -> None:
        assert self.child.stdin
        self.child.stdin.write(message + b"\n" if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")
        self.child.stdin.flush()

    def receive(self, number: int) -> dict[str, Any]:
        """The answer to a request; everything on stdout must be JSON-RPC."""
        assert self.child.stdout
        while True:
            line = self.child.stdout.readline()
            assert line, self.child.stderr.read().decode() if self.child.stderr else ""
            self.lines.append(line)
            message: dict[str, Any] = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            if message.get("id") == number:
                return message

    def start(self) -> None:
        self.send(INITIALIZE)
        assert self.receive(1)["result"]["serverInfo"]["name"] == "primus-mcp"
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def tool(self, number: int, name: str, **arguments: Any) -> None:
        self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}})

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
            if stream:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue


@contextmanager
def serving(home: Path, *arguments: str, bare: bool = False, **variables: str) -> Iterator[Process]:
    words = command() if bare else command("serve", "--home", str(home), *arguments)
    process = Process(words, env=environment(**variables))
    try:
        yield process
    finally:
        process.close()


@pytest.mark.anyio
async def test_a_host_opens_and_evaluates_over_stdio(home: Path, mode: Mode) -> None:
    parameters = StdioServerParameters(command=sys.executable, args=["-m", "primus_mcp", "serve", "--home", str(home)])
    async with Client(stdio_client(parameters), mode=mode) as client:
        await call(client, "open_session", **LLAMA)
        assert (await call(client, "evaluate_simulate"))["trial_id"] == 0
        assert "outside the allowed folders" in await refused(client, "open_session", workload="/etc/hosts.yaml", gpu="mi300x", nodes=1)


def test_closing_stdin_ends_the_server_cleanly(home: Path) -> None:
    with serving(home) as process:
        process.start()
        assert process.child.stdin
        process.child.stdin.close()
        assert process.child.wait(5) == 0


def test_closing_stdin_while_a_tool_runs_ends_it_too(home: Path) -> None:
    with serving(home) as process:
        process.start()
        process.tool(2, "open_session", **LLAMA)
        process.receive(2)
        process.tool(3, "get_job", job_id="j_x", wait_s=40)
        process.tool(4, "seed_trials")
        assert process.child.stdin
        process.child.stdin.close()
        assert process.child.wait(10) == 0


@POSIX
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_complaints_12_and_14_a_signal_ends_the_server_while_the_client_keeps_stdin_open(home: Path, number: signal.Signals) -> None:
    with serving(home) as process:
        process.start()
        process.tool(2, "open_session", **LLAMA)
        process.receive(2)
        process.tool(3, "seed_trials")
        time.sleep(0.1)
        process.child.send_signal(number)
        assert process.child.wait(10) == 128 + number


@POSIX
@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGINT], ids=["EOF", "SIGTERM", "SIGINT"])
def test_a_running_sweep_neither_holds_up_the_end_nor_outlives_it(home: Path, number: signal.Signals | None) -> None:
    with serving(home) as process:
        process.start()
        process.tool(2, "open_session", **MIXTRAL)
        process.receive(2)
        params = {"name": "sweep", "arguments": {}, "_meta": {"progressToken": "p"}}
        process.send({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params})
        assert process.child.stdin
        assert process.child.stdout
        while b'"progress":0' in (line := process.child.stdout.readline()):
            continue
        assert b"legal configurations" in line, "it is at work"
        workers = children(process.child.pid)
        if number is None:
            process.child.stdin.close()
        else:
            process.child.send_signal(number)
        assert process.child.wait(10) == (0 if number is None else 128 + number)
        assert not [worker for worker in workers if running(worker)]


@POSIX
def test_complaint_12_a_client_that_is_killed_leaves_no_server(home: Path) -> None:
    host = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen({command('serve', '--home', str(home))!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", host], stdout=subprocess.PIPE, env=environment())
    assert parent.stdout
    server = int(parent.stdout.readline())
    time.sleep(1)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(200):
        if not running(server):
            return
        time.sleep(0.1)
    os.kill(server, signal.SIGKILL)
    raise AssertionError("the server outlived its client")


def test_complaint_8_stdout_carries_only_protocol_even_when_a_library_prints_while_it_is_imported(home: Path, tmp_path: Path) -> None:
    noisy = tmp_path / "noisy"
    noisy.mkdir()
    (noisy / "sitecustomize.py").write_text(
        "import builtins, sys\nreal = builtins.__import__\n"
        "def noisy(name, *rest, **more):\n"
        "    if name.startswith('mcp') or name.startswith('numpy'):\n        print('Loading', name)\n"
        "    return real(name, *rest, **more)\n"
        "builtins.__import__ = noisy\n"
    )
    with serving(home, PYTHONPATH=str(noisy)) as process:
        process.start()
        process.tool(2, "open_session", **LLAMA)
        process.receive(2)
        process.tool(3, "plot_trials")
        process.receive(3)
        assert all(line.startswith(b'{"jsonrpc"') for line in process.lines)


def test_complaint_29_the_start_imports_nothing_heavy(home: Path, tmp_path: Path) -> None:
    poison = tmp_path / "poison"
    for name in ("torch", "dspy", "vl_convert", "litellm", "origami"):
        (poison / name).mkdir(parents=True)
        (poison / name / "__init__.py").write_text("raise RuntimeError('imported too early')\n")
    with serving(home, PYTHONPATH=str(poison)) as process:
        process.start()
        process.send({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}})
        assert len(process.receive(2)["result"]["tools"]) > 20
        process.tool(3, "list_models")
        assert not process.receive(3)["result"].get("isError")


def test_a_bare_command_on_pipes_serves(home: Path) -> None:
    with serving(home, bare=True, HOME=str(home), USERPROFILE=str(home)) as process:
        process.start()


def test_a_bare_command_elsewhere_prints_its_help() -> None:
    done = subprocess.run(command(), stdin=subprocess.DEVNULL, capture_output=True, env=environment(), check=False, timeout=60)
    assert done.returncode == 0
    assert b"usage: primus-mcp" in done.stdout


def test_complaint_27_the_working_directory_plays_no_part(home: Path) -> None:
    process = Process(command("serve", "--home", str(home)), cwd="/", env=environment(PYTHONPATH=str(Path(__file__).parents[2])))
    try:
        process.start()
        process.tool(2, "open_session", **LLAMA)
        assert not process.receive(2)["result"].get("isError")
        process.tool(3, "open_session", workload="etc/hosts.yaml", gpu="mi300x", nodes=1)
        assert "does not exist" in json.dumps(process.receive(3)["result"])
    finally:
        process.close()


def test_complaint_30_text_beyond_ascii_survives_a_narrow_console(home: Path) -> None:
    with serving(home, PYTHONIOENCODING="cp1252", PYTHONUTF8="0", LC_ALL="C") as process:
        process.start()
        process.tool(2, "open_session", **LLAMA)
        process.receive(2)
        process.tool(3, "note_to_scratchpad", note="größer ≥ 8, 提示 →")
        process.receive(3)
        process.tool(4, "read_scratchpad")
        assert process.receive(4)["result"]["structuredContent"]["notes"] == "größer ≥ 8, 提示 →\n"


def test_junk_lines_and_unknown_methods_do_not_end_the_server(home: Path) -> None:
    with serving(home) as process:
        process.start()
        for line in (b"not json", b"{}", b"[]", b'{"jsonrpc":"2.0"}', b"\xff\xfe", b'{"jsonrpc":"2.0","id":9,"method":"nothing"}'):
            process.send(line)
        process.tool(10, "list_gpus")
        assert not process.receive(10)["result"].get("isError")


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_every_handshake_revision_is_spoken(home: Path, version: str) -> None:
    with serving(home) as process:
        process.send({**INITIALIZE, "params": {**INITIALIZE["params"], "protocolVersion": version}})  # type: ignore[dict-item]
        assert process.receive(1)["result"]["protocolVersion"] == version


def test_a_session_named_at_start_is_open_and_wrong_names_end_the_start(home: Path, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("target_cluster: {gpu_arch: mi300x, num_nodes: 1}\n")
    with serving(home, "--workload", "llama3.1_8B", "--target-cluster", str(cluster), "--out-dir", str(tmp_path / "run")) as process:
        process.start()
        process.tool(2, "evaluate_simulate")
        assert process.receive(2)["result"]["structuredContent"]["trial_id"] == 0
    assert (tmp_path / "run" / "trials.jsonl").is_file()
    for wrong in (
        ["--workload", "llama3.1_8B"],
        ["--workload", "no-such", "--target-cluster", str(cluster)],
        ["--toolsets", "x"],
        ["--budget", "x=1"],
    ):
        done = not_started("--home", str(home), *wrong)
        assert done.stdout == b""
        assert done.stderr.count(b"\n") == 1
