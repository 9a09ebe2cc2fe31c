"""The few figures of docs/accuracy.md that stand beside every answer: catalog/measured/accuracy.yaml, written with the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from primus_mcp.evaluation.nearest import RESIDUALS
from primus_mcp.inputs.hardware_files import gpu_profile
from primus_mcp.validation.groups import grouped, is_inferred
from primus_mcp.validation.models import bare_name, find_architecture
from primus_mcp.validation.refit import LeftOut, family_of, mean_of
from primus_mcp.validation.rows import Row
from primus_mcp.validation.score import Scored
from primus_mcp.validation.statistics import by_configuration

PATH = Path("primus_mcp") / "catalog" / "measured" / "accuracy.yaml"
RESIDUALS_PATH = PATH.with_name(RESIDUALS)
_SUITES = frozenset({"amd-headline", "nv-headline", "legacy-bulk"})
TIME_GROUP = {"amd": "AMD headline", "nvidia": "NVIDIA headline"}
MEMORY_GROUP = {"amd": "AMD, device", "nvidia": "Megatron-Core, allocated"}
_DIGITS = 4
_ANY_SEQ = 4096


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


def family_name(row: Row) -> str:
    """The family of a row's model, by the catalogue's name where it has one."""
    return family_of(find_architecture(row, row.seq or _ANY_SEQ).name or bare_name(row.model))


def residuals(scored: Sequence[Scored]) -> list[dict[str, Any]]:
    """{family, traits, error} of every distinct run of time that stands in a table, also those that leave much unsaid."""
    own = [item for item in scored if item.what == "time" and set(item.row.suite) & _SUITES and item.row.trust != "text"]
    found = []
    for items in by_configuration(own).values():
        errors = [item.error_fraction for item in items if item.error_fraction is not None]
        traits = items[0].traits
        if errors and traits is not None:
            found.append({"family": family_name(items[0].row), "traits": traits.model_dump(), "error": round(median(errors), _DIGITS)})
    return sorted(found, key=lambda entry: (entry["family"], *map(str, entry["traits"].values()), entry["error"]))


def write(scored: Sequence[Scored], blind: Sequence[LeftOut], path: Path = PATH) -> None:
    """Write the file that `evaluation.accuracy` reads."""
    heading = "# Written by `python -m primus_mcp.validation.docs`: errors are fractions, blind: each model family left out of every fit.\n"
    path.write_text(heading + yaml.safe_dump(figures(scored, blind), sort_keys=False), encoding="utf-8")
    write_residuals(scored, path.with_name(RESIDUALS))


def write_residuals(scored: Sequence[Scored], path: Path = RESIDUALS_PATH) -> None:
    """Write the file that `evaluation.nearest` reads."""
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in residuals(scored)), encoding="utf-8")
