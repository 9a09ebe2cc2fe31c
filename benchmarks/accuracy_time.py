"""Scores predicted iteration time against published runs: `python benchmarks/accuracy_time.py [measured.jsonl] [--backend roofline]`.

Rows are read through their fields only. Primus rows start from the shipped YAML of their model and take what the row states; MLPerf
rows start from the catalogue's published architecture. What a row leaves out follows ASSUMED, printed beside the result.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from statistics import mean, median
from typing import Any

import yaml

from primus_mcp.errors import PrimusMcpError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import Recompute, TrainingConfig
from primus_mcp.inputs.workload import read_workload
from primus_mcp.projection.performance import PerformanceProjection, project_performance

SHARED = Path(__file__).parent.parent.parent / "shared"
ASSUMED = {
    "gbs of the micro-batch ladder": "64 x MBS, as in its script",
    "recompute null": "as the YAML that the row's script uses says, else none",
    "Megatron-Bridge rows": "as NeMo rows, TP overlap on; dense ones only, since MoE recipes are not in the rows",
    "NeMo rows": "fused wgrad accumulation, fused loss (TE), fused rope, distributed optimizer, bf16 main gradients off",
}
# (model, framework) of a row -> YAML below the Primus checkout, where the row names one; the published model otherwise
WORKLOADS = {
    "DeepSeek-V2-Lite 16B": "examples/moe_package/configs/MI355X/deepseek_v2_lite-pretrain-baseline.yaml",
    "DeepSeek-V2 236B": "examples/moe_package/configs/MI355X/deepseek_v2-pretrain-baseline.yaml",
    ("Qwen3-30B-A3B", "FP8"): "examples/megatron/configs/MI355X/qwen3_30B_A3B-FP8-pretrain.yaml",
    ("Qwen3-30B-A3B", "BF16"): "examples/megatron/configs/MI355X/qwen3_30B_A3B-BF16-pretrain.yaml",
    "Qwen3-235B-A22B": "examples/megatron/configs/MI355X/qwen3_235B_A22B-BF16-pretrain.yaml",
}
PUBLISHED = {
    "Llama 3 70B, 12 layers": "examples/megatron/configs/MI355X/llama3_70B-BF16-pretrain.yaml",
    "Llama 3.1 405B, 4 layers": "examples/megatron/configs/MI355X/llama3.1_405B-BF16-pretrain.yaml",
    "Llama 3.1 405B": "examples/megatron/configs/MI355X/llama3.1_405B-BF16-pretrain.yaml",
    "LLAMA3.1_405B": "examples/megatron/configs/MI355X/llama3.1_405B-BF16-pretrain.yaml",
    "LLAMA3_70B": "examples/megatron/configs/MI355X/llama3_70B-BF16-pretrain.yaml",
    "DeepSeek-V2, 4 layers": "examples/megatron/configs/MI355X/deepseek_v2-BF16-pretrain.yaml",
    "Llama 3.1 8B": "examples/megatron/configs/MI355X/llama3.1_8B-FP8-pretrain.yaml",
    "Llama 2 70B": "examples/megatron/configs/MI355X/llama2_70B-FP8-pretrain.yaml",
}
DEGREES = ("tp", "pp", "ep", "cp", "vpp", "mbs", "gbs")


def cluster_of(row: Mapping[str, Any]) -> Cluster:
    """The row's GPUs, eight a node."""
    per_node = min(8, row["n_gpus"])
    return make_cluster(
        row["gpu"].lower().replace("a100-80gb", "a100"), num_nodes=row["n_gpus"] // per_node, gpus_per_node=per_node, name=row["gpu"]
    )


def recompute_of(text: str) -> Recompute:
    """`none`, `full block N layers`, `full`, `selective`."""
    if text.startswith("none"):
        return Recompute()
    if text.startswith("selective"):
        return Recompute(granularity="selective", modules=("core_attn",))
    number = re.search(r"(\d+)", text)
    if "block" in text and number:
        return Recompute(granularity="full", method="block", num_layers=int(number[1]))
    return Recompute(granularity="full", method="uniform", num_layers=1)


def flag_changes(flags: str) -> dict[str, Any]:
    """What a row's flags switch on."""
    text = flags.lower()
    changes: dict[str, Any] = {}
    everything = "all of the above" in text
    if everything or "loss fusion" in text or "loss fusion" in text.replace("cross-entropy ", ""):
        changes |= {"cross_entropy_loss_fusion": True, "cross_entropy_impl": "te"}
    if everything or "deepep" in text:
        changes |= {"dispatcher": "deepep", "shared_expert_overlap": False}
    stage = re.search(r"sync[-_ ]free(?: moe)?(?: stage)? ?(\d)", text)
    if everything or stage:
        number = 1 if stage is None else int(stage[1])
        changes |= {"sync_free_stage": number, "permute_fusion": True, "fused_router": True}
        if number >= 2:
            changes |= {"grouped_gemm": "turbo", "dispatcher": "deepep", "shared_expert_overlap": False}
    if "turbo gemm" in text:
        changes["turbo_gemm"] = True
    return changes


def precision_changes(text: str) -> dict[str, Any]:
    """Precision column to fp8 fields."""
    lowered = text.lower()
    if "fp4" in lowered:
        return {"fp8": None, "fp4": True}
    if "fp8" not in lowered:
        return {"fp8": None}
    names = {"mxfp8": "mxfp8", "tensorwise": "tensorwise", "fp8-cs": "tensorwise", "cs": "tensorwise"}
    recipe = next((kind for name, kind in names.items() if name in lowered), "delayed")
    return {"fp8": "e4m3" if recipe == "tensorwise" else "hybrid", "fp8_recipe": recipe}


def framework_config(row: Mapping[str, Any]) -> TrainingConfig:
    """What NeMo and plain Megatron-LM rows have in common."""
    lora, flags = row["task"] == "lora", (row["flags"] or "").lower()
    overlap = "no comm overlap" not in flags
    return TrainingConfig(
        etp=1,
        sequence_parallel=(row["tp"] or 1) > 1,
        tp_comm_overlap="tp comm overlap" in flags or (row["framework"] == "Megatron-Bridge" and (row["tp"] or 1) > 1),
        account_for_embedding_in_pipeline_split="asym_pp" in flags,
        account_for_loss_in_pipeline_split="asym_pp" in flags,
        gradient_accumulation_fusion=True,
        cross_entropy_loss_fusion=True,
        cross_entropy_impl="te",
        overlap_grad_reduce=overlap,
        overlap_param_gather=overlap,
        fp8_param_gather="fp8 param" in flags,
        finetune="lora" if lora else "full",
        lora_rank=16 if lora else 0,
    )


class Ladders:
    """Rows marked cumulative inherit the flags of the rows before them on the same model and size."""

    def __init__(self) -> None:
        self._flags: dict[tuple[str, str, int], str] = {}

    def flags(self, row: Mapping[str, Any]) -> str:
        own = row["flags"] or ""
        if "cumulative" not in own:
            return own
        key = (row["model"], row["gpu"], row["n_gpus"])
        self._flags[key] = self._flags.get(key, "") + "; " + own
        return self._flags[key]


def case_of(row: Mapping[str, Any], flags: str) -> tuple[Architecture, TrainingConfig]:
    """Architecture and configuration of a row; LookupError says why it cannot be mapped."""
    missing = [name for name in ("n_gpus", "tokens_s_gpu", "precision", "seq") if not row.get(name)]
    if missing:
        raise LookupError(f"{', '.join(missing)} not stated")
    if not str(row["framework"]).startswith(("Primus", "NeMo", "Megatron")):
        raise LookupError(f"framework {row['framework']} runs other kernels")
    if row.get("task") == "sft":
        raise LookupError("fine-tuning with packed sequences")
    if row.get("fsdp"):
        raise LookupError("another FSDP than FSDP2")
    precision = "FP8" if "FP8" in row["precision"] else "BF16"
    yaml_path = WORKLOADS.get(row["model"]) or WORKLOADS.get((row["model"], precision))
    if yaml_path:
        workload = read_workload(SHARED / "primus" / yaml_path, primus_root=SHARED / "primus", environment={})
        arch, config = workload.architecture, workload.baseline
    elif row["model"] in PUBLISHED:
        path = SHARED / "primus" / PUBLISHED[row["model"]]
        arch, config = (
            read_workload(path, primus_root=SHARED / "primus", environment={}, vocab="tokenizer").architecture,
            framework_config(row),
        )
    else:
        raise LookupError(f"model {row['model']} is not mapped")
    changes: dict[str, Any] = {name: row[name] for name in DEGREES if row.get(name)}
    if "gbs" not in changes:
        changes["gbs"] = 64 * row["mbs"]
    if row.get("tp") is None:
        raise LookupError("parallel degrees not stated")
    changes |= precision_changes(row["precision"]) | flag_changes(flags)
    if row.get("recompute"):
        changes["recompute"] = recompute_of(row["recompute"])
    elif yaml_path is None:
        changes["recompute"] = Recompute()
    if changes.get("vpp", 1) > 1:
        changes |= {"schedule": "interleaved", "overlap_p2p": True}
    if changes.get("grouped_gemm", config.grouped_gemm) != config.grouped_gemm:
        changes["fused_expert_activation"] = config.fused_swiglu
    config = replace(config, **changes)
    layers = (row.get("arch") or {}).get("num_layers")
    if layers:
        arch = replace(arch, num_layers=layers, moe_layers=arch.moe_layers[:layers])
    return replace(arch, seq_length=row["seq"]), config


def score(rows: list[dict[str, Any]], backend: Any) -> None:
    """Prints one line a row, then the summary."""
    ladders, skipped, errors = Ladders(), Counter[str](), []
    submissions: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if row["framework"] and row["framework"].startswith("NeMo"):
            submissions.setdefault((row["model"], row["gpu"], row["n_gpus"]), []).append(row["tokens_s_gpu"])
    seen = set()
    for row in rows:
        flags = ladders.flags(row)
        key = (row["model"], row["gpu"], row["n_gpus"])
        if key in submissions:
            if key in seen:
                skipped["another submission of the same MLPerf configuration"] += 1
                continue
            row = {**row, "tokens_s_gpu": median(submissions[key])}
        try:
            arch, config = case_of(row, flags)
            result = project_performance(arch, config, cluster_of(row), gemm_backend=backend)
        except (LookupError, PrimusMcpError) as problem:
            skipped[str(problem)] += 1
            continue
        seen.add(key)
        errors.append((row, row["tokens_s_gpu"] / result.tokens_per_s_per_gpu - 1, result))
    for row, error, result in errors:
        print(f"{100 * error:+6.1f}%  {result.tokens_per_s_per_gpu:8.0f} against {row['tokens_s_gpu']:8.0f} tokens/s/GPU  {row['id']}")
        print("        " + ", ".join(f"{k} {100 * v / result.iteration_s:.0f}%" for k, v in top(result)))
    for name, chosen in (
        ("all", errors),
        ("dense", [e for e in errors if e[0]["ep"] in (None, 1)]),
        ("TP > 1", [e for e in errors if (e[0]["tp"] or 1) > 1]),
        ("PP > 1", [e for e in errors if (e[0]["pp"] or 1) > 1]),
        ("CP > 1", [e for e in errors if (e[0]["cp"] or 1) > 1]),
        ("completeness A, not text", [e for e in errors if e[0]["config_completeness"] == "A" and e[0]["trust"] != "text"]),
    ):
        values = [error for _, error, _ in chosen]
        if values:
            print(f"{name}: {len(values)} rows, MAPE {100 * mean(map(abs, values)):.1f}%, bias {100 * mean(values):+.1f}%")
    for reason, times in skipped.most_common():
        print(f"skipped {times}: {reason}")
    fitted = [name for name, source in time_sources().items() if source.startswith("fitted")]
    print(f"engine constants fitted to training runs: {len(fitted)} ({', '.join(fitted)})")
    for what, assumption in ASSUMED.items():
        print(f"assumed, {what}: {assumption}")


def time_sources() -> dict[str, str]:
    """Name and source of every constant of the time engine."""
    text = (files("primus_mcp.catalog") / "engine" / "time.yaml").read_text(encoding="utf-8")
    return {name: fields["source"] for name, fields in yaml.safe_load(text).items()}


def top(result: PerformanceProjection) -> list[tuple[str, float]]:
    """The largest parts of the iteration."""
    return sorted(result.time_breakdown_s.items(), key=lambda item: -item[1])[:14]


def main() -> None:
    """Reads the rows of one suite and scores them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measured", nargs="?", type=Path, default=SHARED / "truth" / "measured.jsonl")
    parser.add_argument("--backend", choices=("roofline", "origami", "auto"), default="roofline")
    parser.add_argument("--suite", default="amd-headline")
    chosen = parser.parse_args()
    rows = [json.loads(line) for line in chosen.measured.read_text(encoding="utf-8").splitlines()]
    score([row for row in rows if chosen.suite in row["suite"]], chosen.backend)


if __name__ == "__main__":
    main()
