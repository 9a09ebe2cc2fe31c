"""Host, Origin, token and rate, request by request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_cases import OTHER_TOKEN, TOKEN

from primus_mcp.errors import InputError
from primus_mcp.server.application import OWNER_KEY
from primus_mcp.server.guard import Guard, check_exposure, is_loopback
from primus_mcp.server.options import ServeOptions

HOST = "127.0.0.1:8765"


def ask(
    options: ServeOptions, headers: dict[str, str] | list[tuple[str, str]], path: str = "/mcp", guard: Guard | None = None
) -> tuple[int, str | None]:
    """(status, owner that the application saw)."""
    seen: list[Any] = []
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope[OWNER_KEY])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    pairs = headers.items() if isinstance(headers, dict) else headers
    scope: Any = {"type": "http", "path": path, "client": ("127.0.0.1", 5), "headers": [(k.encode(), v.encode()) for k, v in pairs]}
    checking = guard or Guard(app, options)
    checking._app = app

    async def run() -> None:
        await checking(scope, receive, send)

    anyio.run(run)
    return sent[0]["status"], seen[0] if seen else None


def local(home: Path, **more: Any) -> ServeOptions:
    return ServeOptions(home=home, http=True, **more)


@pytest.mark.parametrize("host", [HOST, "localhost:8765", "localhost", "[::1]:8765", "LOCALHOST:1"])
def test_requests_to_this_machine_pass(tmp_path: Path, host: str) -> None:
    assert ask(local(tmp_path), {"host": host}) == (200, "")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8765",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "localhost:8765@evil.example",
        "",
        "127.0.0.1:x",
        "[::1",
        "a/localhost",
    ],
)
def test_a_name_that_was_rebound_to_this_machine_is_refused(tmp_path: Path, host: str) -> None:
    assert ask(local(tmp_path), {"host": host})[0] == 421


def test_a_missing_or_doubled_host_is_refused(tmp_path: Path) -> None:
    assert ask(local(tmp_path), {})[0] == 421
    assert ask(local(tmp_path), [("host", HOST), ("host", "evil.example")])[0] == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:3000", "https://127.0.0.1:8766", "http://127.0.0.1:8765.evil.example", ""]
)
def test_a_web_page_elsewhere_may_not_call_not_even_from_another_local_port(tmp_path: Path, origin: str) -> None:
    assert ask(local(tmp_path), {"host": HOST, "origin": origin})[0] == 403


def test_its_own_and_allowed_origins_may_call(tmp_path: Path) -> None:
    assert ask(local(tmp_path), {"host": HOST, "origin": f"http://{HOST}"})[0] == 200
    options = local(tmp_path, allowed_origins=("http://localhost:6274",))
    assert ask(options, {"host": HOST, "origin": "http://localhost:6274"})[0] == 200


def test_host_and_origin_are_checked_beyond_loopback_too(tmp_path: Path) -> None:
    options = local(tmp_path, host="0.0.0.0", tokens=(TOKEN,), allowed_hosts=("tuner.example",))
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert ask(options, {"host": "tuner.example", **bearer})[0] == 200
    assert ask(options, {"host": "evil.example", **bearer})[0] == 421
    assert ask(options, {"host": "0.0.0.0:8765", **bearer})[0] == 421
    assert ask(options, {"host": "tuner.example", "origin": "null", **bearer})[0] == 403


def test_each_token_is_another_owner_and_nothing_else_passes(tmp_path: Path) -> None:
    options = local(tmp_path, tokens=(TOKEN, OTHER_TOKEN))
    one = ask(options, {"host": HOST, "authorization": f"Bearer {TOKEN}"})
    other = ask(options, {"host": HOST, "authorization": f"bearer {OTHER_TOKEN}"})
    assert one[0] == other[0] == 200
    assert one[1] != other[1]
    assert TOKEN not in str(one[1])
    for wrong in ("", f"Basic {TOKEN}", TOKEN, "Bearer", "Bearer x", f"Bearer {TOKEN}x", "Bearer \u00e9"):
        assert ask(options, {"host": HOST, "authorization": wrong})[0] == 401
    assert ask(options, {"host": HOST})[0] == 401


def test_health_needs_no_token_but_the_right_host(tmp_path: Path) -> None:
    options = local(tmp_path, tokens=(TOKEN,))
    assert ask(options, {"host": HOST}, "/health")[0] == 200
    assert ask(options, {"host": "evil.example"}, "/health")[0] == 421


def test_the_rate_is_limited_and_recovers(tmp_path: Path) -> None:
    now = [0.0]
    options = local(tmp_path, requests_per_minute=60)
    guard = Guard(None, options, clock=lambda: now[0])  # type: ignore[arg-type]
    statuses = [ask(options, {"host": HOST}, guard=guard)[0] for _ in range(12)]
    assert statuses == [200] * 10 + [429] * 2
    now[0] = 1.0
    assert ask(options, {"host": HOST}, guard=guard)[0] == 200


@pytest.mark.parametrize(
    ("host", "inside"),
    [("127.0.0.1", True), ("::1", True), ("127.9.9.9", True), ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("tuner", False)],
)
def test_it_is_known_which_addresses_only_this_machine_reaches(tmp_path: Path, host: str, inside: bool) -> None:
    assert is_loopback(host) is inside
    if inside:
        check_exposure(local(tmp_path, host=host))
    else:
        with pytest.raises(InputError, match="PRIMUS_MCP_TOKEN"):
            check_exposure(local(tmp_path, host=host))
        check_exposure(local(tmp_path, host=host, tokens=(TOKEN,)))
        with pytest.raises(InputError, match="16 characters"):
            check_exposure(local(tmp_path, host=host, tokens=("short",)))
