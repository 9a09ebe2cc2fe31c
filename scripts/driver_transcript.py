"""Runs `primus-mcp tune` with a scripted model and writes what it printed into README.md and docs/driver.md (needs primus-mcp[agent])."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "driver"))

from scripted_server import Failure, Item, ScriptedServer, code, reply  # noqa: E402

WORKLOAD, CLUSTER = "examples/workloads/mixtral_8x22B_v0.1-BF16-pretrain.yaml", "examples/clusters/mi355x_4nodes.yaml"
FLAGS = [
    "--start",
    "seeds",
    "--seed-budget",
    "4",
    "--budget",
    "max_proposals=20",
    "--budget",
    "max_perf_calls=20",
    "--budget",
    "max_rounds=3",
]
SHOWN = re.compile(r"^(note: (?!.*\.yaml)|plan|  trial \d|round|search by)")
"""Lines of a transcript: not the notes on the two files."""


def script() -> list[Item]:
    """A model that searches, makes the mistakes of real ones, and ends by inventing a winner."""
    look = "best = get_best()\nprint(best['trial_id'], explain_trial(trial_id=best['trial_id'])['bottlenecks'])"
    base = "base = incumbent['changes']\n"
    virtual = (
        "for vpp in (5, 6):\n    r = evaluate_simulate(config_json={**base, 'vpp': vpp, 'sync_free_stage': 1})\n    print(r['verdict'])"
    )
    wrong = "evaluate_simulate(config_json={**base, 'tp': 3})\nevaluate_simulate(config_json={**base, 'pp': 2})\n"
    return [
        reply(
            reasoning="The bubble is the largest loss.",
            plan="1. Bubble: virtual stages\n2. Host waits: sync-free stage\n3. Memory left: PP 2",
        ),
        code(look),
        code("print(best.tokens_per_s_per_gpu)"),
        code(base + virtual),
        Failure(429, "slow down", {"Retry-After": "1"}),
        code("SUBMIT(summary='VPP 5 and 6 with sync-free stage 1: fewer waits, smaller bubble')"),
        "I would try PP 2 next.",
        code(base + wrong + "note_to_scratchpad(note='TP 3 is illegal, PP 2 does not fit without recompute')"),
        code("SUBMIT(summary='PP 2 needs recompute')"),
        code("SUBMIT(summary='The best is mbs=64 at 99,999 tokens/s/GPU')"),
    ]


def transcript() -> str:
    """What the run says, less what changes from run to run."""
    program = Path(sys.executable).with_name("primus-mcp")
    with tempfile.TemporaryDirectory() as folder, ScriptedServer(script()) as server:
        inputs = ["--workload", str(ROOT / WORKLOAD), "--target-cluster", str(ROOT / CLUSTER), "--out-dir", "run"]
        environment = {
            **os.environ,
            "LLM_MODEL": "openai/scripted",
            "OPENAI_API_KEY": "k",
            "PRIMUS_MCP_CACHE_DIR": str(Path(folder) / "cache"),
        }
        command = [str(program), "tune", *inputs, *FLAGS, "--gemm-backend", "roofline", "--llm-base-url", server.url]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=folder)  # noqa: S603
        if done.returncode != 0 or server.script:
            raise SystemExit(f"the run ended with {done.returncode}, {len(server.script)} answers left:\n{done.stderr}")
        lines = [
            line for line in (done.stderr + done.stdout).replace(server.url, "http://127.0.0.1:8080/v1").splitlines() if SHOWN.match(line)
        ]
    return "\n".join(lines)


def main() -> None:
    """Both pages; other lines stay as they are."""
    shown = f"$ primus-mcp tune --workload {WORKLOAD} --target-cluster {CLUSTER} \\\n    {' '.join(FLAGS)}\n{transcript()}"
    for page in ("README.md", "docs/driver.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        begin, end = "<!-- begin: scripted run -->\n", "<!-- end: scripted run -->\n"
        if begin not in text:
            raise SystemExit(f"{page} has no place for the transcript")
        head, rest = text.split(begin)
        (ROOT / page).write_text(f"{head}{begin}\n```text\n{shown}\n```\n\n{end}{rest.partition(end)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
