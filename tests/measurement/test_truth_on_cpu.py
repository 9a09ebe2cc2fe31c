"""Anchored projections against really running the job: TP 2, EP 2 and a two-stage pipeline on two gloo ranks of one thread each.

Layers are measured before and after the real run. A turn counts where both give the same projection: the machine kept its speed. Compute
is held against the CPU time of the busiest rank, on a busy machine too. The whole iteration is held against wall time, in the first turn
in which the ranks had the cores that they were ready for. Turns after the first run under real-time scheduling where that is allowed; at
more than LOAD a core they are not believed: what runs while a rank waits takes its caches. Never is a turn chosen by its error.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from truth import Comparison, compare, first_in_line

pytestmark = [pytest.mark.alone, pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")]
TOLERANCE, DISTURBED, DRIFT = 0.2, 0.05, 0.1
LOAD, TURNS = 2.5, 3
KINDS = ("tp", "ep", "pp")


@cache
def turn(kind: str, name: str) -> Comparison:
    """One comparison, shared by the tests."""
    with tempfile.TemporaryDirectory() as folder:
        found = compare(kind, Path(folder) / "lock")
    sys.stdout.write(f"{name}: {found.text}\n")
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_projected_compute_is_near_the_cpu_time_of_the_real_job(kind: str, record_property: Callable[[str, object], None]) -> None:
    for name in ("first", "second"):
        found = turn(kind, name)
        record_property(name, found.text)
        if found.drift < DRIFT:
            assert abs(found.cpu - 1) < TOLERANCE, found.text
            return
    pytest.skip(f"the machine changed its speed: {found.text}")


@pytest.mark.parametrize("kind", KINDS)
def test_the_projected_iteration_is_near_the_real_one(kind: str, record_property: Callable[[str, object], None]) -> None:
    found = turn(kind, "first")
    for number in range(1, TURNS + 1):
        record_property(f"turn {number}", found.text)
        if found.drift < DRIFT and found.waited < DISTURBED:
            assert abs(found.wall - 1) < TOLERANCE, found.text
            return
        if number == TURNS or os.getloadavg()[0] > LOAD * (os.cpu_count() or 1):
            break
        with first_in_line():
            found = turn(kind, f"first in line {number}")
    pytest.skip(f"other programs took the cores: {found.text}")
