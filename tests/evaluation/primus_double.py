"""Stands in for `primus/cli/main.py` of a checkout: the arguments that AMD-AGI/Primus@0d375567 takes for `projection memory` and
`performance` (primus/cli/subcommands/projection.py, primus/core/launcher/parser.py@0158a866), its keys that must be in the file, and the
shape of what it prints. Stricter in one thing: Primus takes an argument that it does not know for an override, this one refuses it.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import yaml

MODES = ("simulate", "benchmark", "both")
RULE = "=" * 100


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(prog="primus")
    whole.add_argument("--debug", action="store_true")
    suites = whole.add_subparsers(dest="command", required=True).add_parser("projection").add_subparsers(dest="suite", required=True)
    for name in ("memory", "performance"):
        suite = suites.add_parser(name, allow_abbrev=False)
        suite.add_argument("--config", required=True)
        for flag in ("--backend_path", "--export_config", "--save-benchmark", "--load-benchmark", "--pipeline-schedule-algorithm"):
            suite.add_argument(flag)
        for flag in ("--target-nodes", "--benchmark-gpus"):
            suite.add_argument(flag, type=int)
        if name == "memory":
            suite.add_argument("--memory-mode", choices=MODES, default="benchmark")
            suite.add_argument("--memory-safety-margin", type=float, default=0.05)
            continue
        suite.add_argument("--profiling-mode", choices=MODES, default="benchmark")
        suite.add_argument("--gemm-backend", choices=("origami",))
        for flag in ("--hardware-config", "--gpu-arch"):
            suite.add_argument(flag)
        for flag in ("--gpu-clock-mhz", "--target-num-nodes", "--target-ep-size", "--sync-free-stage"):
            suite.add_argument(flag, type=int)
        for flag in ("--num-virtual-stages-per-pipeline-rank", "--micro-batch-size", "--global-batch-size"):
            suite.add_argument(flag, type=int)
        for flag in ("--enable-zero-bubble", "--enable-deepep", "--profile-only"):
            suite.add_argument(flag, action="store_true")
    return whole


def trainer(path: str) -> dict[str, Any]:
    """The overrides of the trainer module. Raises as Primus does where a key of the file is missing."""
    document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    for key in ("work_group", "user_name", "exp_name", "workspace", "modules"):
        assert key in document, f"{key} not found in config"
    ((name, module),) = document["modules"].items()
    assert "trainer" in name and {"framework", "config", "model"} <= set(module)
    return dict(module["overrides"])


def memory_text(mode: str) -> str:
    if mode == "benchmark":
        return f"""{RULE}
[Primus:Memory Projection] Per-rank peak memory at 1 nodes x 8 GPUs (TP=1, PP=1, EP=1, CP=1)
{RULE}

  Bench measurements (rank 0, world_size=1):
    Global peak allocated:  21.500 GB

  Analytical at target (world_size=8):
    Params (bf16):          14.000 GB
    Grads  (bf16):          14.000 GB
    Optimizer (fp32, DP):   10.000 GB
    Activations:            20.000 GB
    DeepEP buffers:         0.000 GB
    Comm buffers (~):       1.000 GB

  Point estimate (per rank): 62.500 GB
  Upper bound    (per rank): 66.000 GB
{RULE}"""
    return f"""  [embedding]
    Activation Memory: 0.1875 GB
{RULE}
[Primus:Projection] Memory Projection Summary on Rank 0:
  Params: 7.802200 Billion (7,802,200,064.0)
  Param+Optimizer Memory: 38.0000 GB
  Activation Memory (per batch size 1, seq len 4096): 20.0000 GB
  Projected Total Memory: 58.0000 GB
{RULE}"""


def time_text(keys: dict[str, Any], nodes: int) -> str:
    tp, pp, ep, cp = (keys.get(f"{name}_parallel_size", 1) for name in ("tensor_model", "pipeline_model", "expert_model", "context"))
    gpus = nodes * int(os.environ["GPUS_PER_NODE"])
    tokens = keys["global_batch_size"] * keys["seq_length"] / 4.096 / gpus
    return f"""🎯 Target Configuration ({nodes} nodes):
   Nodes: {nodes}, GPUs: {gpus}
   TP={tp}, PP={pp}, EP={ep}, CP={cp}, DP={gpus // (tp * pp * cp)}
   Iteration Time: 4096.000 ms (as recorded)
   Tokens/s/GPU: {tokens:,.0f}
{RULE}"""


def main() -> None:
    arguments, unknown = parser().parse_known_args()
    if unknown:
        sys.exit(f"[Primus] Override key '{unknown[0]}' does not exist in pre_trainer config.")
    keys = trainer(arguments.config)
    if int(os.environ.get("RANK", "0")):
        return
    recorded = Path(__file__).parents[2] / f"{arguments.suite}.txt"
    if recorded.exists():
        text = recorded.read_text(encoding="utf-8")
    else:
        text = memory_text(arguments.memory_mode) if arguments.suite == "memory" else time_text(keys, arguments.target_nodes)
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
