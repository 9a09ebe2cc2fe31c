"""`primus-mcp report`: report.html of an out-dir."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

OTHER_FILE = "name a place that is writable and has room with --output FILE"
OTHER_FOLDER = "name a place that is writable and has room with --charts DIR"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The out-dir, and where the page goes."""
    parser.add_argument("out_dir", type=Path, metavar="OUT_DIR", help="out-dir of `primus-mcp tune` or `sweep --out-dir`")
    parser.add_argument("--charts", type=Path, metavar="DIR", help="also write every chart of the page there, as SVG and as PNG")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write (default OUT_DIR/report.html)")


def run(arguments: argparse.Namespace) -> int:
    """Write the page and print its path."""
    from primus_mcp.reports.charts.render import chart_files
    from primus_mcp.reports.html import REPORT_NAME, report_html
    from primus_mcp.reports.html_source import read_report
    from primus_mcp.reports.page_charts import page_charts
    from primus_mcp.trials.storage import write_unlocked

    source = read_report(arguments.out_dir)
    for line in source.left_out:
        print(f"note: {line}", file=sys.stderr)
    target: Path = arguments.output or arguments.out_dir / REPORT_NAME
    write_unlocked(target, report_html(source), OTHER_FILE)
    print(target)
    if arguments.charts is not None:
        for number, chart in enumerate(chart_files(page_charts(source)), 1):
            for suffix, content in ((".svg", chart.svg), (".png", chart.png)):
                name = f"{number:02d}-{chart.name}{suffix}"
                write_unlocked(arguments.charts / name, content, OTHER_FOLDER)
                print(arguments.charts / name)
    return 0
