"""Every example workload that Primus ships, on 4 x 8 MI355X: its best configuration, or why nothing fits; the rest by the feature refused.

Needs Primus's examples beside the project (../shared/primus); about two seconds a file.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from primus_mcp.api import Session, resolve, resolve_cluster
from primus_mcp.errors import InputError, PrimusMcpError
from primus_mcp.inputs.workload import read_workload

EXAMPLES = Path(__file__).parents[2] / "shared" / "primus" / "examples"
SEEDS = 6


def outcome(path: Path, folder: Path) -> tuple[str, str]:
    """(what happened, the line that says so)."""
    try:
        workload = read_workload(path, environment={})
    except InputError as error:
        return "refused", error.problem
    try:
        found = resolve(workload, resolve_cluster("mi355x", nodes=4), gemm_backend="roofline")
        session = Session.open(found.workload, found.target, found.evaluator, folder, limits={"seed_budget": SEEDS})
        session.run_seeds()
    except PrimusMcpError as error:
        return "no legal baseline", str(error)
    best = session.best().best
    if best is None or best.resolved is None:
        return "nothing fits", session.report().splitlines()[1].strip()
    degrees = "/".join(str(best.resolved[name]) for name in ("tp", "pp", "ep", "cp", "vpp", "mbs"))
    return "best", f"{degrees}  {best.tokens_per_s_per_gpu or 0:,.0f} tokens/s/GPU, {best.memory_per_gpu_gb or 0:.0f} GB"


def main() -> None:
    """Print a line a file and the tally."""
    if not EXAMPLES.is_dir():
        print(f"{EXAMPLES} is not here: nothing to do")
        return
    tally: Counter[str] = Counter()
    files = (*(EXAMPLES / "megatron" / "configs" / "MI355X").glob("*.yaml"), *(EXAMPLES / "moe_package").rglob("*.yaml"))
    with tempfile.TemporaryDirectory() as text:
        for index, path in enumerate(sorted(files)):
            what, line = outcome(path, Path(text) / str(index))
            tally[what] += 1
            print(f"{path.name:48} {what}: {line[:160]}", flush=True)
    print(dict(tally))
    sys.exit(1 if tally["no legal baseline"] else 0)


if __name__ == "__main__":
    main()
