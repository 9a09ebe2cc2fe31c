"""Fixtures: a server in a temporary home, and clients of both protocol eras."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client
from mcp_cases import Connect, HttpServer, Mode

from primus_mcp.server.app import PrimusServer, build_server
from primus_mcp.server.options import ServeOptions


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> Mode:
    """The modern, stateless era and the handshake era."""
    found: Mode = request.param
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def server(home: Path) -> PrimusServer:
    return build_server(ServeOptions(home=home))


@pytest.fixture
def hasty(home: Path) -> PrimusServer:
    """A server that answers long work with a job handle at once."""
    return build_server(ServeOptions(home=home, answer_within_s=0.05))


@pytest.fixture
def connect(server: PrimusServer, mode: Mode) -> Connect:
    """Opens a client on the server in memory."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Client]:
        async with Client(server, mode=mode) as client:
            yield client

    return opened


@pytest.fixture
def http_server(home: Path) -> Iterator[HttpServer]:
    running = HttpServer(home)
    yield running
    running.stop()
