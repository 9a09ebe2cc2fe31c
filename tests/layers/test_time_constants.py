"""The engine's time constants are data with a source, and every one of them is used."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import yaml

import primus_mcp
from primus_mcp.inputs.constants import TIME, TIME_PAIRS

ROOM = Path(primus_mcp.__file__).parent / "projection"


def test_every_constant_states_unit_range_and_source() -> None:
    text = (files("primus_mcp.catalog") / "engine" / "time.yaml").read_text(encoding="utf-8")
    for name, fields in yaml.safe_load(text).items():
        assert set(fields) == {"value", "unit", "range", "source", "fitted_on"}, name
        assert fields["source"], name
        if not isinstance(fields["value"], list):
            low, high = fields["range"]
            assert low <= fields["value"] <= high, name


def test_every_constant_is_read_by_a_formula() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for room in ("layers", "performance") for path in (ROOM / room).glob("*.py"))
    for name in (*TIME, *TIME_PAIRS):
        stem = name.split(".")[0]
        assert f'"{name}"' in source or f'"{stem}.' in source or f'f"{stem}' in source or stem == "launches", name
