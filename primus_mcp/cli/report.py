"""`primus-mcp report`: report.html of an out-dir."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The out-dir, and where the page goes."""
    parser.add_argument("out_dir", type=Path, metavar="OUT_DIR", help="out-dir of `primus-mcp tune` or `sweep --out-dir`")
    parser.add_argument("--charts", type=Path, metavar="DIR", help="also write every chart of the page as an SVG file there")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write (default OUT_DIR/report.html)")


def run(arguments: argparse.Namespace) -> int:
    """Write the page and print its path."""
    from primus_mcp.reports.chart_files import chart_files
    from primus_mcp.reports.html import REPORT_NAME, page_style, report_html
    from primus_mcp.reports.html_source import read_report
    from primus_mcp.trials.storage import RunDirectory

    source = read_report(arguments.out_dir)
    target: Path = arguments.output or arguments.out_dir / REPORT_NAME
    page = report_html(source)
    RunDirectory(target.parent).write(target.name, page)
    print(target)
    if arguments.charts is not None:
        for name, chart in chart_files(page, page_style()).items():
            RunDirectory(arguments.charts).write(name, chart)
            print(arguments.charts / name)
    return 0
