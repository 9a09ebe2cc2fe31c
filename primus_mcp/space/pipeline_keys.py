"""Trainer keys of the pipeline knobs: depth, virtual stages, layer split, schedule and activation recomputation."""

from __future__ import annotations

from typing import Any

from primus_mcp.errors import InputError
from primus_mcp.inputs.split import place_chunks
from primus_mcp.inputs.training import V_SCHEDULES, TrainingConfig
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.knobs import SCHEDULE_OF_KNOB, TrialConfig
from primus_mcp.space.layouts import balanced_chunks, balanced_layout

SPLIT_KEYS: dict[str, Any] = {
    "num_virtual_stages_per_pipeline_rank": None,
    "num_layers_per_virtual_pipeline_stage": None,
    "pipeline_model_parallel_layout": None,
    "decoder_first_pipeline_num_layers": None,
    "decoder_last_pipeline_num_layers": None,
    "account_for_embedding_in_pipeline_split": False,
    "account_for_loss_in_pipeline_split": False,
    "microbatch_group_size_per_vp_stage": None,
}
"""Every key that splits layers over stages, at rest: at most one may speak (L1, L8, L12), and all describe one PP and VPP only."""

STOCK_SCHEDULE: dict[str, Any] = {"patch_primus_pipeline": False, "patch_zero_bubble": False}
PATCHED_SCHEDULE: dict[str, Any] = {
    "patch_primus_pipeline": True,
    "patch_zero_bubble": False,
    "overlap_grad_reduce": False,
    "overlap_param_gather": False,
    "gradient_accumulation_fusion": True,
    "eval_iters": 0,
    "tp_comm_bulk_wgrad": False,
}
"""What Primus's pipeline patch needs: no DP overlap (S10), fused gradient accumulation (S12), no evaluation (S9), no bulk wgrad (S13)."""


def depths(trial: TrialConfig, baseline: TrainingConfig) -> tuple[int, int]:
    """(PP, VPP) of a trial: inherited where unset, except that PP 1 has no virtual stages (L6)."""
    pp = trial.pp or baseline.pp
    if trial.vpp is not None:
        return pp, trial.vpp
    return pp, 1 if pp == 1 else baseline.vpp


def requested_schedule(trial: TrialConfig, vpp: int) -> str | None:
    """Schedule that a trial asks for: a `pp_algorithm`, "stock" (Megatron's own), or None to inherit.

    `enable_zero_bubble` without a named schedule picks zero-bubble at VPP 1 and zbv-formatted beyond.
    """
    if trial.pp_schedule is not None and trial.pp_schedule != "auto":
        return SCHEDULE_OF_KNOB.get(trial.pp_schedule, trial.pp_schedule)
    if trial.enable_zero_bubble:
        return "zero-bubble" if vpp == 1 else "zbv-formatted"
    if trial.pp_schedule == "auto" or trial.enable_zero_bubble is False:
        return "stock"
    return None


def _own_stages(workload: Workload) -> tuple[int, ...] | None:
    """Decoder layers of each stage of the workload's own split, None where the trainer would refuse it (L3, L15)."""
    try:
        chunks = place_chunks(workload.architecture, workload.baseline)
    except InputError:
        return None
    mtp = workload.architecture.mtp_num_layers
    if sum(chunk.mtp_layers for chunk in chunks) != mtp or max(chunk.mtp_layers for chunk in chunks) != mtp:
        return None
    return tuple(len(chunk.layers) for chunk in chunks)


def _split_keys(trial: TrialConfig, workload: Workload) -> dict[str, Any]:
    arch, baseline = workload.architecture, workload.baseline
    pp, vpp = depths(trial, baseline)
    asked = trial.pp is not None or trial.vpp is not None
    if (pp, vpp) == (baseline.pp, baseline.vpp) and not (asked and _own_stages(workload) is None):
        return {}
    keys: dict[str, Any] = {"pipeline_model_parallel_size": pp, **SPLIT_KEYS}
    stages = pp * vpp
    if arch.num_layers % stages == 0 or stages > arch.num_layers:
        keys["num_virtual_stages_per_pipeline_rank"] = vpp if vpp > 1 else None
    else:
        v_order = (requested_schedule(trial, vpp) or baseline.schedule) in V_SCHEDULES
        keys["pipeline_model_parallel_layout"] = balanced_layout(arch, pp, vpp, v_order=v_order)
    return keys


def _schedule_keys(trial: TrialConfig, workload: Workload) -> dict[str, Any]:
    pp, vpp = depths(trial, workload.baseline)
    schedule = requested_schedule(trial, vpp)
    patched = workload.arguments.get("patch_primus_pipeline") or workload.arguments.get("patch_zero_bubble")
    if schedule == "stock" or (pp == 1 and (schedule is not None or patched) and trial.pp is not None):
        return dict(STOCK_SCHEDULE)
    if schedule is not None:
        return {**PATCHED_SCHEDULE, "pp_algorithm": schedule}
    algorithm = workload.arguments.get("pp_algorithm")
    asked = trial.pp is not None or trial.vpp is not None
    if asked and workload.arguments.get("patch_primus_pipeline") and algorithm in ("1f1b", "1f1b-interleaved"):
        return {"pp_algorithm": "1f1b" if vpp == 1 else "1f1b-interleaved"}
    return {}


def largest_stage(trial: TrialConfig, workload: Workload) -> int:
    """Decoder layers of the largest virtual stage under a trial's PP x VPP (1 where there are more stages than layers)."""
    arch, baseline = workload.architecture, workload.baseline
    pp, vpp = depths(trial, baseline)
    stages = pp * vpp
    own = _own_stages(workload) if (pp, vpp) == (baseline.pp, baseline.vpp) else None
    if own is not None:
        return max(own)
    if stages >= arch.num_layers:
        return 1
    return arch.num_layers // stages if arch.num_layers % stages == 0 else max(balanced_chunks(arch, pp, vpp))


def _full_recompute(trial: TrialConfig, workload: Workload) -> dict[str, Any]:
    arguments = workload.arguments
    inherited = arguments.get("recompute_granularity") == "full"
    method = arguments.get("recompute_method") if inherited else None
    if trial.recompute_num_layers is not None:
        return {
            "recompute_granularity": "full",
            "recompute_method": method or "block",
            "recompute_num_layers": trial.recompute_num_layers,
            "recompute_layer_ids": None,
        }
    if workload.baseline.recompute.granularity == "full":
        return {}
    return {
        "recompute_granularity": "full",
        "recompute_method": "block",
        "recompute_num_layers": largest_stage(trial, workload),
        "recompute_layer_ids": None,
    }


def _recompute_keys(trial: TrialConfig, workload: Workload) -> dict[str, Any]:
    off: dict[str, Any] = {
        "recompute_granularity": None,
        "recompute_method": None,
        "recompute_num_layers": None,
        "recompute_layer_ids": None,
        "recompute_activations": False,
    }
    if trial.recompute_granularity == "none":
        return off
    if trial.recompute_granularity == "selective":
        return {**off, "recompute_granularity": "selective"}
    if trial.recompute_granularity == "full" or trial.recompute_num_layers is not None:
        return _full_recompute(trial, workload)
    return {}


def pipeline_keys(trial: TrialConfig, workload: Workload) -> dict[str, Any]:
    """Trainer keys of pp, vpp, pp_schedule, enable_zero_bubble and the recompute knobs, with all that must change with them.

    A changed PP x VPP rewrites the whole split: evenly where the layers divide, else by a generated layout (grammar L14-L17). Recompute
    layer ids are global, so they survive a new split.
    """
    return _split_keys(trial, workload) | _schedule_keys(trial, workload) | _recompute_keys(trial, workload)
