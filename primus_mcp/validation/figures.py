"""The few figures of docs/accuracy.md that stand beside every answer: catalog/measured/accuracy.yaml, written with the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from primus_mcp.inputs.hardware_files import gpu_profile
from primus_mcp.validation.groups import grouped, is_inferred
from primus_mcp.validation.refit import LeftOut, mean_of
from primus_mcp.validation.score import Scored

PATH = Path("primus_mcp") / "catalog" / "measured" / "accuracy.yaml"
TIME_GROUP = {"amd": "AMD headline", "nvidia": "NVIDIA headline"}
MEMORY_GROUP = {"amd": "AMD, device", "nvidia": "Megatron-Core, allocated"}
_DIGITS = 4


def _gpus(scored: Sequence[Scored], vendor: str, what: str) -> list[str]:
    """The vendor's GPUs that stated runs were scored on, as the catalogue names them."""
    own = {item.row.gpu for item in scored if item.what == what and item.skipped_reason is None and not is_inferred(item)}
    return sorted({gpu.name for gpu in map(gpu_profile, own) if gpu.vendor == vendor})


def figures(scored: Sequence[Scored], blind: Sequence[LeftOut]) -> dict[str, Any]:
    """{vendor: {time: {runs, gpus, mean_error, median_error, blind_mean_error}, memory: {...}}}; errors: fractions, None where unknown.

    Mean errors of time, in sample and blind, are over the same runs (those of `leave_out`); the median is that of the headline group.
    """
    found = {group.name: statistics for group, statistics in grouped(scored).items()}
    table: dict[str, Any] = {}
    for vendor, name in TIME_GROUP.items():
        own = [item for item in blind if item.vendor == vendor and len(item.families) == 1]
        table[vendor] = {}
        for what, group in (("time", name), ("memory", MEMORY_GROUP[vendor])):
            statistics = found[group]
            assert statistics.mape is not None and statistics.median is not None
            table[vendor][what] = {
                "runs": sum(item.configurations for item in own) if what == "time" else statistics.figures,
                "gpus": _gpus(scored, vendor, what),
                "mean_error": round(mean_of(own, "shipped") if what == "time" else statistics.mape, _DIGITS),
                "median_error": round(statistics.median, _DIGITS),
                "blind_mean_error": round(mean_of(own, "refitted"), _DIGITS) if what == "time" else None,
            }
    return table


def write(scored: Sequence[Scored], blind: Sequence[LeftOut], path: Path = PATH) -> None:
    """Write the file that `evaluation.accuracy` reads."""
    heading = "# Written by `python -m primus_mcp.validation.docs`: errors are fractions, blind: each model family left out of every fit.\n"
    path.write_text(heading + yaml.safe_dump(figures(scored, blind), sort_keys=False), encoding="utf-8")
