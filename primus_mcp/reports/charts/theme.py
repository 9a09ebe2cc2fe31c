"""Colours by name, light and dark, and the look that all charts share.

A specification names a colour as `var(--c0)`: a page resolves it by its style sheet, and so follows the reader's light or dark mode; a file
gets the light colour written in (many viewers know no variables) and a style that exchanges it in dark mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WIDTH = 760
"""Pixels of every chart."""
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""Three fonts of equal widths: what is measured when a chart is laid out holds on a screen."""
FONT_SIZE, CHARACTER_PX = 11, 6.2
"""And the mean width of a character of that size."""

LIGHT: Mapping[str, str] = {
    "bg": "#ffffff",
    "fg": "#1b1f24",
    "soft": "#57606a",
    "line": "#d0d7de",
    "card": "#f6f8fa",
    "link": "#0550ae",
    "bad": "#a40e26",
    "c0": "#2563eb",
    "c1": "#b45309",
    "c2": "#0f766e",
    "c3": "#be123c",
    "c4": "#7e22ce",
    "c5": "#4d7c0f",
    "c6": "#0369a1",
    "c7": "#9d174d",
    "c8": "#854d0e",
    "c9": "#475569",
}
DARK: Mapping[str, str] = {
    "bg": "#0d1117",
    "fg": "#e6edf3",
    "soft": "#9da7b1",
    "line": "#3d444d",
    "card": "#161b22",
    "link": "#79b8ff",
    "bad": "#ff938a",
    "c0": "#6ea8fe",
    "c1": "#f0a85b",
    "c2": "#56d4bd",
    "c3": "#ff8095",
    "c4": "#c79bff",
    "c5": "#a3d65c",
    "c6": "#5cc8f5",
    "c7": "#f48fb9",
    "c8": "#e3c063",
    "c9": "#a3b3c9",
}
PARTS = tuple(name for name in LIGHT if name[0] == "c" and name[1:].isdigit())
"""Colours of parts, neighbours unlike each other; the last is grey."""
_DARK_MODE = "@media (prefers-color-scheme:dark)"


def ink(name: str) -> str:
    """A colour as specifications name it."""
    return f"var(--{name})"


def css_variables() -> str:
    """The style of a page that holds charts."""
    light, dark = (";".join(f"--{name}:{color}" for name, color in colors.items()) for colors in (LIGHT, DARK))
    return f":root{{color-scheme:light dark;{light}}}\n{_DARK_MODE}{{:root{{{dark}}}}}\n"


def dark_style() -> str:
    """The style of a file in which the light colours are written out."""
    rules = (f'[{what}="{LIGHT[name]}"]{{{what}:{DARK[name]}}}' for name in LIGHT for what in ("fill", "stroke"))
    return f"{_DARK_MODE}{{{''.join(rules)}}}"


def painted(spec: Any, colors: Mapping[str, str]) -> Any:
    """The specification with colours instead of their names; what comes from data stays as it is."""
    if isinstance(spec, Mapping):
        return {key: value if key in ("values", "domain", "text", "subtitle") else painted(value, colors) for key, value in spec.items()}
    if isinstance(spec, list | tuple):
        return [painted(value, colors) for value in spec]
    if isinstance(spec, str) and spec.startswith("var(--"):
        return colors[spec[6:-1]]
    return spec


def config() -> dict[str, Any]:
    """Vega's configuration: quiet axes, legend below, nothing spoken but the marks that have a description."""
    soft, fg, line = ink("soft"), ink("fg"), ink("line")
    return {
        "background": None,
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            "aria": False,
            "labelColor": soft,
            "titleColor": soft,
            "gridColor": line,
            "domainColor": line,
            "tickColor": line,
            "labelFontSize": FONT_SIZE,
            "titleFontSize": FONT_SIZE,
            "titleFontWeight": "normal",
            "labelPadding": 5,
            "titlePadding": 8,
        },
        "axisQuantitative": {"labelFlush": False, "ticks": False, "domain": False, "tickCount": 6},
        "legend": {
            "aria": False,
            "orient": "bottom",
            "title": None,
            "columns": 4,
            "labelColor": fg,
            "labelFontSize": FONT_SIZE,
            "labelLimit": 150,
            "symbolSize": 90,
            "symbolStrokeWidth": 0,
            "columnPadding": 18,
            "offset": 14,
        },
        "title": {
            "aria": False,
            "anchor": "start",
            "frame": "bounds",
            "color": fg,
            "fontSize": 13,
            "subtitleColor": soft,
            "subtitleFontSize": FONT_SIZE,
            "limit": WIDTH - 20,
            "offset": 14,
        },
    }
