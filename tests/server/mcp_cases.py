"""A server in a temporary home, in memory or as a process, and clients of both protocol eras."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal

from mcp import Client

Mode = Literal["auto", "legacy"]
MIXTRAL = {"workload": "mixtral_8x22B_v0.1-BF16-pretrain", "gpu": "mi355x", "nodes": 4}
LLAMA = {"workload": "llama3.1_8B", "gpu": "mi300x", "nodes": 1}
TOKEN = "a-long-enough-test-token"
OTHER_TOKEN = "another-long-enough-token"


Connect = Callable[[], AbstractAsyncContextManager[Client]]


async def call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """A call that must succeed; its structured content."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, text_of(result)
    assert result.structured_content is not None
    return dict(result.structured_content)


async def refused(client: Client, name: str, **arguments: Any) -> str:
    """A call that must be an error; its text."""
    result = await client.call_tool(name, arguments)
    assert result.is_error, result.structured_content
    return text_of(result)


def text_of(result: Any) -> str:
    return "".join(part.text for part in result.content if part.type == "text")


def environment(**more: str) -> dict[str, str]:
    """Of a child process: this interpreter's project, nothing of the caller's settings."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "SYSTEMROOT", "TMPDIR", "TEMP", "LANG")}
    return {**kept, **more}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "primus_mcp", *arguments]


def not_started(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """`primus-mcp serve` with arguments that it must refuse, at its end."""
    done = subprocess.run(
        command("serve", *arguments), stdin=subprocess.DEVNULL, capture_output=True, env=environment(), check=False, timeout=60
    )
    assert done.returncode == 2
    return done


class HttpServer:
    """`primus-mcp serve --http` as a process."""

    def __init__(self, home: Path, *arguments: str, **variables: str) -> None:
        self.log = home.parent / f"http-{time.monotonic_ns()}.log"
        with self.log.open("wb") as stderr:
            self.process = subprocess.Popen(
                command("serve", "--http", "--port", "0", "--home", str(home), *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment(**variables),
            )
        self.url = self._url()

    def _url(self) -> str:
        for _ in range(600):
            text = self.log.read_text(encoding="utf-8")
            if "serves http://" in text:
                return "http://" + text.split("serves http://")[1].split()[0]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"the server did not start: {self.log.read_text(encoding='utf-8')}")

    @property
    def port(self) -> int:
        return int(self.url.split(":")[2].split("/")[0])

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
