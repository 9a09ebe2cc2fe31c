"""Fixtures that every room's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("thorough", max_examples=10_000)

PROJECT_ROOT = Path(__file__).parent.parent
SHARED = PROJECT_ROOT.parent / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference material beside the project; tests that need it skip where it is absent."""
    if not (SHARED / "README.md").is_file():
        pytest.skip("reference material (../shared) is not on this machine")
    return SHARED
