"""Takes docs/report.png, the picture of the report of `make tune`, with a headless Chromium; without one the old picture stays."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZE = "1100,1750"
WORKLOAD = ROOT / "examples/workloads/mixtral_8x22B_v0.1-BF16-pretrain.yaml"
CLUSTER = ROOT / "examples/clusters/mi355x_4nodes.yaml"


def report(folder: Path) -> Path:
    """report.html of the main job, run in `folder`."""
    from primus_mcp.cli.main import main

    os.environ["PRIMUS_MCP_CACHE_DIR"] = str(folder / "cache")
    flags = ["--seed-only", "--gemm-backend", "roofline", "--quiet", "--out-dir", str(folder / "run")]
    with contextlib.redirect_stdout(io.StringIO()):
        done = main(["tune", "--workload", str(WORKLOAD), "--target-cluster", str(CLUSTER), *flags])
        if done != 0 or main(["report", str(folder / "run")]) != 0:
            raise SystemExit("the main job has no report")
    return folder / "run" / "report.html"


def main() -> int:
    """Replace docs/report.png."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        sys.stderr.write("docs/report.png stays as it is: there is no Chromium here\n")
        return 0
    with tempfile.TemporaryDirectory() as name:
        page, picture = report(Path(name)), Path(name) / "report.png"
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            f"--screenshot={picture}",
            f"--window-size={SIZE}",
            page.as_uri(),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=120)  # noqa: S603  a browser of this machine on our own page
        shutil.copyfile(picture, ROOT / "docs" / "report.png")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
