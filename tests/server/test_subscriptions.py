"""Clients are told when a trial lands: over `subscriptions/listen` and over `resources/subscribe`."""

from __future__ import annotations

from typing import Any

import anyio
import mcp.types as types
import pytest
from mcp import Client
from mcp_cases import LLAMA, call

from primus_mcp.server.app import PrimusServer
from primus_mcp.space.knobs import TrialConfig

pytest_plugins = ("mcp_fixtures",)
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]


async def test_a_modern_client_hears_of_trials_also_of_those_that_another_process_adds(server: PrimusServer) -> None:
    async with Client(server) as client:
        session_id = (await call(client, "open_session", **LLAMA))["session_id"]
        uri = f"primus://sessions/{session_id}/trials"
        async with client.listen(resource_subscriptions=[uri]) as events:
            await call(client, "evaluate_simulate")
            with anyio.fail_after(10):
                event: Any = await anext(aiter(events))
            assert event.uri == uri
            session = server.app.store.find(session_id, "").tuning
            await anyio.to_thread.run_sync(lambda: session.evaluate(TrialConfig(mbs=1), origin="llm"))
            with anyio.fail_after(10):
                event = await anext(aiter(events))
            assert event.uri == uri


async def test_a_handshake_client_hears_of_trials_until_it_unsubscribes(server: PrimusServer) -> None:
    heard: list[str] = []

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.append(str(message.params.uri))

    async with Client(server, mode="legacy", message_handler=on_message) as client:
        session_id = (await call(client, "open_session", **LLAMA))["session_id"]
        uri = f"primus://sessions/{session_id}/best"
        await client.subscribe_resource(uri)
        await call(client, "evaluate_simulate")
        with anyio.fail_after(10):
            while not heard:
                await anyio.sleep(0.01)
        assert heard == [uri]
        await client.unsubscribe_resource(uri)
        await call(client, "evaluate_simulate", config_json={"mbs": 1})
        await anyio.sleep(0.2)
        assert heard == [uri]


async def test_a_client_that_has_gone_disturbs_nobody(server: PrimusServer) -> None:
    async with Client(server, mode="legacy") as gone:
        session_id = (await call(gone, "open_session", **LLAMA))["session_id"]
        await gone.subscribe_resource(f"primus://sessions/{session_id}/trials")
    async with Client(server, mode="legacy") as client:
        await call(client, "evaluate_simulate")
        await call(client, "evaluate_simulate", config_json={"mbs": 1})
