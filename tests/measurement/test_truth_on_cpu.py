"""Anchored projections against really running the job: TP 2, EP 2 and a two-stage pipeline on two gloo ranks of one thread each.

Wall time is compared where two cores are free for the ranks; CPU time, which others cannot take away, always.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from truth import compare

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
FREE_CORES, IDLE_LOAD = 2, 0.5
TOLERANCE = 0.2


def busy_cores() -> float:
    return os.getloadavg()[0]


@pytest.mark.parametrize("kind", ["tp", "ep", "pp"])
def test_the_projection_is_near_the_real_job(kind: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    busy = busy_cores()
    wall, cpu, text = compare(kind, tmp_path / "lock")
    sys.stdout.write(f"{text}\n")
    record_property("truth", text)
    assert 0.5 < cpu < 2.0, text
    if (os.cpu_count() or 1) - busy < FREE_CORES - IDLE_LOAD:
        pytest.skip(f"wall time not compared: {busy:.1f} of {os.cpu_count()} cores are busy")
    assert abs(wall - 1) < TOLERANCE, text
