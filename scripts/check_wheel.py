"""Build the wheel, install it into an empty environment, and use it as a stranger would: from an empty folder, without the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

PROJECT = Path(__file__).parents[1]
NEEDED = (
    "primus_mcp/py.typed",
    "primus_mcp/catalog/models/llama3.1_70B.yaml",
    "primus_mcp/catalog/primus/models/megatron/llama3.1_70B.yaml",
    "primus_mcp/catalog/hardware/mi300x.yaml",
    "primus_mcp/reports/trial_line.schema.json",
    "primus_mcp/reports/summary.schema.json",
    "primus_mcp/reports/html_page.css",
    "primus_mcp/reports/html_page.js",
    "primus_mcp/reports/charts/converter.py",
    "primus_mcp/_examples/workloads/llama3.1_70B-BF16-pretrain.yaml",
    "primus_mcp/_examples/clusters/mi300x_4nodes.yaml",
)


def build(folder: Path) -> Path:
    """The wheel, with everything in it that is needed at run time."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", str(folder)]
    subprocess.run([*command, str(PROJECT)], check=True)  # noqa: S603
    (wheel,) = folder.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    missing = [name for name in NEEDED if name not in names]
    stray = [name for name in names if name.split("/")[0] not in ("primus_mcp",) and ".dist-info" not in name]
    if missing or stray:
        raise SystemExit(f"the wheel lacks {missing} and has {stray[:5]} besides")
    return wheel


def main() -> None:
    """Every step in a folder of its own; the first that fails ends the run."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        wheel = build(folder)
        venv.EnvBuilder(with_pip=True).create(folder / "venv")
        programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        python = programs / ("python.exe" if os.name == "nt" else "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)], check=True)  # noqa: S603
        empty = folder / "empty"
        empty.mkdir()

        def run(*arguments: str) -> str:
            return subprocess.run(arguments, cwd=empty, check=True, capture_output=True, text=True).stdout  # noqa: S603

        program = str(programs / "primus-mcp")
        sys.stdout.write(run(program, "--version"))
        checks = {check["name"]: check["status"] for check in json.loads(run(program, "doctor", "--json"))}
        if "broken" in checks.values():
            raise SystemExit(f"doctor: {checks}")
        job = ("--model", "llama3.1_70B", "--gpu", "mi300x", "--nodes", "8", "--seed-only", "--seed-budget", "4", "--out-dir", "run")
        said = run(program, "tune", *job)
        if "BEST CONFIGURATION" not in said:
            raise SystemExit(said)
        run(program, "report", "run", "--charts", "charts")
        drawn = [len(list((empty / "charts").glob(f"*{suffix}"))) for suffix in (".svg", ".png")]
        if not drawn[0] or drawn[0] != drawn[1] or (empty / "run" / "report.html").read_text(encoding="utf-8").count("<svg") != drawn[0]:
            raise SystemExit(f"the report lacks charts: {drawn}")
        code = "import primus_mcp; print(primus_mcp.__file__, len(primus_mcp.axes('llama3_8B', 'mi300x')))"
        where = run(str(python), "-c", code)
        if str(PROJECT) in where:
            raise SystemExit(f"the checkout was imported, not the wheel: {where}")
        sys.stdout.write(f"{wheel.name}: installed and used from an empty folder\n")


if __name__ == "__main__":
    main()
