"""docs/mcp.md is generated; the transcript in the docs is what the example agent does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from primus_mcp.server.docs import mcp_markdown
from primus_mcp.server.host import HOST_TOOLS
from primus_mcp.tools import TOOLS

pytest_plugins = ("mcp_fixtures",)
ROOT = Path(__file__).parents[2]


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8") == mcp_markdown(), "run: python -m primus_mcp.server.docs"


def test_the_page_describes_every_tool() -> None:
    text = mcp_markdown()
    for name in (*TOOLS, *HOST_TOOLS):
        assert f"### `{name}`" in text


def _example() -> ModuleType:
    path = ROOT / "examples" / "agent" / "tune_over_stdio.py"
    spec = importlib.util.spec_from_file_location("tune_over_stdio", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.anyio
async def test_the_scripted_agent_tunes_over_stdio_and_ends_with_the_exports(home: Path) -> None:
    exported, transcript = await _example().run(home, 2)
    assert "=== EXPORTS for primus-cli ===" in exported["block"]
    assert Path(exported["overlay_path"]).is_file()
    calls = re.findall(r"^> (\w+)\(", transcript, re.MULTILINE)
    assert calls[:4] == ["open_session", "evaluate_simulate", "seed_trials", "get_best"]
    assert calls[-1] == "export_best"
    written = (ROOT / "docs" / "agent-transcript.md").read_text(encoding="utf-8")
    told = re.findall(r"^> (\w+)\(", written, re.MULTILINE)
    assert told[:5] == calls[:5]
    assert told[-1] == "export_best"
    assert str(home) not in transcript
