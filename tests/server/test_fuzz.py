"""Malformed calls: none ends the server, none shows a traceback, every refusal is one line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp_cases import LLAMA, Mode

from primus_mcp.server.app import build_server
from primus_mcp.server.host import HOST_TOOLS
from primus_mcp.server.options import ServeOptions
from primus_mcp.space.knobs import KNOBS
from primus_mcp.tools import TOOLS

CALLS = int(os.environ.get("PRIMUS_MCP_FUZZ_CALLS", "250"))
"""PRIMUS_MCP_FUZZ_CALLS=10000 runs the long version."""
NAMES = [*TOOLS, *HOST_TOOLS, "nothing", "", "../x"]
SLOW = {"plot_trials", "write_report", "export_best", "seed_trials", "sweep"}
ARGUMENTS = [
    "config_json", "session_id", "trial_id", "trial_ids", "limit", "cursor", "order", "detail", "note", "budget", "prompt", "workload",
    "cluster", "gpu", "nodes", "pin", "out_dir", "job_id", "wait_s", "seq_length", "axes", "where",
    "top", "gpus", "front", "target_tokens", "deadline_days", "usd_per_gpu_hour", "sensitivity", "expert", "x", "",
]  # fmt: skip
TEXT = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "../../etc/passwd",
            "a: &a [*a]\n",
            "{{}}",
            "\x00",
            "\ud800",
            "${HOME}",
            "mi300x",
            "llama3.1_8B",
            "1e999",
            "newest",
            "NaN",
            "[" * 500,
        ]
    ),
)
VALUE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=8,
)
CONFIG = st.dictionaries(st.sampled_from([*KNOBS, "tpp", ""]), VALUE, max_size=5)
CALL = st.tuples(st.sampled_from(NAMES), st.dictionaries(st.sampled_from(ARGUMENTS), st.one_of(VALUE, CONFIG), max_size=5))


def _portable(value: Any) -> Any:
    """What JSON can carry: the client refuses the rest before it is sent."""
    if isinstance(value, float) and not (value == value and abs(value) < 1e308):
        return 0.5
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_portable(item) for item in value]
    if isinstance(value, dict):
        return {_portable(key): _portable(item) for key, item in value.items()}
    return value


@pytest.fixture(scope="module", params=["auto", "legacy"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Client]]:
    home: Path = tmp_path_factory.mktemp("fuzz")
    mode: Mode = request.param
    with anyio.from_thread.start_blocking_portal() as portal:
        opened = Client(build_server(ServeOptions(home=home)), mode=mode)
        with portal.wrap_async_context_manager(opened) as connected:
            portal.call(connected.call_tool, "open_session", dict(LLAMA))
            yield portal, connected


@settings(max_examples=CALLS, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(CALL)
def test_a_malformed_call_is_answered_with_one_line(client: tuple[Any, Client], drawn: tuple[str, dict[str, Any]]) -> None:
    portal, connected = client
    name, arguments = drawn
    if name in SLOW and not arguments:
        return
    arguments = _portable({**arguments, **({"wait_s": 0} if name == "get_job" else {})})
    result = portal.call(connected.call_tool, name, arguments)
    text = "".join(part.text for part in result.content if part.type == "text")
    if result.is_error:
        assert "\n" not in text
        assert "Traceback" not in text
        assert "internal error" not in text, (name, arguments)
        assert "pydantic" not in text
        assert 3 < len(text) <= 2_100
    else:
        assert result.structured_content is not None
