"""`primus-mcp check`: what a workload file would really train, from which files, and where that is not the published model."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from primus_mcp.cli.common import add_reading_arguments, load_workload
from primus_mcp.errors import InputError
from primus_mcp.inputs.workload import Workload
from primus_mcp.projection.parameters import active_parameters, total_parameters
from primus_mcp.space.knobs import schedule_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The workload, --model or --hf."""
    parser.add_argument("workload", type=Path, nargs="?", metavar="WORKLOAD", help="Primus pretrain YAML")
    parser.add_argument("--model", metavar="NAME", help="a model of the catalogue instead of a file")
    parser.add_argument("--hf", type=Path, metavar="JSON", help="a Hugging Face config.json, or its folder, instead of a file")
    add_reading_arguments(parser, vocab="whose vocabulary is built")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def _document(workload: Workload) -> dict[str, object]:
    arch = workload.architecture
    return {
        "name": workload.name,
        "parameters": total_parameters(arch),
        "active_parameters": active_parameters(arch),
        "architecture": dataclasses.asdict(arch),
        "baseline": dataclasses.asdict(workload.baseline),
        "files": [{"path": str(file.path), "origin": file.origin} for file in workload.files],
        "findings": [{"code": finding.code, "text": finding.text} for finding in workload.findings],
    }


def _summary(workload: Workload) -> list[str]:
    arch, base = workload.architecture, workload.baseline
    kind = "MLA" if arch.latent_attention else f"{arch.num_attention_heads} heads, {arch.num_query_groups} query groups of {arch.head_dim}"
    lines = [
        f"model      {workload.name}: {arch.num_layers} layers, hidden {arch.hidden_size}, {kind}, sequence {arch.seq_length}",
        f"parameters {total_parameters(arch):,} (active {active_parameters(arch):,}), vocabulary {arch.vocab_size:,} ({arch.vocab_source})",
    ]
    if arch.experts is not None and arch.is_moe:
        experts = arch.experts
        lines.append(
            f"experts    {experts.num_experts} top {experts.top_k}, width {experts.expert_ffn_hidden_size}, shared "
            f"{experts.shared_expert_ffn_hidden_size}, in {sum(arch.moe_layers)} layers"
        )
    degrees = f"TP {base.tp} PP {base.pp} EP {base.ep} ETP {base.etp} CP {base.cp} VPP {base.vpp}"
    order = f"schedule {schedule_text(base.schedule)}, recompute {base.recompute.granularity}"
    lines.append(f"baseline   {degrees} MBS {base.mbs} GBS {base.gbs}, {order}")
    lines += [f"file       {file.path} ({file.origin})" for file in workload.files]
    return lines


def run(arguments: argparse.Namespace) -> int:
    """Print what would run and the findings; findings do not change the exit code."""
    if [arguments.workload, arguments.model, arguments.hf].count(None) != 2:
        raise InputError(
            "needs one workload file, one --model or one --hf", where="check", remedy="write for example `primus-mcp check my.yaml`"
        )
    workload = load_workload(arguments)
    if arguments.json:
        print(json.dumps(_document(workload), indent=2))
        return 0
    for line in _summary(workload):
        print(line)
    if not workload.findings:
        print("the model that would run is the published one; nothing to warn of")
    for finding in workload.findings:
        print(f"- {finding.code}: {finding.text}")
    return 0
