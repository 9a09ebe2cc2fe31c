"""JSON Schemas (2020-12) of a line of trials.jsonl and of summary.json, shipped for other programs that read them.

`python -m primus_mcp.reports.schemas` brings the shipped files up to date.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from primus_mcp.reports.summary import Summary
from primus_mcp.trials.log import TrialRecord

TRIAL_LINE_SCHEMA = Path(__file__).parent / "trial_line.schema.json"
SUMMARY_SCHEMA = Path(__file__).parent / "summary.schema.json"
_DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def trial_line_schema() -> dict[str, Any]:
    """Of one line of trials.jsonl."""
    return {**_DIALECT, **TrialRecord.model_json_schema()}


def summary_schema() -> dict[str, Any]:
    """Of summary.json."""
    return {**_DIALECT, **Summary.model_json_schema()}


if __name__ == "__main__":
    for path, schema in ((TRIAL_LINE_SCHEMA, trial_line_schema()), (SUMMARY_SCHEMA, summary_schema())):
        path.write_text(json.dumps(schema, indent=1) + "\n", encoding="utf-8")
