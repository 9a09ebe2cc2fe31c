"""`primus-mcp axes`: the legal values of every knob."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from primus_mcp.cli.common import add_cluster_arguments, add_workload_arguments

if TYPE_CHECKING:
    from primus_mcp.space.knobs import KnobValue

SHOWN_VALUES = 20
"""Of a longer list the first and the last are shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Workload, cluster, pins, --json."""
    add_workload_arguments(parser)
    add_cluster_arguments(parser)
    parser.add_argument("--pin", action="append", metavar="KNOB=VALUE", help="hold a knob at a value (repeatable)")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Print each knob with its values, its own value marked."""
    from primus_mcp.cli.common import load_cluster, load_workload
    from primus_mcp.space.adapted import adapt_baseline
    from primus_mcp.space.axes import legal_axes
    from primus_mcp.space.knobs import KNOBS, knob_values
    from primus_mcp.space.parsing import parse_pins

    target = load_cluster(arguments)
    workload = adapt_baseline(load_workload(arguments), target.cluster).workload
    values = legal_axes(workload, target.cluster, axes=target.axes.model_dump(), pins=parse_pins(arguments.pin or ()))
    own = knob_values(workload.baseline)
    if arguments.json:
        print(json.dumps({name: {"values": list(items), "baseline": own[name]} for name, items in values.items()}, indent=2))
        return 0
    for name, items in values.items():
        shown = " ".join(map(_text, items)) if len(items) <= SHOWN_VALUES else f"{_text(items[0])} ... {_text(items[-1])}"
        print(f"{name:28} {shown}   (baseline {_text(own[name])}; {KNOBS[name].group})")
    print("each value is legal in some configuration; `primus-mcp evaluate` says why a combination is not")
    return 0


def _text(value: KnobValue) -> str:
    from primus_mcp.space.knobs import knob_text

    return "inherit" if value is None else knob_text(value)
