"""A chart before it is drawn, and the pieces that specifications share.

Values of the user stand in `data.values` under field names of ours, and in domains; never in a field name or an expression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from primus_mcp.reports.charts.theme import FONT_SIZE, WIDTH, config, ink

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """`name` is a file's stem, `title` says what is shown, `note` what is left out; `spec` is Vega-Lite without title and background.

    `gist`: the figures that a reader who does not see the chart must hear.
    """

    name: str
    title: str
    spec: Mapping[str, Any]
    note: str = ""
    gist: str = ""

    @property
    def spoken(self) -> str:
        """What a screen reader says of the chart."""
        return f"{self.title}: {self.gist}" if self.gist else self.title


def axis(field: str, low: float, high: float, title: str | None, *, grid: bool = True, **more: Any) -> dict[str, Any]:
    """A position on a linear scale from `low` to `high`."""
    scale = {"domain": [low, high], "zero": False, "nice": False}
    return {"field": field, "type": "quantitative", "scale": scale, "title": title, "axis": {"grid": grid, "format": ",.6~g", **more}}


def layer(rows: Sequence[Row], mark: str, encoding: Mapping[str, Any], *, tips: bool = False, **look: Any) -> dict[str, Any]:
    """Marks of one kind; with `tips` each says its row's `tip`, else they are mute."""
    spoken = {"description": {"field": "tip", "type": "nominal"}} if tips else {}
    return {"data": {"values": list(rows)}, "mark": {"type": mark, "aria": tips, **look}, "encoding": {**encoding, **spoken}}


def text_layer(rows: Sequence[Row], encoding: Mapping[str, Any], **look: Any) -> dict[str, Any]:
    """The rows' `text`."""
    encoding = {**encoding, "text": {"field": "text", "type": "nominal"}}
    return layer(rows, "text", encoding, **{"color": ink("fg"), "fontSize": FONT_SIZE, **look})


def colors(field: str, names: Sequence[str], inks: Sequence[str], *, legend: bool = True) -> dict[str, Any]:
    """A colour a name, in this order, with a legend."""
    scale = {"domain": list(names), "range": [ink(name) for name in inks]}
    return {"field": field, "type": "nominal", "scale": scale, **({} if legend else {"legend": None})}


def layered(layers: Sequence[Mapping[str, Any]], height: float, *, left: float = 8, right: float = 16, top: float = 8) -> dict[str, Any]:
    """Layers in one frame, as wide as every chart; `left`, `right` and `top` leave room for text outside the axes."""
    return {
        "width": WIDTH,
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "padding": {"left": left, "right": right, "top": top, "bottom": 8},
        "config": config(),
        "layer": list(layers),
    }
