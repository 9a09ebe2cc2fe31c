"""The charts of a report as files: each is the page's own, with the page's style inside, so that it stands alone and keeps dark mode."""

from __future__ import annotations

import re

_CHART = re.compile(r'<svg role="img".*?</svg>', re.DOTALL)
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
_LONGEST_NAME = 60


def chart_files(page: str, style: str) -> dict[str, str]:
    """File name to SVG of every chart of a page, in its order; names come from what the charts say that they show."""
    found: dict[str, str] = {}
    for number, chart in enumerate(_CHART.findall(page), 1):
        title = _TITLE.search(chart)
        words = re.sub(r"[^a-z0-9]+", "-", re.sub(r"&\w+;", "", title[1].lower()) if title else "").strip("-")[:_LONGEST_NAME].rstrip("-")
        opening, rest = chart.split(">", 1)
        found[f"{number:02d}-{words or 'chart'}.svg"] = f"{opening}><style>{style}svg{{background:var(--bg)}}</style>{rest}\n"
    return found
