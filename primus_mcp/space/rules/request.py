"""Rules on what a trial asks for: knobs that contradict each other or have no trainer key. Judged before the trial is resolved."""

from __future__ import annotations

from primus_mcp.space.knobs import MOE_KNOBS, SCHEDULE_OF_KNOB
from primus_mcp.space.pipeline_keys import depths, largest_stage, requested_schedule
from primus_mcp.space.rules.base import Case, RuleBook, megatron, primus
from primus_mcp.space.what_if import WHAT_IF_SCHEDULES

book = RuleBook()
_NEUTRAL = {"expert_tensor_parallel_size": None, "use_turbo_deepep": False, "sync_free_stage": 0, "target_ep_size": 1}


@book.hard(
    "S1", primus("backends/megatron/core/pipeline_parallel/primuspipe/pipeline_launcher.py:52"), "pp_schedule has a trainer algorithm"
)
def _has_algorithm(case: Case) -> str | None:
    if case.trial.pp_schedule in WHAT_IF_SCHEDULES:
        known = "1f1b, 1f1b-interleaved, zero-bubble, zero-bubble-heuristic, zbv-formatted, v-half, v-min"
        return (
            f"pp_schedule {case.trial.pp_schedule} has no key in the Primus runtime: pp_algorithm takes only the 7 values {known};"
            f" {WHAT_IF_SCHEDULES[case.trial.pp_schedule]}"
        )
    return None


@book.hard("Z1", primus("backends/megatron/core/pipeline_parallel/zerobubble/runtime.py:1540"), "split-backward schedules need PP > 1")
def _needs_pipeline(case: Case) -> str | None:
    pp, vpp = depths(case.trial, case.workload.baseline)
    schedule = requested_schedule(case.trial, vpp)
    if pp == 1 and schedule not in (None, "stock", *WHAT_IF_SCHEDULES):
        return f"schedule {schedule} needs PP > 1, PP is {pp}"
    return None


@book.hard(
    "zero-bubble-agrees",
    primus("backends/megatron/patches/parallelism/schedule_patches.py:20"),
    "enable_zero_bubble agrees with pp_schedule: the trainer runs one schedule",
)
def _zero_bubble_agrees(case: Case) -> str | None:
    if case.trial.enable_zero_bubble is False and case.trial.pp_schedule in SCHEDULE_OF_KNOB:
        return f"enable_zero_bubble false contradicts pp_schedule {case.trial.pp_schedule} (1 of the 2 must go)"
    return None


@book.hard("R2", megatron("core/transformer/transformer_config.py:1286-1298"), "recompute_num_layers belongs to full recompute")
def _layers_with_full(case: Case) -> str | None:
    layers, granularity = case.trial.recompute_num_layers, case.trial.recompute_granularity
    inherited = case.workload.arguments.get("recompute_granularity") or "none"
    if layers is not None and (granularity or inherited) != "full":
        return f"recompute_num_layers {layers} needs recompute_granularity full, it is {granularity or inherited}"
    return None


@book.policy("recompute-within-stage", "recompute_num_layers <= layers of a virtual stage")
def _layers_within_stage(case: Case) -> str | None:
    layers = case.trial.recompute_num_layers
    if layers is None or (largest := largest_stage(case.trial, case.workload)) >= layers:
        return None
    return f"recompute_num_layers {layers} exceeds the {largest} layers of the largest virtual stage"


@book.hard("O3", megatron("training/arguments.py:824-842"), "use_torch_fsdp2 excludes use_distributed_optimizer")
def _one_sharding(case: Case) -> str | None:
    if case.trial.use_torch_fsdp2 and case.trial.use_distributed_optimizer:
        return "use_torch_fsdp2 true excludes use_distributed_optimizer true (1 of the 2 must be false)"
    return None


@book.hard("E16", primus("backends/megatron/patches/args/rocm_arg_validation.py:50-72"), "sync_free_stage >= 2 turns DeepEP on")
def _stage_keeps_deepep(case: Case) -> str | None:
    stage = case.trial.sync_free_stage
    if stage is None:
        stage = case.workload.baseline.sync_free_stage
    if case.trial.use_turbo_deepep is False and stage >= 2:
        return f"use_turbo_deepep false contradicts sync_free_stage {stage}, which turns DeepEP on; use sync_free_stage 0 or 1"
    return None


@book.hard("moe-only", megatron("training/arguments.py:1263"), "MoE knobs need a model with experts")
def _moe_only(case: Case) -> str | None:
    if case.arch.is_moe:
        return None
    used = {name: value for name in MOE_KNOBS if (value := getattr(case.trial, name)) not in (None, _NEUTRAL[name])}
    if used:
        named = ", ".join(f"{name} {str(value).lower()}" for name, value in used.items())
        return f"{named}: MoE only, the model has 0 experts"
    return None


@book.policy("target-ep-divides", "target_ep_size divides the number of experts")
def _target_ep(case: Case) -> str | None:
    target, experts = case.trial.target_ep_size, case.arch.experts
    if target is not None and experts is not None and experts.num_experts % target:
        return f"target_ep_size {target} does not divide {experts.num_experts} experts"
    return None
