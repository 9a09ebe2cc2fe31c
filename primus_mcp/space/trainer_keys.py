"""A trial as trainer keys: the single translation that prices a trial, writes its overlay YAML and builds the adapted baseline.

A knob owns every trainer key that must change with it. Sources of the key tables: the rule ids beside them (space/rules).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from primus_mcp.inputs.trainer_arguments import read_training
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.pipeline_keys import depths, pipeline_keys

FULL_PRECISION_OPTIMIZER: dict[str, Any] = {
    "use_precision_aware_optimizer": False,
    "main_grads_dtype": "fp32",
    "main_params_dtype": "fp32",
    "exp_avg_dtype": "fp32",
    "exp_avg_sq_dtype": "fp32",
}
"""Without the distributed optimizer the precision-aware one is off and every dtype is fp32 (O9, O10)."""
DEEPEP_WIDE_EP, DEEPEP_NUM_CU_LIMIT = 16, 32
"""From this EP on, DeepEP kernels take at most so many compute units (E10)."""
ALL_TO_ALL: dict[str, Any] = {"moe_token_dispatcher_type": "alltoall"}

_ABSENT = object()


def _size_keys(trial: TrialConfig, workload: Workload) -> dict[str, Any]:
    arguments, baseline, arch = workload.arguments, workload.baseline, workload.architecture
    keys: dict[str, Any] = {}
    for knob, key in (("ep", "expert_model_parallel_size"), ("mbs", "micro_batch_size"), ("gbs", "global_batch_size")):
        if (value := getattr(trial, knob)) is not None:
            keys[key] = value
    if trial.expert_tensor_parallel_size is not None:
        keys["expert_tensor_parallel_size"] = trial.expert_tensor_parallel_size
    if trial.tp is not None:
        keys["tensor_model_parallel_size"] = trial.tp
        if arch.is_moe and trial.tp > 1:
            keys["sequence_parallel"] = True  # T11
        if trial.tp > 1 and arguments.get("use_turbo_gemm"):
            keys["use_turbo_gemm"] = False  # T16
        written = arguments.get("expert_tensor_parallel_size")
        if written not in (None, 1) and written == baseline.tp and trial.expert_tensor_parallel_size is None:
            keys["expert_tensor_parallel_size"] = trial.tp
    return keys


def _context_keys(trial: TrialConfig, workload: Workload) -> dict[str, Any]:
    if trial.cp is None or trial.cp == workload.baseline.cp:
        return {}
    arguments, arch = workload.arguments, workload.architecture
    keys: dict[str, Any] = {"context_parallel_size": trial.cp, "hierarchical_context_parallel_sizes": None}
    keys["context_model_parallel_size"] = None
    comm = arguments.get("cp_comm_type")
    if trial.cp > 1:
        keys["use_turbo_attention"] = False  # C13, C14
        if arguments.get("softmax_type") not in (None, "vanilla"):
            keys["cp_comm_type"] = "a2a"  # C7
        elif arch.sliding_window is not None and comm not in ("a2a", "all_gather"):
            keys["cp_comm_type"] = "all_gather"  # C6
        elif comm not in ("p2p", "a2a", "all_gather"):
            keys["cp_comm_type"] = "p2p"  # C2, C4
    return keys


def _overlap_keys(trial: TrialConfig) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    if trial.overlap_grad_reduce is not None:
        keys["overlap_grad_reduce"] = trial.overlap_grad_reduce
        if not trial.overlap_grad_reduce:
            keys["overlap_param_gather"] = False  # O1
    if trial.overlap_param_gather is not None:
        keys["overlap_param_gather"] = trial.overlap_param_gather
    return keys


def _optimizer_keys(trial: TrialConfig) -> dict[str, Any]:
    """use_distributed_optimizer and use_torch_fsdp2 (O1, O3, O9, O10, F3)."""
    keys: dict[str, Any] = {}
    unsharded: dict[str, Any] = {"overlap_param_gather": False, **FULL_PRECISION_OPTIMIZER}
    if trial.use_torch_fsdp2:
        keys |= {
            **unsharded,
            "use_torch_fsdp2": True,
            "use_distributed_optimizer": False,
            "gradient_accumulation_fusion": False,
            "ckpt_format": "torch_dist",
        }
    elif trial.use_torch_fsdp2 is False:
        keys["use_torch_fsdp2"] = False
    if trial.use_distributed_optimizer is not None:
        keys["use_distributed_optimizer"] = trial.use_distributed_optimizer
        if trial.use_distributed_optimizer:
            keys.setdefault("use_torch_fsdp2", False)
        else:
            keys |= {**unsharded, "fp8_param_gather": False}
    return keys


def _moe_keys(trial: TrialConfig, workload: Workload) -> dict[str, Any]:
    """use_turbo_deepep and sync_free_stage (E9-E12, E15-E18, F17), and the DeepEP compute units that depend on EP (E10)."""
    arguments = workload.arguments
    keys: dict[str, Any] = {}
    stage = trial.sync_free_stage
    deepep = trial.use_turbo_deepep
    if stage is not None:
        keys["turbo_sync_free_moe_stage"] = stage
        if stage >= 1:
            keys |= {"enable_primus_turbo": True, "moe_use_fused_router_with_aux_score": True, "moe_permute_fusion": True}
            if arguments.get("moe_token_dispatcher_type") in (None, "allgather"):
                keys |= ALL_TO_ALL
        if stage >= 2:
            deepep = True if deepep is None else deepep
            keys |= {"use_turbo_grouped_gemm": True, "moe_use_legacy_grouped_gemm": False}
        if stage == 3:
            keys["use_turbo_fused_act_with_probs"] = True
    if deepep is not None:
        keys["use_turbo_deepep"] = deepep
        if deepep:
            keys |= {"enable_primus_turbo": True, "moe_router_dtype": "fp32", "moe_shared_expert_overlap": False}
        else:
            keys["moe_enable_deepep"] = False
            if arguments.get("moe_token_dispatcher_type") in (None, "allgather", "flex"):
                keys |= ALL_TO_ALL
    uses_deepep = deepep if deepep is not None else bool(arguments.get("use_turbo_deepep"))
    if uses_deepep and (trial.ep is not None or deepep is not None):
        ep = trial.ep or workload.baseline.ep
        if ep >= DEEPEP_WIDE_EP and (arguments.get("turbo_deepep_num_cu") or 0) > DEEPEP_NUM_CU_LIMIT:
            keys["turbo_deepep_num_cu"] = DEEPEP_NUM_CU_LIMIT
    return keys


def _precision_keys(trial: TrialConfig, workload: Workload, other: Mapping[str, Any]) -> dict[str, Any]:
    """fp8 (F1-F3, F8): the recipe is the workload's own; tensorwise where MLA or a Turbo GEMM cannot take delayed scaling."""
    if trial.fp8 is None:
        return {}
    if trial.fp8 == "none":
        return {"fp8": None, "fp8_param_gather": False, "turbo_grouped_gemm_without_padding": False}
    arguments = {**workload.arguments, **other}
    if trial.fp8 == "mxfp8":
        return {"fp8": "e4m3", "fp8_recipe": "mxfp8", "fp4": None}
    recipe = arguments.get("fp8_recipe") or "delayed"
    turbo = arguments.get("use_turbo_gemm") or arguments.get("use_turbo_grouped_gemm")
    if trial.fp8 == "delayed":
        recipe = "delayed"
    elif recipe in ("delayed", "mxfp8"):
        recipe = "tensorwise" if turbo or workload.architecture.latent_attention is not None else "delayed"
    keys: dict[str, Any] = {"fp8": "hybrid" if trial.fp8 == "delayed" else trial.fp8, "fp8_recipe": recipe, "fp4": None}
    if recipe != "delayed":
        keys["fp8_param_gather"] = False
    return keys


def _dependent_keys(trial: TrialConfig, workload: Workload, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of the workload that other keys of the trial rule out: they are switched off, so that the trial runs without them."""
    a = {**workload.arguments, **keys}
    off: dict[str, Any] = {}
    tp, vpp = a.get("tensor_model_parallel_size"), depths(trial, workload.baseline)[1]
    if trial.tp is not None and a.get("tp_comm_overlap") and (tp == 1 or not a.get("sequence_parallel")):
        off["tp_comm_overlap"] = False  # T13
    if keys and a.get("overlap_p2p_comm_warmup_flush") and vpp == 1:
        off["overlap_p2p_comm_warmup_flush"] = False  # B7
    gathers = vpp > 1 and a.get("overlap_param_gather") and a.get("use_distributed_optimizer")
    if keys and a.get("overlap_param_gather_with_optimizer_step") and not gathers:
        off["overlap_param_gather_with_optimizer_step"] = False  # O2
    saves = a.get("use_torch_fsdp2") and tp == 1 and a.get("pipeline_model_parallel_size") == 1
    if keys and a.get("ckpt_format") == "torch_dcp" and not saves:
        off["ckpt_format"] = "torch_dist"  # O6
    if keys.get("fp8_param_gather") is False and a.get("reuse_grad_buf_for_mxfp8_param_ag"):
        off["reuse_grad_buf_for_mxfp8_param_ag"] = False  # F20
    if "fp4" in keys and a.get("fp4_param"):
        off["fp4_param"] = False  # F4
    return off


def trainer_keys(trial: TrialConfig, workload: Workload) -> dict[str, Any]:
    """The trainer keys that a trial changes, against the workload's resolved arguments; empty for the workload itself.

    Explicit knobs win over what other knobs would set, so that a contradiction survives and a rule can refuse it.
    """
    keys = _size_keys(trial, workload) | _context_keys(trial, workload) | _moe_keys(trial, workload)
    keys |= _precision_keys(trial, workload, keys)
    keys |= {"cross_entropy_loss_fusion": trial.cross_entropy_loss_fusion} if trial.cross_entropy_loss_fusion is not None else {}
    if trial.cross_entropy_loss_fusion and not workload.baseline.cross_entropy_loss_fusion:
        keys["cross_entropy_fusion_impl"] = "te"
    keys |= _optimizer_keys(trial) | pipeline_keys(trial, workload)
    keys |= _overlap_keys(trial)
    keys |= _dependent_keys(trial, workload, keys)
    arguments = workload.arguments
    return {key: value for key, value in keys.items() if _differs(arguments.get(key, _ABSENT), value)}


def _differs(present: object, value: object) -> bool:
    if present is _ABSENT:
        return value is not None and value is not False
    return present != value


def read_trial(workload: Workload, trial: TrialConfig, keys: Mapping[str, Any]) -> TrainingConfig:
    """The configuration of the workload's arguments with a trial's keys. `target_ep_size` has no trainer key: it is `a2a_ep_size`."""
    config = read_training({**workload.arguments, **keys}, workload.architecture) if keys else workload.baseline
    return replace(config, a2a_ep_size=trial.target_ep_size) if trial.target_ep_size is not None else config


def resolve(workload: Workload, trial: TrialConfig) -> TrainingConfig:
    """The configuration that a trial would run: the workload's arguments with the trial's keys, read by the workload's own reader.

    Raises InputError where the reader cannot make sense of the keys.
    """
    return read_trial(workload, trial, trainer_keys(trial, workload))
