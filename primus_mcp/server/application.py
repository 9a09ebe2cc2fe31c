"""What the handlers of one server share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourcesListChanged, ResourceUpdated
from mcp.shared.subscriptions import ServerEvent

from primus_mcp.errors import PrimusMcpError
from primus_mcp.server.host import Host
from primus_mcp.server.jobs import JobRunner
from primus_mcp.server.options import ServeOptions
from primus_mcp.server.sessions import LOCAL, OpenSession, SessionStore
from primus_mcp.tools.llm import LlmClient

OWNER_KEY = "primus_mcp.owner"
WORKING_THREADS, READING_THREADS, WAITING_THREADS = 4, 16, 128
MAX_SUBSCRIPTIONS = 1_000
WATCH_S = 1.0
UPDATED = ("trials", "best", "plot", "report")
_log = logging.getLogger(__name__)


def session_uri(session_id: str, part: str) -> str:
    """`primus://sessions/<id>/<part>`."""
    return f"primus://sessions/{session_id}/{part}"


def owner_of(request: Any) -> str:
    """Who sent an HTTP request, as the guard found out; LOCAL on stdio and in memory."""
    return str(request.scope.get(OWNER_KEY, LOCAL)) if request is not None else LOCAL


def _trials(entry: OpenSession) -> int:
    return entry.tuning.resumed


class Bus(InMemorySubscriptionBus):
    """The SDK's bus, which also knows whether anyone listens."""

    listeners = 0

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Count the listener while it is there."""
        unsubscribe = super().subscribe(listener)
        self.listeners += 1
        left = [unsubscribe]

        def leave() -> None:
            while left:
                left.pop()()
                self.listeners -= 1

        return leave


@dataclass(slots=True, kw_only=True)
class Application:
    """Sessions, jobs, subscriptions, and the limits on threads: pricing, reading and waiting do not stand in each other's way."""

    options: ServeOptions
    store: SessionStore
    llm: LlmClient | None = None
    jobs: JobRunner = field(default_factory=JobRunner)
    bus: Bus = field(default_factory=Bus)
    subscribed: dict[int, tuple[ServerSession, set[str]]] = field(default_factory=dict)
    _limiters: dict[str, anyio.CapacityLimiter] = field(default_factory=dict)

    def limiter(self, kind: str) -> anyio.CapacityLimiter:
        """The limiter of a kind of work; made on the loop that uses it."""
        sizes = {"work": WORKING_THREADS, "read": READING_THREADS, "wait": WAITING_THREADS}
        if kind not in self._limiters:
            self._limiters[kind] = anyio.CapacityLimiter(sizes[kind])
        return self._limiters[kind]

    def host(self, owner: str) -> Host:
        """What the server's own tools work on for a caller."""
        return Host(store=self.store, jobs=self.jobs, owner=owner, ask_llm=self.llm.ask if self.llm else None)

    def subscribe(self, connection: int, session: ServerSession, uri: str) -> None:
        """Remember a handshake client's wish; when there are too many, the connection that has waited longest loses its own."""
        while self.subscribed and sum(len(uris) for _, uris in self.subscribed.values()) >= MAX_SUBSCRIPTIONS:
            self.subscribed.pop(next(iter(self.subscribed)))
        self.subscribed.setdefault(connection, (session, set()))[1].add(uri)

    def unsubscribe(self, connection: int, uri: str) -> None:
        """Forget it."""
        _, uris = self.subscribed.get(connection, (None, set()))
        uris.discard(uri)
        if not uris:
            self.subscribed.pop(connection, None)

    async def trials_landed(self, entry: OpenSession) -> None:
        """Tell subscribers of both eras that the log of a session has grown."""
        if entry.tuning.resumed == entry.announced:
            return
        entry.announced = entry.tuning.resumed
        await self.notify(session_uri(entry.session_id, part) for part in UPDATED)

    async def watch(self) -> None:
        """Notice trials that jobs and other processes add to the logs, while someone is subscribed."""
        while True:
            await anyio.sleep(WATCH_S)
            if not self.bus.listeners and not self.subscribed:
                continue
            for entry in self.store.everyone():
                try:
                    grown = await anyio.to_thread.run_sync(_trials, entry)
                except PrimusMcpError as error:
                    _log.debug("a log could not be read: %s", error)
                    continue
                if grown != entry.announced:
                    await self.trials_landed(entry)

    async def sessions_changed(self, session: ServerSession | None) -> None:
        """Tell clients that the list of resources has changed."""
        await self.bus.publish(ResourcesListChanged())
        if session is not None:
            await self._send(session.send_resource_list_changed)

    async def notify(self, uris: Iterable[str]) -> None:
        """Updated resources, on `subscriptions/listen` streams and to `resources/subscribe` clients."""
        for uri in uris:
            await self.bus.publish(ResourceUpdated(uri=uri))
            for key, (session, wanted) in list(self.subscribed.items()):
                if uri in wanted and not await self._send(session.send_resource_updated, uri):
                    self.subscribed.pop(key, None)

    async def _send(self, send: Any, *arguments: Any) -> bool:
        """Whether a notification could be sent: a client that has gone is no failure of the call that others made."""
        try:
            await send(*arguments)
        except Exception as error:  # noqa: BLE001  whatever the transport raises, the caller's own work is done
            _log.debug("a client could not be notified: %r", error)
            return False
        return True
