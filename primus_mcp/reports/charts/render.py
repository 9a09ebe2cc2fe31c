"""Charts to SVG and PNG, all of a page in one go: a process draws them, nothing is fetched and nothing is printed."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from primus_mcp.errors import PrimusMcpError
from primus_mcp.reports.charts.chart import Chart
from primus_mcp.reports.charts.svg import file_svg, page_svg
from primus_mcp.reports.charts.theme import LIGHT, ink, painted
from primus_mcp.reports.charts.words import shown

CONVERTER = Path(__file__).with_name("converter.py")
LIMIT_S = 300.0
PNG_SCALE = 2.0
SUFFIXES = (".png", ".svg")


class ChartError(PrimusMcpError):
    """A chart cannot be drawn: the library is missing, or its process ended."""


class _EndedError(ChartError):
    """The process was ended, by the system or by a chart that needs more memory than there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartFile:
    """One chart as the contents of its two files."""

    name: str
    svg: str
    png: bytes


def page_figures(charts: Sequence[Chart]) -> dict[str, str]:
    """Name of a chart to its figure: caption and inline SVG; a line that says why where it cannot be drawn."""
    try:
        drawings = _converted([{"spec": dict(chart.spec), "scale": None} for chart in charts])
    except ChartError as error:
        drawings = [{"error": str(error)} for _ in charts]
    return {chart.name: _figure(chart, drawing) for chart, drawing in zip(charts, drawings, strict=True)}


def _figure(chart: Chart, drawing: dict[str, str]) -> str:
    caption = escape(shown(chart.title)) + (f' <span class="small">({escape(chart.note)})</span>' if chart.note else "")
    body = (
        f'<div class="scroll">{page_svg(drawing["svg"], chart.spoken)}</div>'
        if "svg" in drawing
        else f'<p class="bad">{escape(shown(drawing["error"]))}</p>'
    )
    return f"<figure><figcaption>{caption}</figcaption>{body}</figure>"


def chart_files(charts: Sequence[Chart]) -> list[ChartFile]:
    """Every chart as SVG and PNG with title and background. Raises ChartError."""
    jobs = [{"spec": _standalone(chart), "scale": PNG_SCALE} for chart in charts]
    found = []
    for chart, drawing in zip(charts, _converted(jobs), strict=True):
        if "error" in drawing:
            raise ChartError(f"the chart {chart.name} cannot be drawn: {shown(drawing['error'])}")
        found.append(ChartFile(name=chart.name, svg=file_svg(drawing["svg"], chart.title), png=b64decode(drawing["png"])))
    return found


def picture(chart: Chart, suffix: str) -> bytes:
    """The file of a chart whose name ends in `suffix`, one of SUFFIXES. Raises ChartError."""
    drawn = chart_files([chart])[0]
    return drawn.png if suffix == ".png" else drawn.svg.encode("utf-8")


def _standalone(chart: Chart) -> dict[str, Any]:
    """The specification in light colours on an opaque ground, with the title inside."""
    title, *rest = (shown(line, 120) for line in chart.title.split("\n"))
    heading = {"text": title, "subtitle": [line for line in (*rest, chart.note) if line]}
    return dict(painted({**chart.spec, "title": heading, "background": ink("bg")}, LIGHT))


def _converted(jobs: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """What the converter makes of each job; where one ended its process, each is drawn alone. Raises ChartError."""
    try:
        return _drawn(jobs) if jobs else []
    except _EndedError as error:
        if len(jobs) == 1:
            return [{"error": str(error)}]
        return [drawing for job in jobs for drawing in _converted([job])]


def _drawn(jobs: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    command = [sys.executable, "-P", str(CONVERTER)]
    given = json.dumps(list(jobs)).encode("ascii")
    try:
        done = subprocess.run(  # noqa: S603  our own program, without a shell
            command, input=given, capture_output=True, timeout=LIMIT_S, check=False, start_new_session=True
        )
    except subprocess.TimeoutExpired:
        raise ChartError(f"charts cannot be drawn: it took longer than {LIMIT_S:g} s") from None
    except OSError as error:
        raise ChartError(f"charts cannot be drawn: {shown(error.strerror or error)}") from None
    if done.returncode < 0:
        raise _EndedError(f"the chart cannot be drawn: its process ended with {done.returncode}")
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        told = [line for line in said if "Error" in line or "panicked" in line]
        reason = told[-1] if told else f"their process ended with {done.returncode}"
        remedy = "; pip install 'vl-convert-python>=1.9,<2'" if "vl_convert" in reason else ""
        raise ChartError(f"charts cannot be drawn: {shown(reason)}{remedy}")
    return _answered(done.stdout, len(jobs))


def _answered(said: bytes, most: int) -> list[dict[str, str]]:
    """The converter's answer, if it is one. Raises ChartError."""
    try:
        drawings = json.loads(said)
    except ValueError:
        drawings = None
    if not isinstance(drawings, list) or len(drawings) != most or not all(isinstance(drawing, dict) for drawing in drawings):
        raise ChartError(f"charts cannot be drawn: the answer is not the converter's: {shown(said[:80].decode('utf-8', 'replace'))}")
    return drawings
