"""Scores predicted memory against published runs: `python benchmarks/accuracy_memory.py [measured.jsonl]`.

Rows are read through their fields only: model, framework, task, precision, degrees, batch, recompute, flags, mem_kind. What a row leaves
out follows DEFAULTS, one table a framework and task, printed beside the result.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from primus_mcp.errors import PrimusMcpError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import GpuProfile
from primus_mcp.inputs.hardware_files import gpu_profile
from primus_mcp.inputs.layout import layout_text
from primus_mcp.inputs.published import published_models
from primus_mcp.inputs.training import Recompute, TrainingConfig
from primus_mcp.projection.memory.projection import MemoryProjection, project_placed
from primus_mcp.projection.placement import place
from primus_mcp.units import GIB

SHARED = Path(__file__).parent.parent.parent / "shared"
FUSED_LOSS = {"cross_entropy_loss_fusion": True, "cross_entropy_impl": "te"}
MI355X_MOE = {
    **FUSED_LOSS,
    "dispatcher": "deepep",
    "deepep_num_cu": 80,
    "sync_free_stage": 1,
    "fused_router": True,
    "permute_fusion": True,
    "grouped_gemm": "legacy",
    "fused_swiglu": False,
    "forced_balance": True,
    "main_grad_bytes": 2,
    "main_param_bytes": 2,
    "exp_avg_bytes": 2,
    "exp_avg_sq_bytes": 2,
}


@dataclass(frozen=True)
class Defaults:
    """Settings that a row leaves out, and where they are from."""

    settings: Mapping[str, Any]
    source: str
    architecture: Mapping[str, Any]


DEFAULTS: dict[tuple[str, str, str], Defaults] = {
    ("Megatron-LM 0.14", "Llama 3 70B", "pretrain"): Defaults(
        {"cp_comm_type": "a2a"},
        "launcher of the table: distributed optimizer, a2a CP; its null tokenizer reports one token more",
        {"vocab_size": 128257},
    ),
    ("Megatron-LM 0.14", "Llama 3.1 405B", "pretrain"): Defaults(
        {"cp_comm_type": "a2a"},
        "the same; 16 query groups as the checkpoint was first released (2024-07)",
        {"vocab_size": 128257, "num_query_groups": 16},
    ),
    ("Megatron-LM 0.14", "DeepSeek-V2", "pretrain"): Defaults({"grouped_gemm": "te"}, "the same launcher", {}),
    ("Primus/Megatron-LM", "DeepSeek-V2-Lite 16B", "pretrain"): Defaults(
        {"gradient_accumulation_fusion": False, "shared_expert_overlap": True, "grouped_gemm": "te"},
        "examples/moe_package/configs/MI355X/deepseek_v2_lite-pretrain-baseline.yaml, MLA on as its script sets it, own vocabulary",
        {},
    ),
    ("Primus/Megatron-LM", "DeepSeek-V2-Lite 16B", "lora-sft"): Defaults(
        {
            **FUSED_LOSS,
            "gradient_accumulation_fusion": False,
            "dispatcher": "deepep",
            "deepep_num_cu": 64,
            "sync_free_stage": 1,
            "fused_router": True,
            "permute_fusion": True,
            "grouped_gemm": "legacy",
            "finetune": "lora",
            "lora_rank": 32,
            "lora_targets": ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"),
        },
        "examples/megatron/configs/MI355X/deepseek_v2_lite-BF16-sft-packed.yaml",
        {},
    ),
    ("Primus/Megatron-LM", "Qwen3-30B-A3B", "pretrain"): Defaults(
        MI355X_MOE, "examples/megatron/configs/MI355X/qwen3_30B_A3B-BF16-pretrain.yaml", {}
    ),
}
TITAN = {
    "use_torch_fsdp2": True,
    "use_distributed_optimizer": False,
    "gradient_accumulation_fusion": False,
    "fsdp_param_bytes": 4,
    "fp8_param_gather": True,
    "cross_entropy_loss_fusion": True,
    "cross_entropy_impl": "compiled",
    "cp_comm_type": "all_gather",
}
for framework, model in (("TorchTitan", "Llama 3.1 8B"), ("TorchTitan FSDP2", "Llama 3.1 405B")):
    DEFAULTS[framework, model, "pretrain"] = Defaults(
        TITAN,
        "torchtitan defaults: fp32 shards, FP8 all-gather, BF16 inputs saved, compiled loss, micro-batches as PP, two chunks a rank",
        {"vocab_size_divisor": 1},
    )
CATALOGUE = {
    "Llama 3.1 8B": "llama3.1_8B",
    "Llama 3 70B": "llama3_70B",
    "Llama 3.1 405B": "llama3.1_405B",
    "DeepSeek-V2": "deepseek_v2",
    "DeepSeek-V2-Lite 16B": "deepseek_v2_lite",
    "Qwen3-30B-A3B": "qwen3_30B_A3B",
}
REAL_ROUTING_IMBALANCE = 2.0
DEGREES = ("tp", "pp", "ep", "cp", "vpp", "mbs")


def recompute_of(text: str | None) -> Recompute:
    """`none` (also when null), `full`, `full block, N layers`, TorchTitan's default selective checkpointing."""
    number = re.search(r"(\d+)", text or "")
    if text == "full":
        return Recompute(granularity="full", method="uniform", num_layers=1)
    if text == "selective (default config)":
        return Recompute(granularity="selective", modules=("alternate_matmuls",))
    if text and "block" in text and number:
        return Recompute(granularity="full", method="block", num_layers=int(number[1]))
    if text in (None, "none"):
        return Recompute()
    raise LookupError(f"recompute {text!r} is not mapped")


def flag_settings(flags: str) -> dict[str, Any]:
    """What a row's flags switch on, for every framework alike."""
    text = flags.lower()
    everything = "all of the above" in text
    changes: dict[str, Any] = {}
    if everything or "loss fusion" in text or "cross-entropy fusion" in text:
        changes |= FUSED_LOSS
    if everything or "deepep" in text:
        changes |= {"dispatcher": "deepep", "deepep_num_cu": 64, "shared_expert_overlap": False}
    if everything or "sync-free" in text:
        changes |= {"sync_free_stage": 1, "fused_router": True, "permute_fusion": True}
    if "interleaved" in text:
        changes["schedule"] = "interleaved"
    if "sp on" in text:
        changes["sequence_parallel"] = True
    if ("load bal" in text and "no forced" not in text) or "force_load_balancing" in text:
        changes["forced_balance"] = True
    if "real routing" in text:
        changes["expert_load_imbalance"] = REAL_ROUTING_IMBALANCE
    return changes


def architecture_of(row: Mapping[str, Any], defaults: Defaults) -> Architecture:
    """The published model, cut to the number of layers that the row states."""
    arch = published_models()[CATALOGUE[model_of(row)]].architecture
    layers = (row["arch"] or {}).get("num_layers", arch.num_layers)
    arch = replace(arch, num_layers=layers, moe_layers=arch.moe_layers[:layers], seq_length=row["seq"])
    return replace(arch, **defaults.architecture)


def model_of(row: Mapping[str, Any]) -> str:
    """`Llama 3 70B, 12 layers` is a slice of `Llama 3 70B`."""
    return re.sub(r", \d+ layers$", "", row["model"])


def case_of(row: Mapping[str, Any]) -> tuple[Architecture, TrainingConfig, Defaults]:
    """Architecture and configuration of a row; LookupError says why it cannot be mapped."""
    if "formula bar" in row["mem_kind"]:
        raise LookupError("a published formula bar, not a run (tests hold those)")
    if row["config_completeness"] == "C":
        raise LookupError("completeness C: the configuration would be inferred")
    defaults = DEFAULTS.get((row["framework"], model_of(row), row["task"]))
    if defaults is None or model_of(row) not in CATALOGUE:
        raise LookupError(f"{model_of(row)} under {row['framework']} is not priced")
    settings: dict[str, Any] = {**defaults.settings, **{name: row[name] for name in DEGREES if row.get(name)}}
    settings |= flag_settings(row["flags"] or "")
    config = TrainingConfig(**settings, recompute=recompute_of(row["recompute"]))
    dp = row["n_gpus"] // (config.tp * config.pp * config.cp)
    mbs = row["mbs"] or row["gbs"] // (dp * config.pp)
    micro_batches = row["gbs"] // (mbs * dp) if row["gbs"] else 8
    sharded = config.tp > 1 and (config.sequence_parallel or config.use_torch_fsdp2)
    config = replace(config, mbs=mbs, gbs=mbs * dp * micro_batches, sequence_parallel=sharded)
    arch = architecture_of(row, defaults)
    if config.schedule == "interleaved":
        config = replace(config, vpp=max(config.vpp, 2))
    if config.pp > 1 and arch.num_layers % (config.pp * config.vpp):
        config = replace(config, pipeline_layout=even_layout(arch.num_layers, config.pp * config.vpp))
    return arch, config, defaults


def even_layout(layers: int, stages: int) -> str:
    """Layers over stages as evenly as they go, the remainder to the first ones."""
    return layout_text(tuple(layers // stages + (stage < layers % stages) for stage in range(stages)))


def usable_bytes(row: Mapping[str, Any], gpu: GpuProfile) -> float:
    """Memory that torch reports; where the notes name a part of another size, that size in the same proportion."""
    other = re.search(r"(\d+) ?GB HBM", row["notes"] or "")
    return gpu.hbm_bytes * (float(other[1]) / gpu.hbm_nominal_gb if other else 1.0)


def predicted_bytes(row: Mapping[str, Any], projection: MemoryProjection) -> tuple[str, float]:
    """The figure that the row's counter shows."""
    if "allocated" in row["mem_kind"]:
        return "allocated", max(rank.allocated_bytes for rank in projection.ranks)
    if row["framework"].startswith("TorchTitan"):
        return "reserved", max(rank.reserved_bytes for rank in projection.ranks)
    return "device", projection.device_bytes


@dataclass(frozen=True)
class Scored:
    """One row with its prediction; `rows` published rows share it."""

    group: str
    row: Mapping[str, Any]
    error: float
    predicted_gb: float
    verdict: str
    refused: bool
    rows: int = 1


def score_row(row: Mapping[str, Any]) -> Scored:
    """Error fraction and verdict of one row."""
    arch, config, _ = case_of(row)
    gpu = gpu_profile(row["gpu"].lower())
    projection = project_placed(arch, config, place(arch, config, row["n_gpus"]), gpu.vendor)
    kind, size = predicted_bytes(row, projection)
    group = f"{row['gpu']} {kind}" + (" (imbalance assumed)" if config.expert_load_imbalance != 1 else "")
    verdict = projection.fits(usable_bytes(row, gpu))
    ran = "OOM" not in row["mem_kind"]
    refused = (verdict == "does_not_fit") if ran else (verdict == "fits")
    return Scored(group, row, size / GIB / row["mem_gb"] - 1, size / GIB, verdict, refused)


def distinct(scored: list[Scored]) -> list[Scored]:
    """Rows that differ in the number of micro-batches alone are one configuration with one measured figure."""
    found: dict[tuple[Any, ...], Scored] = {}
    for item in scored:
        row = item.row
        flags = re.sub(r"\d+ micro-batches", "", row["flags"] or "")
        key = (row["model"], row["gpu"], flags, *(row[name] for name in (*DEGREES, "n_gpus", "seq", "mem_gb", "recompute")))
        known = found.get(key)
        found[key] = item if known is None else replace(known, rows=known.rows + 1)
    return list(found.values())


def score(rows: list[dict[str, Any]]) -> tuple[list[Scored], Counter[str]]:
    """Scored rows, one a distinct configuration, and why the others were left out."""
    scored: list[Scored] = []
    skipped: Counter[str] = Counter()
    for row in rows:
        try:
            scored.append(score_row(row))
        except (LookupError, PrimusMcpError) as problem:
            skipped[str(problem).strip("'\"")] += 1
    return distinct(scored), skipped


def report(scored: list[Scored], skipped: Counter[str]) -> str:
    """The table as text, worst first in each group."""
    groups: dict[str, list[Scored]] = defaultdict(list)
    for item in scored:
        groups[item.group].append(item)
    lines = []
    for name, items in groups.items():
        for item in sorted(items, key=lambda found: -abs(found.error)):
            text = f"{100 * item.error:+6.2f}%  {item.predicted_gb:7.2f} against {item.row['mem_gb']:7.2f} GB  {item.verdict:12s}"
            lines.append(f"{text} {item.row['id']}" + (f" and {item.rows - 1} alike" if item.rows > 1 else ""))
        errors = [item.error for item in items]
        sizes = sorted(map(abs, errors))
        lines.append(
            f"{name}: {len(items)} configurations, MAPE {100 * mean(sizes):.2f}%, median {100 * median(sizes):.2f}%, "
            f"bias {100 * mean(errors):+.2f}%, worst {100 * sizes[-1]:.2f}%"
        )
    errors = [item.error for item in scored]
    risky = sum(item.verdict == "at_risk" for item in scored)
    lines.append(
        f"all: {len(scored)} configurations, MAPE {100 * mean(map(abs, errors)):.2f}%, bias {100 * mean(errors):+.2f}%, "
        f"verdicts wrong {sum(item.refused for item in scored)}, at risk {risky}"
    )
    lines += [f"skipped {count}: {reason}" for reason, count in skipped.most_common()]
    lines += [f"assumed, {' / '.join(key)}: {defaults.source}" for key, defaults in DEFAULTS.items()]
    lines.append(f"assumed, real routing: the hottest EP rank holds {REAL_ROUTING_IMBALANCE} times the mean (from that row itself)")
    return "\n".join(lines)


def memory_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of the memory suite."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if "memory" in row["suite"]]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("measured", nargs="?", type=Path, default=SHARED / "truth" / "measured.jsonl")
    sys.stdout.write(report(*score(memory_rows(parser.parse_args().measured))) + "\n")


if __name__ == "__main__":
    main()
