"""Before any HTTP request reaches MCP: Host, Origin, token and rate are checked, on loopback too."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from hashlib import sha256
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from primus_mcp.errors import InputError
from primus_mcp.server.application import OWNER_KEY
from primus_mcp.server.options import ServeOptions
from primus_mcp.server.sessions import LOCAL
from primus_mcp.units import S_PER_MINUTE

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
HEALTH_PATH = "/health"
MIN_TOKEN_CHARACTERS = 16
BURST_S = 10
MAX_CLIENTS = 10_000


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(options: ServeOptions) -> None:
    """Raise InputError for a server that others could reach without a token, or with one that can be guessed."""
    if not is_loopback(options.host) and not options.tokens:
        raise InputError(
            f"--host {options.host} is reachable from other machines",
            where="serve",
            remedy="set PRIMUS_MCP_TOKEN or --token-file, or use 127.0.0.1",
        )
    if any(len(token) < MIN_TOKEN_CHARACTERS for token in options.tokens):
        raise InputError(f"a token has fewer than {MIN_TOKEN_CHARACTERS} characters", where="serve", remedy="use a long random one")


def _name_of(authority: str) -> str | None:
    """Host name of `name`, `name:port` or `[v6]:port`, lower case; None when it is none of these."""
    try:
        parts = urlsplit(f"//{authority}")
        _ = parts.port
    except ValueError:
        return None
    return (
        parts.hostname
        if parts.hostname and parts.username is None and not parts.path and "?" not in authority and "#" not in authority
        else None
    )


class _Bucket:
    """Tokens that refill at a rate; a request takes one."""

    __slots__ = ("left", "seen")

    def __init__(self, size: float, now: float) -> None:
        self.left, self.seen = size, now

    def take(self, rate: float, size: float, now: float) -> bool:
        self.left = min(size, self.left + (now - self.seen) * rate)
        self.seen = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Guard:
    """ASGI middleware. An allowed request carries its owner in the scope: a digest of its token."""

    def __init__(self, app: AsgiApp, options: ServeOptions, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._app, self._options, self._clock = app, options, clock
        names = (*LOOPBACK_NAMES, *(() if options.host in ("0.0.0.0", "::") else (options.host,)))  # noqa: S104
        self._hosts = {name.strip("[]").lower() for name in (*names, *options.allowed_hosts)}
        self._origins = {origin.rstrip("/").lower() for origin in options.allowed_origins}
        self._owners = {token.encode(): sha256(token.encode()).hexdigest()[:32] for token in options.tokens}
        self._buckets: dict[str, _Bucket] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an allowed request on, answer any other."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        refusal = self._check_origin(headers)
        if refusal is None and scope["path"] == HEALTH_PATH:
            await _answer(send, 200, "ok")
            return
        owner = self._owner(headers) if refusal is None else None
        if refusal is None and owner is None:
            refusal = (401, "a bearer token is needed")
        if refusal is None and not self._within_rate(owner or LOCAL, scope):
            refusal = (429, "too many requests; wait a moment")
        if refusal is not None:
            await _answer(send, *refusal)
            return
        scope[OWNER_KEY] = owner
        await self._app(scope, receive, send)

    def _check_origin(self, headers: dict[str, list[str]]) -> tuple[int, str] | None:
        """A web page elsewhere must not reach this server through the user's browser (DNS rebinding, cross-site requests)."""
        hosts, origins = headers.get("host", []), headers.get("origin", [])
        if len(hosts) != 1 or _name_of(hosts[0]) not in self._hosts:
            return (421, "this server does not answer to that host name")
        if not origins:
            return None
        origin = origins[0].rstrip("/").lower()
        if len(origins) == 1 and (origin in self._origins or origin in (f"http://{hosts[0].lower()}", f"https://{hosts[0].lower()}")):
            return None
        return (403, "requests from that origin are not allowed")

    def _owner(self, headers: dict[str, list[str]]) -> str | None:
        if not self._owners:
            return LOCAL
        given = headers.get("authorization", [])
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        found = None
        for known, owner in self._owners.items():
            if secrets.compare_digest(known, token.strip().encode("utf-8", "replace")):
                found = owner
        return found if scheme.lower() == "bearer" else None

    def _within_rate(self, owner: str, scope: Scope) -> bool:
        client = scope.get("client")
        key = owner or (client[0] if client else "")
        rate = self._options.requests_per_minute / S_PER_MINUTE
        now = self._clock()
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.clear()
        bucket = self._buckets.setdefault(key, _Bucket(rate * BURST_S, now))
        return bucket.take(rate, rate * BURST_S, now)


async def _answer(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 429:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
