"""Words for what the page and its charts name: parts of time and memory, and warnings, which are told the most important first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from primus_mcp.evaluation.result import OUTSIDE_POLICY, ResultWarning

TIME_PARTS: Mapping[str, str] = MappingProxyType(
    {
        "embedding": "embedding",
        "attention_linear": "attention projections",
        "attention_core": "attention kernel",
        "mixer_linear": "mixer projections",
        "mixer_core": "mixer kernel",
        "rope": "rotary embedding",
        "norm": "norms and residuals",
        "mlp": "dense MLP",
        "activation": "activation",
        "adapters": "LoRA adapters",
        "router": "router",
        "permute": "token permutation",
        "experts": "expert GEMMs",
        "expert_activation": "expert activation",
        "expert_bias": "expert bias",
        "shared_expert": "shared expert",
        "output_layer": "output layer",
        "mtp_projection": "multi-token prediction",
        "loss": "loss",
        "tp": "tensor-parallel traffic",
        "cp": "context-parallel traffic",
        "a2a": "expert exchange",
        "host": "waiting for the host",
        "recompute": "recompute",
        "weight_cast": "casts of weights",
        "pipeline_p2p": "pipeline transfers",
        "gradient_exchange": "gradient exchange",
        "parameter_exchange": "parameter exchange",
        "optimizer": "optimizer",
        "bubble": "pipeline bubble",
    }
)
MEMORY_PARTS: Mapping[str, str] = MappingProxyType(
    {
        "weights": "weights",
        "main_gradients": "gradients",
        "optimizer_states": "optimizer states",
        "fp8_weight_copies": "FP8 weight copies",
        "unsharded_layers": "gathered layers",
        "pipeline_buffers": "pipeline buffers",
        "placeholder_gradients": "placeholder gradients",
        "gather_buffer": "gather buffer",
        "pipeline_gradient": "pipeline gradient",
        "workspaces": "GEMM workspaces",
        "saved_embedding": "saved: embedding",
        "saved_attention": "saved: attention",
        "saved_mlp": "saved: dense MLP",
        "saved_moe": "saved: experts",
        "saved_head": "saved: output and loss",
        "saved_checkpoints": "saved: layer inputs",
        "pinned_for_weight_gradients": "deferred gradients",
        "transient": "of the running operation",
        "optimizer_step": "optimizer step",
        "fragmentation": "fragmentation",
        "communicators": "communication buffers",
        "deepep_buffers": "DeepEP buffers",
        "measured_overhead": "measured outside torch",
        "measured_live_tensors": "measured live tensors",
        "runtime": "runtime and kernels",
    }
)
GRAVEST: tuple[str, ...] = (
    OUTSIDE_POLICY,
    "what-if",
    "primus_other_job",
    "primus_implausible",
    "primus_inconsistent",
    "primus_partial",
    "unlike_validated_runs",
    "fits_only_balanced",
    "expert_load_assumed",
    "lora_on_experts",
    "muon_not_priced",
    "not_validated",
    "fp8_not_validated",
    "expert_parallel_across_nodes",
    "experts_without_ep",
    "fsdp2_memory_untested",
    "vocabulary-mock-data",
    "precision-differs",
    "gbs-differs",
    "calibrated",
    "anchor",
    "launch_bound",
)
"""Codes of warnings in the order of their weight: what can turn the choice over comes first. The others follow as they are told."""
SHOWN_WARNINGS = 3


def part_text(name: str) -> str:
    """The words for a part of time or memory; a foreign name with blanks."""
    return TIME_PARTS.get(name) or MEMORY_PARTS.get(name) or name.replace("_", " ")


def named_parts(parts: Mapping[str, float]) -> dict[str, float]:
    """The parts under their words; parts that share words are one."""
    found: dict[str, float] = {}
    for name, value in parts.items():
        words = part_text(name)
        found[words] = found[words] + value if words in found else value
    return found


def warning_lines(warnings: Sequence[ResultWarning]) -> tuple[list[str], list[str]]:
    """(the most important, the others), each text once. A code is for machines and not shown."""
    ranks = {code: place for place, code in enumerate(GRAVEST)}
    ordered = sorted(warnings, key=lambda warning: ranks.get(warning.code, len(GRAVEST)))
    texts = list(dict.fromkeys(warning.text for warning in ordered))
    return texts[:SHOWN_WARNINGS], texts[SHOWN_WARNINGS:]
