"""Words for what the page and its charts name: parts of time and memory, and warnings, which are told the most important first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from primus_mcp.evaluation.convert import FITS_ONLY_BALANCED
from primus_mcp.evaluation.nearest import BAND_OF_ALL, UNLIKE
from primus_mcp.evaluation.result import OUTSIDE_POLICY, EvaluationResult, ResultWarning
from primus_mcp.space.notes import GBS_DIFFERS, PRECISION_DIFFERS

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
COLLECTIVES: Mapping[str, str] = MappingProxyType(
    {
        "tp": "tensor parallelism",
        "cp": "context parallelism",
        "a2a": "expert exchange",
        "pp": "pipeline transfers",
        "gradients": "gradient exchange",
        "parameters": "parameter exchange",
        "total": "all of it",
    }
)
NOT_VALIDATED = "not_validated"
GRAVEST: tuple[str, ...] = (
    OUTSIDE_POLICY,
    "what-if",
    "primus_other_job",
    "primus_implausible",
    "primus_inconsistent",
    "primus_partial",
    UNLIKE,
    BAND_OF_ALL,
    FITS_ONLY_BALANCED,
    "expert_load_assumed",
    "lora_on_experts",
    "muon_not_priced",
    NOT_VALIDATED,
    "fp8_not_validated",
    "expert_parallel_across_nodes",
    "experts_without_ep",
    "fsdp2_memory_untested",
    "vocabulary-mock-data",
    PRECISION_DIFFERS,
    GBS_DIFFERS,
    "calibrated",
    "anchor",
    "launch_bound",
)
"""Codes of warnings in the order of their weight: what can turn the choice over comes first. The others follow as they are told."""
SHOWN_WARNINGS = 3
ALWAYS_SHOWN = (OUTSIDE_POLICY, FITS_ONLY_BALANCED, PRECISION_DIFFERS, GBS_DIFFERS)
"""Codes of what an answer on a terminal never leaves out; others of GRAVEST follow while there is room."""


def part_text(name: str) -> str:
    """The words for a part of time or memory; a foreign name with blanks."""
    return TIME_PARTS.get(name) or MEMORY_PARTS.get(name) or name.replace("_", " ")


def collective_text(name: str) -> str:
    """The words for a part of communication; a foreign name with blanks."""
    return COLLECTIVES.get(name) or name.replace("_", " ")


def named_parts(parts: Mapping[str, float]) -> dict[str, float]:
    """The parts under their words; parts that share words are one."""
    found: dict[str, float] = {}
    for name, value in parts.items():
        words = part_text(name)
        found[words] = found[words] + value if words in found else value
    return found


def _by_gravity(warnings: Sequence[ResultWarning]) -> list[ResultWarning]:
    ranks = {code: place for place, code in enumerate(GRAVEST)}
    return sorted(warnings, key=lambda warning: ranks.get(warning.code, len(GRAVEST)))


def warning_lines(warnings: Sequence[ResultWarning]) -> tuple[list[str], list[str]]:
    """(the most important, the others), each text once. A code is for machines and not shown."""
    texts = list(dict.fromkeys(warning.text for warning in _by_gravity(warnings)))
    return texts[:SHOWN_WARNINGS], texts[SHOWN_WARNINGS:]


def deciding_warnings(result: EvaluationResult) -> list[str]:
    """What can turn the choice of this configuration over, the gravest first: ALWAYS_SHOWN, and the next of GRAVEST while there is room.

    That the most similar runs came out otherwise is left to the band, where there is one.
    """
    told = {UNLIKE, BAND_OF_ALL} if result.throughput_band is not None else set()
    grave = [warning for warning in _by_gravity(result.warnings) if warning.code in GRAVEST and warning.code not in told]
    room = SHOWN_WARNINGS - sum(warning.code in ALWAYS_SHOWN for warning in grave)
    chosen = {id(warning) for warning in [one for one in grave if one.code not in ALWAYS_SHOWN][: max(room, 0)]}
    return list(dict.fromkeys(warning.text for warning in grave if warning.code in ALWAYS_SHOWN or id(warning) in chosen))


def baseline_warnings(result: EvaluationResult, baseline: EvaluationResult | None) -> list[str]:
    """What no run validates of the baseline that a gain is told against, where it is not the same for the result itself."""
    if baseline is None or baseline.tokens_per_s_per_gpu is None or baseline.trial_id == result.trial_id:
        return []
    own = {warning.text for warning in result.warnings}
    return [f"of the baseline: {one.text}" for one in baseline.warnings if one.code == NOT_VALIDATED and one.text not in own]
