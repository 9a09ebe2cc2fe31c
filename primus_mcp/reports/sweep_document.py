"""What sweeps found as one JSON document, and the page made of an out-dir: one way for the command line and for the tools."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from primus_mcp.evaluation.evaluators import Evaluator
from primus_mcp.reports.html import REPORT_NAME, report_html
from primus_mcp.reports.html_source import SWEEP_NAME, read_report
from primus_mcp.search.pareto import FrontPoint, pareto_front
from primus_mcp.search.sensitivity import Sensitivity
from primus_mcp.search.sweep_result import SweepResult
from primus_mcp.search.sweep_timeline import winner_timeline
from primus_mcp.trials.storage import RunDirectory

Swept = tuple[Evaluator, SweepResult, Sensitivity | None]
"""A cluster's evaluator, its sweep, and how sure its winner is."""


def sweep_document(found: Iterable[Swept], points: Sequence[FrontPoint]) -> dict[str, Any]:
    """{"sweeps": [a result with its sensitivity and the winner's pipeline, ...], "front": [points that none other beats, ...]}."""
    sweeps = [
        {
            **result.model_dump(mode="json"),
            "sensitivity": None if sure is None else sure.model_dump(mode="json"),
            "timeline": winner_timeline(evaluator, result),
        }
        for evaluator, result, sure in found
    ]
    return {"sweeps": sweeps, "front": [point.model_dump(mode="json") for point in pareto_front(points)]}


def keep_sweep(folder: RunDirectory, document: Mapping[str, Any]) -> None:
    """Write sweep.json, which the report shows."""
    folder.write(SWEEP_NAME, json.dumps(document, indent=1) + "\n")


def write_report(folder: RunDirectory) -> Path:
    """Write report.html of what lies in an out-dir. Raises RunDirectoryError where there is neither a log nor a sweep."""
    page = report_html(read_report(folder.path))
    folder.write(REPORT_NAME, page)
    return folder.path / REPORT_NAME
