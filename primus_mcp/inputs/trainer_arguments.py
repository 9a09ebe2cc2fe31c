"""Trainer arguments to a TrainingConfig: what would really run after the trainer has rewritten, ignored and defaulted them.

The rule ids (W3, T10, ...) are those of NVIDIA/Megatron-LM@d3528a21 and AMD-AGI/Primus@fd1eeabb as listed in docs/knobs.md. Called for
every trial with the workload's arguments | the trial's, so that baseline, trial and overlay pass the same code; keep it cheap.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Literal

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.argument_values import Arguments, choice, count, flag, optional_count, optional_text
from primus_mcp.inputs.layout import parse_layout
from primus_mcp.inputs.lora_arguments import lora_settings
from primus_mcp.inputs.training import (
    Dispatcher,
    Fp8Format,
    Fp8Recipe,
    GroupedGemm,
    Optimizer,
    Recompute,
    Schedule,
    TrainingConfig,
)
from primus_mcp.units import BF16_BYTES, FP8_BYTES, FP32_BYTES

_DTYPE_BYTES = {"fp32": FP32_BYTES, "fp16": BF16_BYTES, "bf16": BF16_BYTES, "fp8": FP8_BYTES}
_FP8: dict[str, Fp8Format] = {"e4m3": "e4m3", "hybrid": "hybrid"}
_FP8_RECIPES: dict[str, Fp8Recipe] = {"delayed": "delayed", "tensorwise": "tensorwise", "blockwise": "blockwise", "mxfp8": "mxfp8"}
_OPTIMIZERS: dict[str, Optimizer] = {"adam": "adam", "sgd": "sgd", "muon": "muon", "dist_muon": "muon"}
_ENTROPY: dict[str, Literal["native", "te"]] = {"native": "native", "te": "te"}
_PIPELINE: dict[str, Schedule] = {
    "1f1b": "1f1b",
    "1f1b-interleaved": "interleaved",
    "zero-bubble": "zero-bubble",
    "zero-bubble-heuristic": "zero-bubble-heuristic",
    "zbv-formatted": "zbv-formatted",
    "v-half": "v-half",
    "v-min": "v-min",
}
_ZERO_BUBBLE_V: dict[str, Schedule] = {"zb": "zbv-formatted", "half": "v-half", "min": "v-min"}
_DISPATCHERS: dict[str, Dispatcher] = {"allgather": "allgather", "alltoall": "alltoall"}
_BALANCING = {"even": True, "uniform": False}
_FLASH_BACKENDS = {"auto": True, "flash": True, "fused": True, "unfused": False, "local": False}


def turbo_switch(arguments: Arguments, key: str) -> bool:
    """A Primus-Turbo switch, which does nothing without enable_primus_turbo (rule E12)."""
    return flag(arguments, "enable_primus_turbo") and flag(arguments, key)


def turbo_flag(arguments: Arguments, key: str) -> bool:
    """A switch of Primus-Turbo's layer classes, which Primus leaves out above TP 1: Transformer Engine's run there (rule turbo-tp)."""
    return turbo_switch(arguments, key) and count(arguments, "tensor_model_parallel_size") == 1


def _flash_attention(arguments: Arguments) -> bool:
    """Whether a kernel that keeps no scores runs. Transformer Engine's know no learned or off-by-one softmax on ROCm: its unfused one runs.

    Source: ROCm/TransformerEngine pytorch/attention/dot_product_attention/utils.py (filter of softmax types), common/fused_attn_rocm
    fused_attn_ck.cpp and fused_attn_aotriton.cpp; pull 678 of 2026-08 brings sinks to the first. Known error: not so on NVIDIA.
    """
    if turbo_flag(arguments, "use_turbo_attention"):
        return True
    return choice(arguments, "attention_backend", _FLASH_BACKENDS) and arguments["softmax_type"] in (None, "vanilla")


def sync_free_stage(arguments: Arguments) -> int:
    """turbo_sync_free_moe_stage 0-3, 0 without Primus-Turbo (rule E15)."""
    stage = count(arguments, "turbo_sync_free_moe_stage", 0)
    if stage > 3:
        raise InputError(f"is {stage}", where="turbo_sync_free_moe_stage", remedy="write 0, 1, 2 or 3")
    return stage if flag(arguments, "enable_primus_turbo") else 0


def _virtual_stages(arguments: Arguments, arch: Architecture, pp: int) -> int:
    """VPP (rules L1-L5, L14): stages of the layout / PP, num_virtual_stages_per_pipeline_rank, or layers / PP / layers per stage.

    A YAML virtual_pipeline_model_parallel_size is overwritten by the trainer before use (rule L2), so it is not read.
    """
    layout = optional_text(arguments, "pipeline_model_parallel_layout")
    stages = optional_count(arguments, "num_virtual_stages_per_pipeline_rank")
    per_stage = optional_count(arguments, "num_layers_per_virtual_pipeline_stage")
    if (layout is not None) + (stages is not None) + (per_stage is not None) > 1:
        keys = "pipeline_model_parallel_layout, num_virtual_stages_per_pipeline_rank and num_layers_per_virtual_pipeline_stage"
        raise InputError(f"more than one of {keys} is set", where="pipeline split", remedy="keep one (rule L1)")
    if layout is not None:
        chunks = len(parse_layout(layout))
        if chunks % pp:
            raise InputError(f"has {chunks} stages, not a multiple of PP {pp}", where="pipeline_model_parallel_layout", remedy="match PP")
        return chunks // pp
    if stages is not None:
        return stages
    if per_stage is None:
        return 1
    ends = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
    counted = arch.num_layers + sum(flag(arguments, key) for key in ends)
    if counted % (pp * per_stage):
        raise InputError(
            f"is {per_stage}, which does not divide {counted} layers over PP {pp}",
            where="num_layers_per_virtual_pipeline_stage",
            remedy="write a divisor, or use a layout",
        )
    return counted // pp // per_stage


def _schedule(arguments: Arguments, vpp: int) -> Schedule:
    """The schedule table of rules S1-S18 and Z1-Z14: patched pipelines by their keys, else Megatron's own (rule S18)."""
    primus, zero_bubble = flag(arguments, "patch_primus_pipeline"), flag(arguments, "patch_zero_bubble")
    if primus and zero_bubble:
        raise InputError("patch_primus_pipeline and patch_zero_bubble are both on", where="schedule", remedy="keep one (rule S16)")
    stock: Schedule = "interleaved" if vpp > 1 else "1f1b"
    if primus:
        schedule: Schedule = choice(arguments, "pp_algorithm", _PIPELINE)
        return schedule
    if not zero_bubble or not flag(arguments, "enable_zero_bubble"):
        return stock
    if flag(arguments, "enable_1f1b_v"):
        raise UnsupportedFeatureError("the schedule 1f1b-v is not priced", where="enable_1f1b_v", remedy="choose another schedule")
    if flag(arguments, "zero_bubble_v_schedule"):
        v_schedule: Schedule = choice(arguments, "zero_bubble_v_schedule_mem_setup", _ZERO_BUBBLE_V)
        return v_schedule
    return "zero-bubble"


def _per_rank(arguments: Arguments, key: str, pp: int, least: float) -> tuple[float, ...] | None:
    """One number for all pipeline ranks, a list with one a rank (longer lists are read as far as there are ranks), or null."""
    value = arguments[key]
    if value is None:
        return None
    numbers = value if isinstance(value, list) else [value] * pp
    if len(numbers) < pp:
        raise InputError(f"has {len(numbers)} entries", where=key, remedy=f"write one number, or one for each of the {pp} pipeline ranks")
    if not all(isinstance(n, int | float) and not isinstance(n, bool) and isfinite(n) and n >= least for n in numbers):
        raise InputError(f"is {value!r}", where=key, remedy=f"write numbers of at least {least:g}, or null")
    return tuple(float(n) for n in numbers[:pp])


def _planner(arguments: Arguments, schedule: Schedule, pp: int) -> dict[str, Any]:
    """What zero-bubble-heuristic plans with; no other schedule reads it (AMD-AGI/Primus primuspipe/pipeline_launcher.py)."""
    if schedule != "zero-bubble-heuristic":
        return {}
    costs = {key: _per_rank(arguments, key, pp, 0.0) for key in ("pp_cost_f", "pp_cost_b", "pp_cost_w")}
    return {"pp_max_mem": _per_rank(arguments, "pp_max_mem", pp, 1.0), **costs}


def _layer_ids(value: Any, total: int) -> tuple[int, ...]:
    """recompute_layer_ids as a list or as "0,3,7": global 0-based ids, MTP depth d is num_layers + d (rule R10)."""
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
    try:
        ids = sorted({int(item) for item in items if not isinstance(item, bool)})
    except (TypeError, ValueError) as error:
        raise InputError(f"is {value!r}", where="recompute_layer_ids", remedy='write layer numbers such as "0,3,7"') from error
    if not ids or ids[0] < 0 or ids[-1] >= total:
        raise InputError(
            f"is {value!r}, the model has layers 0 to {total - 1}", where="recompute_layer_ids", remedy="write existing layers"
        )
    return tuple(ids)


def _selective(arguments: Arguments) -> Recompute:
    """Selective recomputation of recompute_modules, core attention where none are named (rules R3, R5, R14)."""
    if arguments["recompute_method"] is not None or arguments["recompute_num_layers"] is not None:
        raise InputError(
            "selective excludes recompute_method and recompute_num_layers",
            where="recompute_granularity",
            remedy="set both to null (rule R3)",
        )
    modules = arguments["recompute_modules"]
    if modules is None:
        return Recompute(granularity="selective", modules=("core_attn",))
    if isinstance(modules, list) and all(isinstance(module, str) for module in modules):
        return Recompute(granularity="selective", modules=tuple(modules))
    raise InputError(f"is {modules!r}", where="recompute_modules", remedy="write a list such as [core_attn]")


def _recompute(arguments: Arguments, arch: Architecture) -> Recompute:
    """`full` with method `block` and 0 layers recomputes nothing (Mixtral's own baseline), so it is `none`."""
    granularity = arguments["recompute_granularity"]
    if granularity is None and flag(arguments, "recompute_activations"):
        granularity = "selective"
    if granularity is None:
        return Recompute()
    if granularity == "selective":
        return _selective(arguments)
    if granularity != "full":
        raise InputError(f"is {granularity!r}", where="recompute_granularity", remedy="write full, selective or null (rule R1)")
    method, ids = arguments["recompute_method"], arguments["recompute_layer_ids"]
    if ids is not None:
        if method is not None:
            raise InputError("excludes recompute_method", where="recompute_layer_ids", remedy="set recompute_method to null (rule R10)")
        return Recompute(granularity="full", layer_ids=_layer_ids(ids, arch.num_layers + arch.mtp_num_layers))
    layers = optional_count(arguments, "recompute_num_layers", 0)
    if method not in ("block", "uniform") or layers is None:
        raise InputError(
            "full needs recompute_method (block or uniform) and recompute_num_layers",
            where="recompute_granularity",
            remedy="set both (rule R2)",
        )
    if layers == 0:
        if method == "uniform":
            raise InputError("is 0 with recompute_method uniform", where="recompute_num_layers", remedy="write at least 1")
        return Recompute()
    return Recompute(granularity="full", method=method, num_layers=layers)


def _context_parallel(arguments: Arguments) -> int:
    """CP under either spelling; the trainer's own is context_parallel_size."""
    other = arguments["context_model_parallel_size"]
    cp = count(arguments, "context_parallel_size")
    return count(arguments, "context_model_parallel_size") if other is not None and cp == 1 else cp


def _cp_comm_type(arguments: Arguments) -> str:
    value = arguments["cp_comm_type"]
    if isinstance(value, list) and value and all(item == value[0] for item in value):
        value = value[0]
    if isinstance(value, list):
        raise UnsupportedFeatureError("different context-parallel communication by layer is not priced", where="cp_comm_type")
    if not isinstance(value, str):
        raise InputError(f"is {value!r}", where="cp_comm_type", remedy="write p2p, a2a, all_gather or a2a+p2p (rule C4)")
    return value


def _optimizer_bytes(arguments: Arguments) -> dict[str, Any]:
    """Bytes an element of main gradients, main weights and both moments.

    Gradients are fp32 unless grad_reduce_in_bf16 or main_grads_dtype bf16 (rule F21). The precision-aware optimizer keeps the low 16 bits
    of fp32 main weights beside the bf16 weight (store_param_remainders), hence 2; without it everything is fp32 (rule O10).
    """
    half_grads = flag(arguments, "grad_reduce_in_bf16") or choice(arguments, "main_grads_dtype", _DTYPE_BYTES) < FP32_BYTES
    grads = BF16_BYTES if half_grads else FP32_BYTES
    if not flag(arguments, "use_precision_aware_optimizer"):
        return {"main_grad_bytes": grads, "main_param_bytes": FP32_BYTES, "exp_avg_bytes": FP32_BYTES, "exp_avg_sq_bytes": FP32_BYTES}
    return {
        "main_grad_bytes": grads,
        "main_param_bytes": BF16_BYTES,
        "exp_avg_bytes": choice(arguments, "exp_avg_dtype", _DTYPE_BYTES),
        "exp_avg_sq_bytes": choice(arguments, "exp_avg_sq_dtype", _DTYPE_BYTES),
    }


def _grouped_gemm(arguments: Arguments, stage: int) -> GroupedGemm:
    """Which expert class runs: Turbo (at TP 1), legacy, Transformer Engine, or one GEMM an expert (rules E15, E16, E18)."""
    legacy = flag(arguments, "moe_use_legacy_grouped_gemm")
    if not flag(arguments, "moe_grouped_gemm"):
        return "sequential"
    if turbo_flag(arguments, "use_turbo_grouped_gemm") or (stage >= 2 and count(arguments, "tensor_model_parallel_size") == 1):
        if legacy:
            raise InputError(
                "Turbo grouped GEMM (use_turbo_grouped_gemm, or turbo_sync_free_moe_stage >= 2) excludes it",
                where="moe_use_legacy_grouped_gemm",
                remedy="set it to false (rule E18)",
            )
        return "turbo"
    return "legacy" if legacy else "te"


def _dispatcher(arguments: Arguments, stage: int) -> Dispatcher:
    """DeepEP by use_turbo_deepep, by sync-free stage 2 or 3 (rule E16), or by Megatron's flex dispatcher; else the library one."""
    if turbo_switch(arguments, "use_turbo_deepep") or stage >= 2:
        return "deepep"
    if arguments["moe_token_dispatcher_type"] == "flex":  # noqa: S105 - tokens of text, no secret
        if arguments["moe_flex_dispatcher_backend"] in (None, "deepep"):
            return "deepep"
        raise UnsupportedFeatureError("this expert dispatcher is not priced", where="moe_flex_dispatcher_backend", remedy="use deepep")
    dispatcher: Dispatcher = choice(arguments, "moe_token_dispatcher_type", _DISPATCHERS)
    return dispatcher


def _moe(arguments: Arguments, arch: Architecture) -> dict[str, Any]:
    """The MoE fields; a dense model has none of them whatever its YAML says."""
    if not arch.is_moe or arch.experts is None:
        return {}
    stage = sync_free_stage(arguments)
    grouped, dispatcher = _grouped_gemm(arguments, stage), _dispatcher(arguments, stage)
    fused_turbo = grouped == "turbo" and (stage == 3 or turbo_flag(arguments, "use_turbo_fused_act_with_probs"))
    shared = arch.experts.shared_expert_ffn_hidden_size > 0
    return {
        "dispatcher": dispatcher,
        "sync_free_stage": stage,
        "grouped_gemm": grouped,
        "permute_fusion": stage >= 1 or flag(arguments, "moe_permute_fusion"),
        "fused_router": stage >= 1
        or turbo_switch(arguments, "moe_use_fused_router_with_aux_score")
        or flag(arguments, "moe_router_fusion"),
        "fused_expert_activation": grouped == "legacy" or fused_turbo or flag(arguments, "bias_swiglu_fusion"),
        "shared_expert_overlap": shared and dispatcher != "deepep" and flag(arguments, "moe_shared_expert_overlap"),
        "overlap_moe_a2a": flag(arguments, "overlap_moe_expert_parallel_comm") or flag(arguments, "patch_moe_overlap"),
        "forced_balance": flag(arguments, "moe_router_force_load_balancing")
        and choice(arguments, "moe_router_force_load_balancing_type", _BALANCING),
        "deepep_num_cu": count(arguments, "turbo_deepep_num_cu"),
    }


def _kernels(arguments: Arguments, arch: Architecture, tp: int) -> dict[str, Any]:
    """Precision, fusions and host settings. fp8 without a recipe means delayed scaling, under which Turbo GEMMs run bf16."""
    return {
        "fp8": None if arguments["fp8"] is None else choice(arguments, "fp8", _FP8),
        "fp8_recipe": choice(arguments, "fp8_recipe", _FP8_RECIPES),
        "fp8_param_gather": flag(arguments, "fp8_param_gather"),
        "fp8_weight_transpose_cache": not flag(arguments, "no_fp8_weight_transpose_cache"),
        "fp4": arguments["fp4"] is not None and arguments["fp4"] is not False,
        "flash_attention": _flash_attention(arguments),
        "cross_entropy_loss_fusion": flag(arguments, "cross_entropy_loss_fusion"),
        "cross_entropy_impl": choice(arguments, "cross_entropy_fusion_impl", _ENTROPY),
        "fused_swiglu": flag(arguments, "bias_swiglu_fusion" if arch.gated_mlp else "bias_gelu_fusion"),
        "fused_rope": flag(arguments, "apply_rope_fusion"),
        "turbo_gemm": turbo_flag(arguments, "use_turbo_gemm"),
        "turbo_attention": turbo_flag(arguments, "use_turbo_attention"),
        "tp_comm_overlap": tp > 1 and flag(arguments, "tp_comm_overlap"),
        "full_graph": flag(arguments, "enable_cuda_graph") or arguments["cuda_graph_impl"] not in (None, "none"),
        "manual_gc": flag(arguments, "manual_gc"),
        "gradient_accumulation_fusion": flag(arguments, "gradient_accumulation_fusion"),
    }


def read_training(arguments: Arguments, architecture: Architecture) -> TrainingConfig:
    """Complete arguments (`complete_arguments`) to the configuration that would run. Pure.

    Raises InputError where the trainer's own parsing would refuse a value; whether the degrees fit the model and the cluster is judged by
    `space`. sequence_parallel is off at TP 1 (rule T10), ETP defaults to TP (W3), p2p overlaps only with VPP (L7).
    """
    tp, pp = count(arguments, "tensor_model_parallel_size"), count(arguments, "pipeline_model_parallel_size")
    vpp = _virtual_stages(arguments, architecture, pp)
    schedule = _schedule(arguments, vpp)
    return TrainingConfig(
        tp=tp,
        pp=pp,
        ep=count(arguments, "expert_model_parallel_size"),
        etp=(optional_count(arguments, "expert_tensor_parallel_size") or tp) if architecture.is_moe else tp,
        cp=_context_parallel(arguments),
        vpp=vpp,
        sequence_parallel=tp > 1 and flag(arguments, "sequence_parallel"),
        cp_comm_type=_cp_comm_type(arguments),
        pipeline_layout=optional_text(arguments, "pipeline_model_parallel_layout"),
        decoder_first_pipeline_num_layers=optional_count(arguments, "decoder_first_pipeline_num_layers"),
        decoder_last_pipeline_num_layers=optional_count(arguments, "decoder_last_pipeline_num_layers"),
        account_for_embedding_in_pipeline_split=flag(arguments, "account_for_embedding_in_pipeline_split"),
        account_for_loss_in_pipeline_split=flag(arguments, "account_for_loss_in_pipeline_split"),
        microbatch_group_size=optional_count(arguments, "microbatch_group_size_per_vp_stage"),
        mbs=count(arguments, "micro_batch_size"),
        gbs=count(arguments, "global_batch_size"),
        schedule=schedule,
        **_planner(arguments, schedule, pp),
        overlap_p2p=vpp > 1 and flag(arguments, "overlap_p2p_comm"),
        use_distributed_optimizer=flag(arguments, "use_distributed_optimizer"),
        use_torch_fsdp2=flag(arguments, "use_torch_fsdp2"),
        overlap_grad_reduce=flag(arguments, "overlap_grad_reduce"),
        overlap_param_gather=flag(arguments, "overlap_param_gather"),
        optimizer=choice(arguments, "optimizer", _OPTIMIZERS),
        recompute=_recompute(arguments, architecture),
        **_optimizer_bytes(arguments),
        **_kernels(arguments, architecture, tp),
        **_moe(arguments, architecture),
        **lora_settings(arguments),
    )
