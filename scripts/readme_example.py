"""Writes what `make tune` prints into README.md, between its markers: `python scripts/readme_example.py [--check]`."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT_DIR = "tuning_runs/mixtral_8x22B-mi355x_4nodes"
BEGIN, END = "<!-- begin: make tune -->\n", "<!-- end: make tune -->\n"
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
        try:
            code = main(COMMAND)
        finally:
            os.chdir(before)
    if code != 0:
        raise SystemExit(f"the main job ended with code {code}")
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def readme_with(output: str) -> str:
    """README.md with the output in its place."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n```text\n{output}```\n\n{END}{tail}"


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
