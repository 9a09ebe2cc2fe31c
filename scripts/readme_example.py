"""Writes what `make tune` prints, and the headline of docs/accuracy.md, into README.md: `python scripts/readme_example.py [--check]`."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT_DIR = "tuning_runs/mixtral_8x22B-mi355x_4nodes"
# (label in README.md, first two cells of the row in docs/accuracy.md, where configurations, in-sample and blind error stand)
HEADLINES = (
    ("time, AMD GPUs", ("mean, one family at a time", "amd"), (2, 3, 5)),
    ("time, NVIDIA GPUs", ("mean, one family at a time", "nvidia"), (2, 3, 5)),
    ("memory", ("all runs with a stated configuration", ""), (1, 3, None)),
)
COMMAND = [
    *("tune", "--workload", str(ROOT / "examples/workloads/mixtral_8x22B_v0.1-BF16-pretrain.yaml")),
    *("--target-cluster", str(ROOT / "examples/clusters/mi355x_4nodes.yaml"), "--out-dir", OUT_DIR),
    *("--seed-only", "--gemm-backend", "roofline"),
]


def printed() -> str:
    """Standard output of the main job, run in an empty folder."""
    from primus_mcp.cli.main import main

    text = io.StringIO()
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()):
        os.chdir(folder)
        os.environ["PRIMUS_MCP_CACHE_DIR"] = str(Path(folder) / "cache")
        try:
            code = main(COMMAND)
        finally:
            os.chdir(before)
    if code != 0:
        raise SystemExit(f"the main job ended with code {code}")
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def accuracy_table(page: str) -> str:
    """The headline errors as docs/accuracy.md states them. Raises SystemExit where the page no longer does."""
    rows = [[cell.strip().strip("*") for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")]
    lines = [
        "| mean error of | published configurations | in sample | the model's family left out of every fit |",
        "|---|---|---|---|",
    ]
    for label, (first, second), (count, shown, blind) in HEADLINES:
        row = next((row for row in rows if row[0] == first and second in ("", row[1]) and "%" in row[shown]), None)
        if row is None:
            raise SystemExit(f"docs/accuracy.md has no row {first} {second}")
        lines.append(f"| {label} | {row[count]} | {row[shown]} | {row[blind] if blind is not None else '-'} |")
    return "\n".join(lines) + "\n"


def _between(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->\n"
    head, _, rest = text.partition(begin)
    return f"{head}{begin}\n{content}\n{end}{rest.partition(end)[2]}"


def readme_with(output: str) -> str:
    """README.md with the output and the accuracy in their places."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    return _between(_between(text, "make tune", f"```text\n{output}```\n"), "accuracy", accuracy_table(page))


def main() -> int:
    """Write the README, or with --check say whether it is current."""
    text = readme_with(printed())
    path = ROOT / "README.md"
    if "--check" in sys.argv[1:]:
        return 0 if path.read_text(encoding="utf-8") == text else 1
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
