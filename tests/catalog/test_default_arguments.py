"""The defaults cover every trainer argument that any room reads."""

from __future__ import annotations

import re
from pathlib import Path

import primus_mcp
from primus_mcp.inputs.argument_values import complete_arguments, default_arguments, start_arguments

_READ = re.compile(r"\b(?:arguments|a)(?:\.get\(|\[)\"([a-z0-9_]+)\"")
_TYPED = re.compile(r"\b(?:flag|count|choice|fraction|optional_count|optional_text|turbo_flag|layer_pattern)\(arguments, \"([a-z0-9_]+)\"")
ROOMS = ("inputs", "space", "projection", "evaluation", "validation", "search", "tools")
"""Rooms that read trainer arguments (a worker's job is another kind of mapping)."""


def test_every_argument_that_the_engine_reads_has_a_default() -> None:
    package = Path(primus_mcp.__file__).parent
    sources = [path for room in ROOMS for path in (package / room).rglob("*.py")]
    read = {key for path in sources for pattern in (_READ, _TYPED) for key in pattern.findall(path.read_text(encoding="utf-8"))}
    assert len(read) > 80
    assert read - set(default_arguments()) - set(start_arguments()) == set()
    assert not set(default_arguments()) & set(start_arguments())


def test_given_arguments_win_over_defaults_and_unknown_ones_stay() -> None:
    complete = complete_arguments({"micro_batch_size": 7, "wandb_project": "x"})
    assert complete["micro_batch_size"] == 7
    assert complete["wandb_project"] == "x"
    assert complete["optimizer"] == "adam"
