"""Fixtures that every room's tests share."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import settings

settings.register_profile("thorough", max_examples=10_000)

PROJECT_ROOT = Path(__file__).parent.parent
SHARED = PROJECT_ROOT.parent / "shared"


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each test has an empty cache of earlier runs, made when it is first written."""
    monkeypatch.setenv("PRIMUS_MCP_CACHE_DIR", str(tmp_path_factory.getbasetemp() / f"cache-{uuid4().hex}"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference material beside the project; tests that need it skip where it is absent."""
    if not (SHARED / "README.md").is_file():
        pytest.skip("reference material (../shared) is not on this machine")
    return SHARED
