"""DSPy's Deno sandbox for generated code: an offline import map, a watchdog, and the next sandbox started while the model thinks.

Nothing is widened: no file, network, environment or process of the host is open to the code. Where the sandbox cannot run, generated code
is not run at all.
"""

from __future__ import annotations

import logging
import os
import subprocess
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from primus_mcp.driver.background import in_background
from primus_mcp.driver.watchdog import Watchdog

EXECUTION_LIMIT_S = 60.0
"""Seconds that generated code may run without calling a tool."""
START_LIMIT_S = 90.0
SHUTDOWN_LIMIT_S = 10.0
FETCH_LIMIT_S = 240.0
IMPORT_MAP = Path(__file__).parent / "deno" / "import_map.json"
_QUIET = ("--no-config", "--no-lock", "--node-modules-dir=false")
_log = logging.getLogger(__name__)


class SandboxError(Exception):
    """The sandbox cannot run here: what is missing and the remedy."""


def _fetch_runtime(command: list[str], runner: str) -> None:
    """Bring Pyodide into Deno's cache, with the network if it is not there yet. Raises SandboxError."""
    fetch = [command[0], "cache", *_QUIET, f"--import-map={IMPORT_MAP}", runner]
    environment = {**os.environ, "DENO_NO_PACKAGE_JSON": "1", "NO_COLOR": "1"}
    try:
        done = subprocess.run(fetch, capture_output=True, text=True, check=False, env=environment, timeout=FETCH_LIMIT_S)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"Deno could not be started ({type(error).__name__}); install primus-mcp[agent]") from None
    if done.returncode != 0:
        told = " ".join(done.stderr.split())[-200:]
        raise SandboxError(f"Pyodide could not be fetched from npm ({told}); run once with the network")


def timed_interpreter(limit_s: float = EXECUTION_LIMIT_S) -> Any:
    """One sandbox, not started: DSPy's own with the import map, offline, and the watchdog around start, execution and shutdown."""
    import dspy

    class TimedInterpreter(dspy.PythonInterpreter):  # type: ignore[misc]
        """Generated code that never returns is killed; the session is lost then, the run is not."""

        def __init__(self) -> None:
            super().__init__()
            self.watchdog = Watchdog(self._kill)
            self._given: dict[str, Any] = {}

        def _kill(self) -> None:
            if self.deno_process is not None:
                with suppress(OSError):
                    self.deno_process.kill()

        def start(self) -> None:
            self.watchdog.start(START_LIMIT_S)
            try:
                super().start()
            finally:
                self.watchdog.stop()

        def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
            """Variables keep their values from one execution to the next, as all others: they are sent once, not with every code."""
            self.start()
            new = {name: value for name, value in (variables or {}).items() if name not in self._given or self._given[name] is not value}
            self.watchdog.start(limit_s)
            try:
                result = super().execute(code, new)
            finally:
                self.watchdog.stop()
            self._given |= new
            return result

        def invoke_tool(self, tool_name: str, kwargs: dict[str, Any]) -> Any:
            """The host's own time does not count; code that goes on after a refused call is watched again."""
            self.watchdog.stop()
            try:
                return super().invoke_tool(tool_name, kwargs)
            finally:
                self.watchdog.start(limit_s)

        def shutdown(self) -> None:
            self.watchdog.start(SHUTDOWN_LIMIT_S)
            try:
                with suppress(OSError, ValueError):
                    super().shutdown()
            finally:
                self.watchdog.close()

    interpreter = TimedInterpreter()
    interpreter.deno_command[2:2] = [f"--import-map={IMPORT_MAP}", "--cached-only"]
    return interpreter


class Sandboxes:
    """`factory()` hands out a started sandbox and starts the next one in the background; `close()` ends the one that waits."""

    def __init__(self, limit_s: float = EXECUTION_LIMIT_S) -> None:
        self._limit_s = limit_s
        self._next: Future[Any] | None = None
        self._closed = False
        self._fetched = False

    def start(self) -> None:
        """Begin to start a sandbox, unless one waits already."""
        if self._next is None and not self._closed:
            self._next = in_background(self._started, "sandbox")

    def _started(self) -> Any:
        interpreter = timed_interpreter(self._limit_s)
        if not self._fetched:
            _fetch_runtime(interpreter.deno_command, interpreter.deno_command[_runner_index(interpreter.deno_command)])
            self._fetched = True
        interpreter.start()
        return interpreter

    def probe(self) -> Any:
        """Wait until the next sandbox runs. Raises SandboxError where none can."""
        self.start()
        assert self._next is not None
        try:
            return self._next.result(START_LIMIT_S + FETCH_LIMIT_S)
        except SandboxError:
            raise
        except Exception as error:
            raise SandboxError(f"the Deno sandbox does not start: {' '.join(str(error).split())[:200]}") from None

    def take(self) -> Any:
        """A started sandbox of the caller's own. Raises SandboxError."""
        interpreter = self.probe()
        self._next = None
        if interpreter.deno_process is None or interpreter.deno_process.poll() is not None:
            interpreter = self.probe()
            self._next = None
        self.start()
        return interpreter

    def close(self) -> None:
        """End the sandbox that waits."""
        self._closed = True
        if self._next is not None:
            self._next.add_done_callback(_shut_down)
            self._next = None


def _runner_index(command: list[str]) -> int:
    return next(index for index, word in enumerate(command) if word.endswith("runner.js") and not word.startswith("--"))


def _shut_down(future: Future[Any]) -> None:
    if future.exception() is None:
        future.result().shutdown()
