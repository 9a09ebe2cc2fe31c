"""The accuracy table of the benchmark holds its bounds on the published runs, where those are at hand."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

BENCHMARK = Path(__file__).parent.parent.parent / "benchmarks" / "accuracy_memory.py"


@pytest.fixture(scope="module")
def scored(shared: Path) -> list[Any]:
    """One entry a distinct configuration of completeness A or B."""
    benchmark = runpy.run_path(str(BENCHMARK))
    found, _ = benchmark["score"](benchmark["memory_rows"](shared / "truth" / "measured.jsonl"))
    return list(found)


def _mape(scored: list[Any], group: str) -> float:
    errors = [abs(item.error) for item in scored if item.group == group]
    assert errors
    return float(sum(errors) / len(errors))


def test_allocated_memory_of_megatron_core_is_within_a_fifth_of_a_per_cent(scored: list[Any]) -> None:
    assert _mape(scored, "B200 allocated") <= 0.002


def test_device_memory_on_amd_is_within_two_and_a_half_per_cent(scored: list[Any]) -> None:
    assert _mape(scored, "MI355X device") <= 0.025


def test_reserved_memory_of_torchtitan_is_within_seven_per_cent(scored: list[Any]) -> None:
    """Structure from source and one fragmentation figure; the unexplained part is in docs/memory.md."""
    errors = [abs(item.error) for item in scored if item.group.endswith("reserved")]
    assert sum(errors) / len(errors) <= 0.07


def test_no_bias_and_no_wrong_verdict(scored: list[Any]) -> None:
    errors = [item.error for item in scored]
    assert abs(sum(errors) / len(errors)) <= 0.02
    assert not any(item.refused for item in scored)
    assert sum(item.verdict == "at_risk" for item in scored) <= 0.15 * len(scored)
