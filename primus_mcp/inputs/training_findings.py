"""What the trainer does to a baseline's settings without saying so: keys it ignores, switches that turn others on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.argument_values import Arguments, flag, optional_count, optional_text
from primus_mcp.inputs.findings import Finding
from primus_mcp.inputs.override_findings import removed_keys, told_keys
from primus_mcp.inputs.trainer_arguments import turbo_flag
from primus_mcp.inputs.training import TrainingConfig

MIXER_MEMORY_ERRORS = (-0.14, 0.38)
"""Projected over stated memory of Primus's hybrid examples, less 1: bounds that a test holds the projection to."""


def training_findings(arguments: Arguments, arch: Architecture, config: TrainingConfig) -> tuple[Finding, ...]:
    """Findings about parallelism, precision and MoE switches, in that order."""
    pairs = (
        *_parallelism(arguments, config),
        *_precision(arguments, config),
        *_experts(arguments, arch, config),
        *_shapes(arguments),
        *_tuning(arguments, arch, config),
        *_mixers(arch),
        *told_keys(arguments),
    )
    return tuple(Finding(code=code, text=text) for code, text in pairs)


def _parallelism(arguments: Arguments, config: TrainingConfig) -> Iterator[tuple[str, str]]:
    ignored = arguments["virtual_pipeline_model_parallel_size"]
    if ignored not in (None, config.vpp):
        yield (
            "vpp-key-ignored",
            f"virtual_pipeline_model_parallel_size: {ignored} is ignored by the trainer (rule L2): VPP {config.vpp} runs; "
            "set num_virtual_stages_per_pipeline_rank",
        )
    other = arguments["context_model_parallel_size"]
    if other is not None:
        yield (
            "cp-spelling",
            f"context_model_parallel_size: {other} is not the trainer's key (context_parallel_size); CP {config.cp} is priced",
        )
    if arguments["rampup_batch_size"] is not None:
        yield "rampup-ignored", f"rampup_batch_size is left out: GBS {config.gbs} is priced throughout"
    if flag(arguments, "patch_primus_pipeline") and (config.overlap_grad_reduce or config.overlap_param_gather):
        yield "overlap-lost", "patch_primus_pipeline runs the whole step without gradient sync: the overlap flags gain nothing (rule S10)"
    if arguments["recompute_granularity"] == "full" and config.recompute.granularity == "none":
        yield "recompute-none", "recompute_granularity: full with recompute_num_layers: 0 recomputes nothing"


def _precision(arguments: Arguments, config: TrainingConfig) -> Iterator[tuple[str, str]]:
    if config.fp8 and config.fp8_recipe == "delayed" and (config.grouped_gemm == "turbo" or config.turbo_gemm):
        yield "turbo-bf16", f"fp8: {config.fp8} with the delayed recipe: Primus-Turbo GEMMs run in bf16, it has no delayed scaling"
    if config.fp8 and config.grouped_gemm == "legacy":
        yield "legacy-bf16", f"fp8: {config.fp8} does not reach the experts: the legacy grouped GEMM runs in bf16"
    if flag(arguments, "first_last_layers_bf16") and config.fp8:
        yield "first-last-bf16", "first_last_layers_bf16 is left out: every layer is priced in fp8"
    turbo = [key for key in _TURBO_SWITCHES if flag(arguments, key)]
    if turbo and not flag(arguments, "enable_primus_turbo"):
        yield "turbo-off", f"enable_primus_turbo is false, so {', '.join(turbo)} do nothing (rule E12)"
    elif turbo and config.tp > 1:
        yield "turbo-off", f"Primus leaves Primus-Turbo out above TP 1: at TP {config.tp} {', '.join(turbo)} do nothing (rule turbo-tp)"


_TURBO_SWITCHES = ("use_turbo_attention", "use_turbo_gemm", "use_turbo_grouped_gemm", "use_turbo_deepep", "use_turbo_fused_act_with_probs")


def _experts(arguments: Arguments, arch: Architecture, config: TrainingConfig) -> Iterator[tuple[str, str]]:
    if not arch.is_moe:
        return
    if config.sync_free_stage >= 2:
        turned_on = [key for key in ("use_turbo_deepep", "use_turbo_grouped_gemm") if not turbo_flag(arguments, key)]
        if turned_on:
            yield (
                "sync-free-turns-on",
                f"turbo_sync_free_moe_stage: {config.sync_free_stage} turns {' and '.join(turned_on)} on (rule E16); "
                "write use_turbo_deepep: true as well, else the trainer may keep its own dispatcher (rule E17)",
            )
    if config.forced_balance:
        yield "forced-balance", "moe_router_force_load_balancing: true: tokens are dealt to experts evenly, as no real router does"
    if arguments["moe_expert_capacity_factor"] is not None:
        yield "capacity-ignored", "moe_expert_capacity_factor is left out: no token is dropped or padded"


def _shapes(arguments: Arguments) -> Iterator[tuple[str, str]]:
    softcaps = [key for key in ("final_logit_softcapping", "attn_logit_softcapping", "router_logit_softcapping") if arguments[key]]
    if softcaps:
        yield "softcap-ignored", f"{', '.join(softcaps)}: the extra element-wise work is not priced"
    if flag(arguments, "moe_shared_expert_gate"):
        yield "shared-gate-ignored", "moe_shared_expert_gate: the gate of one column is counted, its time and activations are not"


def _mixers(arch: Architecture) -> Iterator[tuple[str, str]]:
    if arch.mixer is None:
        return
    others = arch.num_layers - arch.attending_layers - arch.layer_kinds.count("mlp_alone")
    low, high = MIXER_MEMORY_ERRORS
    name = {"ShortConvolution": "a short convolution", "GatedDeltaNet": "a gated delta net", "Mamba2": "Mamba-2"}[type(arch.mixer).__name__]
    text = (
        f"{others} layers run {name} instead of attention: their kernels are estimated; against the published memory of Primus's own "
        f"hybrid examples on MI355X the projection errs by {low:+.0%} to {high:+.0%} at most, and no published run validates their time"
    )
    yield "mixers-estimated", text


_EXPERT_ADAPTERS = {
    "legacy": "none has an adapter, since the legacy grouped GEMM holds no module of that name",
    "te": "one adapter for all experts of a rank, since a grouped linear is one module; every EP rank trains its own",
    "turbo": "Primus has no adapter for Turbo's grouped linear and stops",
    "sequential": "one adapter an expert",
}


def _tuning(arguments: Arguments, arch: Architecture, config: TrainingConfig) -> Iterator[tuple[str, str]]:
    if arguments["stage"] != "sft":
        return
    if not flag(arguments, "enable_packed_sequences"):
        yield "sft-padding", "samples are not packed: tokens/s counts every position of a sequence, padding included"
    if flag(arguments, "use_packed_attention"):
        yield "packed-attention", "use_packed_attention: attention is priced over the whole sequence, an upper bound for packed samples"
    if config.finetune == "lora":
        targets = ", ".join(config.lora_targets)
        yield "lora", f"LoRA rank {config.lora_rank} on {targets}: base weights are frozen, without gradients and optimizer states"
        if arch.is_moe and {"linear_fc1", "linear_fc2"} & set(config.lora_targets):
            yield "lora-experts", f"linear_fc1 and linear_fc2 of routed experts: {_EXPERT_ADAPTERS[config.grouped_gemm]}"


def corrections_to_run(arguments: Arguments) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Keys without which the trainer would stop at once, where only one value can be meant.

    A layout without `m` on a model with MTP layers stops in rule L15 (the shipped DeepSeek-V3 file): it is priced and exported without MTP.
    Keys that Primus took out are written as today's.
    """
    changes, findings = removed_keys(arguments)
    layout = optional_text(arguments, "pipeline_model_parallel_layout")
    mtp = optional_count(arguments, "mtp_num_layers", 0)
    if layout is None or not mtp or "m" in layout:
        return changes, findings
    text = (
        f"pipeline_model_parallel_layout has no m, but mtp_num_layers is {mtp}: the trainer would stop (rule L15); "
        "priced and exported with mtp_num_layers: null"
    )
    return {**changes, "mtp_num_layers": None}, (*findings, Finding(code="mtp-without-layout", text=text))
