"""Load on the HTTP server: evaluations at a concurrency, clients that open at once, and start-up. Prints one table; exit 1 on any loss.

Run: python benchmarks/server_load.py [--evaluations 200] [--concurrency 20] [--clients 50]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

LLAMA = {"workload": "llama3.1_8B", "gpu": "mi300x", "nodes": 4}
SERVE = [sys.executable, "-m", "primus_mcp", "serve"]


def configurations(count: int) -> list[dict[str, Any]]:
    """Different legal and illegal proposals."""
    axes: dict[str, list[Any]] = {
        "tp": [1, 2, 4, 8],
        "pp": [1, 2, 4],
        "mbs": [1, 2, 4, 8],
        "recompute_granularity": ["none", "selective", "full"],
        "fp8": ["none", "hybrid"],
        "cross_entropy_loss_fusion": [True, False],
    }
    every = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    return every[:: max(1, len(every) // count)][:count]


@contextmanager
def http_server(home: Path) -> Iterator[str]:
    """A server process; its URL."""
    command = [*SERVE, "--http", "--port", "0", "--home", str(home), "--requests-per-minute", "1000000", "--max-sessions", "1000"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    url = next(line for line in process.stderr if "serves http://" in line).split("serves ")[1].split()[0]
    try:
        yield url
    finally:
        process.terminate()
        process.wait(10)
        process.stderr.close()


async def call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """A call that must succeed."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return dict(result.structured_content)


async def timed(work: Callable[[], Awaitable[Any]], times: list[float]) -> Any:
    """The result, its time kept."""
    begin = time.perf_counter()
    result = await work()
    times.append(time.perf_counter() - begin)
    return result


async def evaluations(url: str, count: int, concurrency: int) -> list[float]:
    """`count` evaluations over `concurrency` clients of one session; asserts that no trial is lost or doubled."""
    times: list[float] = []
    async with Client(url) as first:
        session_id = (await call(first, "open_session", **LLAMA))["session_id"]
        waiting = iter(configurations(count))
        results: list[dict[str, Any]] = []

        async def worker() -> None:
            async with Client(url) as client:
                for config in waiting:

                    async def one(config: dict[str, Any] = config) -> dict[str, Any]:
                        return await call(client, "evaluate_simulate", session_id=session_id, config_json=config)

                    results.append(await timed(one, times))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(concurrency):
                tasks.create_task(worker())
        ids, cursor = [], ""
        while cursor is not None:
            page = await call(first, "get_history", session_id=session_id, order="oldest", limit=100, cursor=cursor)
            ids += [trial["trial_id"] for trial in page["trials"]]
            cursor = page["next_cursor"]
    new = [result["trial_id"] for result in results if not result["repeated"]]
    assert ids == list(range(len(ids))), "a trial is lost or doubled in the log"
    assert len(results) == count
    assert set(new) <= set(ids)
    assert {result["trial_id"] for result in results} == set(ids)
    return times


async def openings(url: str, count: int) -> list[float]:
    """`count` clients that connect and open a session of their own at once."""
    times: list[float] = []

    async def one(number: int) -> str:
        async with Client(url) as client:
            return str((await call(client, "open_session", **LLAMA, out_dir=f"clients/{number}"))["session_id"])

    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(timed(lambda number=number: one(number), times)) for number in range(count)]  # type: ignore[misc]
    assert len({task.result() for task in made}) == count, "two clients got one session"
    return times


async def start_up(home: Path, repeats: int) -> list[float]:
    """Process start to the answer of tools/list, over stdio."""
    times: list[float] = []
    for _ in range(repeats):
        begin = time.perf_counter()
        parameters = StdioServerParameters(command=SERVE[0], args=[*SERVE[1:], "--home", str(home)])
        async with Client(stdio_client(parameters)) as client:
            await client.list_tools()
            times.append(time.perf_counter() - begin)
    return times


def row(name: str, times: list[float], wall_s: float) -> str:
    """One line of the table: median, 99th percentile, maximum in ms, and how many a second."""
    ordered = sorted(times)
    at = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000 for share in (0.5, 0.99, 1.0)]
    return f"| {name} | {len(times)} | {at[0]:.0f} | {at[1]:.0f} | {at[2]:.0f} | {len(times) / wall_s:.0f} |"


def main() -> int:
    """Run all three and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--concurrency", type=int, default=20)
    parser.add_argument("--clients", type=int, default=50)
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder, http_server(Path(folder)) as url:
        works: tuple[tuple[str, Callable[[], Coroutine[Any, Any, list[float]]]], ...] = (
            (
                f"evaluate_simulate, concurrency {arguments.concurrency}",
                lambda: evaluations(url, arguments.evaluations, arguments.concurrency),
            ),
            (f"connect and open_session, {arguments.clients} at once", lambda: openings(url, arguments.clients)),
            ("start of a stdio server to tools/list", lambda: start_up(Path(folder), 5)),
        )
        for name, work in works:
            begin = time.perf_counter()
            times = asyncio.run(work())
            rows.append(row(name, times, time.perf_counter() - begin))
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} CPUs{load}")
    print("| what | n | median ms | p99 ms | max ms | a second |\n|---|---|---|---|---|---|")
    print("\n".join(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
