"""The server over streamable HTTP as a process: tokens, owners, limits and life cycle."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_cases import LLAMA, OTHER_TOKEN, TOKEN, HttpServer, Mode, call, not_started, refused

pytest_plugins = ("mcp_fixtures",)
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def with_token(url: str, token: str, mode: Mode) -> Client:
    http = httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"})
    return Client(streamable_http_client(url, http_client=http), mode=mode)


@pytest.mark.anyio
async def test_a_client_opens_and_evaluates_over_http_and_always_needs_its_id(http_server: HttpServer, mode: Mode) -> None:
    async with Client(http_server.url, mode=mode) as client:
        session_id = (await call(client, "open_session", **LLAMA))["session_id"]
        assert (await call(client, "evaluate_simulate", session_id=session_id))["legal"] is True
        assert "session_id" in await refused(client, "evaluate_simulate")
        assert "session_id" in await refused(client, "evaluate_simulate", session_id="")


@pytest.mark.anyio
async def test_a_session_is_known_only_to_the_token_that_opened_it(home: Path, tmp_path: Path, mode: Mode) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# team\n{OTHER_TOKEN}\n")
    server = HttpServer(home, "--token-file", str(tokens), PRIMUS_MCP_TOKEN=TOKEN)
    try:
        async with with_token(server.url, TOKEN, mode) as one, with_token(server.url, OTHER_TOKEN, mode) as other:
            session_id = (await call(one, "open_session", **LLAMA))["session_id"]
            assert "open_session again" in await refused(other, "get_cluster", session_id=session_id)
            uris = [str(resource.uri) for resource in (await other.list_resources()).resources]
            assert uris == ["primus://guide"]
            from mcp import MCPError

            with pytest.raises(MCPError):
                await other.read_resource(f"primus://sessions/{session_id}/trials")
            assert (await call(one, "get_cluster", session_id=session_id))["world_size"] == 8
        log = server.log.read_text(encoding="utf-8")
        assert TOKEN not in log
        assert OTHER_TOKEN not in log
    finally:
        server.stop()


def _post(
    url: str, body: bytes = b'{"jsonrpc":"2.0","id":1,"method":"ping"}', headers: dict[str, str] | None = None, **more: str
) -> httpx2.Response:
    return httpx2.post(url, content=body, headers={**HEADERS, **(headers or {}), **more}, timeout=20)


def test_what_is_no_request_is_refused(http_server: HttpServer) -> None:
    url = http_server.url
    assert _post(url, host="evil.example").status_code == 421
    assert _post(url, origin="http://evil.example").status_code == 403
    assert _post(url, b"x" * (2 * 1024 * 1024)).status_code == 413
    assert _post(url, b"[" * 100_000).status_code == 400
    assert _post(url, headers={"content-type": "text/plain"}).status_code in (400, 415)
    assert _post(url, headers={"mcp-session-id": "0" * 32}).status_code in (400, 404)
    assert httpx2.get(url.replace("/mcp", "/health"), timeout=20).text == "ok"
    assert httpx2.get(url.replace("/mcp", "/other"), timeout=20).status_code == 404


def test_beyond_loopback_it_starts_only_with_a_token(home: Path) -> None:
    refusal = not_started("--http", "--host", "0.0.0.0", "--home", str(home))
    assert b"PRIMUS_MCP_TOKEN" in refusal.stderr
    server = HttpServer(home, "--host", "0.0.0.0", PRIMUS_MCP_TOKEN=TOKEN)
    try:
        local = f"http://127.0.0.1:{server.port}/mcp"
        assert _post(local).status_code == 401
        assert _post(local, host="evil.example", authorization=f"Bearer {TOKEN}").status_code == 421
        assert _post(local, authorization=f"Bearer {TOKEN}").status_code not in (401, 403, 421)
    finally:
        server.stop()


def test_a_port_in_use_is_one_line(http_server: HttpServer, home: Path) -> None:
    done = not_started("--http", "--port", str(http_server.port), "--home", str(home))
    assert b"choose another --port" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.anyio
async def test_a_signal_ends_it_while_streams_are_open(home: Path, mode: Mode) -> None:
    server = HttpServer(home)
    try:
        client: Any = Client(server.url, mode=mode)
        async with client:
            await call(client, "list_gpus")
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(10) == 128 + signal.SIGTERM
    except BaseExceptionGroup as error:  # the client loses its stream
        assert server.process.poll() is not None, error
    finally:
        server.stop()
