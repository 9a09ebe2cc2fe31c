"""Engine constants: every one lies in its range, names its source, and is changed for a refit only as long as that lasts."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from primus_mcp.errors import UnknownFigureError
from primus_mcp.inputs.constants import MEMORY, TIME, TIME_PAIRS, Constant, load_constants, time_values


def test_every_constant_of_memory_lies_in_its_range_and_has_a_source() -> None:
    for constant in MEMORY.values():
        assert constant.low <= constant.value <= constant.high
        assert constant.source.strip()


def test_a_value_outside_its_range_or_without_a_source_is_refused() -> None:
    with pytest.raises(ValidationError, match="outside its range"):
        Constant(value=3.0, unit="s", range=(0.0, 2.0), source="x")
    with pytest.raises(ValidationError, match="source"):
        Constant(value=1.0, unit="s", range=(0.0, 2.0), source="")


def test_a_group_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownFigureError, match="'space'"):
        load_constants("space")


def test_changed_time_constants_are_back_afterwards_whatever_happens_inside() -> None:
    name, before = next(iter(TIME.items()))
    with pytest.raises(RuntimeError), time_values({name: before + 1}):
        assert TIME[name] == before + 1
        raise RuntimeError
    assert TIME[name] == before
    assert not set(TIME) & set(TIME_PAIRS)
