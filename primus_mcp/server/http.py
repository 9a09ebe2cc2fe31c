"""Streamable HTTP: many clients at `/mcp`, behind the guard."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator

import anyio
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from primus_mcp.errors import InputError
from primus_mcp.server.app import PrimusServer
from primus_mcp.server.guard import AsgiApp, Guard, check_exposure
from primus_mcp.server.lifecycle import leave, leave_on_signals, quiet_server
from primus_mcp.server.options import ServeOptions

MAX_BODY_BYTES = 1024 * 1024
MAX_HTTP_SESSIONS = 1_000
_log = logging.getLogger(__name__)


def http_app(server: PrimusServer, options: ServeOptions) -> AsgiApp:
    """The ASGI application behind the guard. The SDK's own Host check is off: it is weaker, and beyond loopback absent."""
    return Guard(
        server.streamable_http_app(
            max_request_body_size=MAX_BODY_BYTES,
            max_sessions=MAX_HTTP_SESSIONS,
            host=options.host,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        ),
        options,
    )


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers, which would wait for open event streams."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the life cycle."""
        yield


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=512)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host} port {port} ({error.strerror or error})", where="serve", remedy="choose another --port"
        ) from None


def serve_http(options: ServeOptions) -> None:
    """Serve until a signal, then end the process."""
    check_exposure(options)
    listener = _listen(options.host, options.port)
    server = quiet_server(options)
    config = uvicorn.Config(http_app(server, options), log_level="warning", access_log=False, server_header=False, ws="none")
    leave_on_signals(server.app.jobs)
    _log.warning("primus-mcp serves http://%s:%d/mcp", options.host, listener.getsockname()[1])

    async def run() -> None:
        await _Uvicorn(config).serve(sockets=[listener])
        leave(0, server.app.jobs)

    anyio.run(run)
