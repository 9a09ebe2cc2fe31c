"""Rules on recompute, optimizer sharding and the fused loss."""

from __future__ import annotations

from primus_mcp.space.rules.base import Case, RuleBook, megatron, primus

book = RuleBook()


MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
"""What selective recomputation knows."""


@book.hard("R5", megatron("core/transformer/transformer_config.py:1316-1331"), "recompute_modules are ones that the trainer knows")
def _known_modules(case: Case) -> str | None:
    recompute = case.config.recompute
    if recompute.granularity != "selective":
        return None
    unknown = [module for module in recompute.modules if module not in MODULES]
    return f"{len(unknown)} recompute_modules are unknown: {', '.join(unknown)}; known: {', '.join(MODULES)}" if unknown else None


@book.hard("R6", megatron("core/transformer/transformer_config.py:1333-1359"), "recompute_modules are ones that the model has")
def _present_modules(case: Case) -> str | None:
    recompute, experts = case.config.recompute, case.arch.experts
    if recompute.granularity != "selective":
        return None
    if "moe_act" in recompute.modules and not case.arguments.get("moe_grouped_gemm"):
        return f"recompute_modules moe_act ({experts.num_experts if experts else 0} experts) needs moe_grouped_gemm true"
    if "mla_up_proj" in recompute.modules and case.arch.latent_attention is None:
        return f"recompute_modules mla_up_proj needs latent attention, none of the {case.arch.num_layers} layers has it"
    width = experts.shared_expert_ffn_hidden_size if experts is not None else 0
    if "shared_experts" in recompute.modules and width and case.arguments.get("moe_shared_expert_overlap"):
        return f"recompute_modules shared_experts (width {width}) needs moe_shared_expert_overlap false, it is true"
    return None


@book.hard("R10", primus("backends/megatron/patches/recompute_layer_patches.py:58-112"), "recompute_layer_ids need full recompute")
def _layer_ids(case: Case) -> str | None:
    ids, granularity = case.arguments.get("recompute_layer_ids"), case.arguments.get("recompute_granularity")
    if ids is not None and granularity != "full":
        return f"recompute_layer_ids {str(ids)[:40]} need recompute_granularity full, it is {granularity or 'none'}"
    return None


@book.hard("R7", megatron("core/transformer/transformer_config.py:1361-1373"), "FP8 with recomputed activation or norm: not delayed")
def _recompute_fp8(case: Case) -> str | None:
    c = case.config
    modules = {"moe_act", "layernorm"} & set(c.recompute.modules)
    if c.fp8 is not None and c.recompute.granularity == "selective" and modules and c.fp8_recipe == "delayed":
        return f"recompute_modules {', '.join(sorted(modules))} with fp8 {c.fp8} needs a recipe other than delayed"
    return None


@book.hard("R8", megatron("core/transformer/transformer_config.py:1375"), "moe_layer_recompute excludes full recompute")
def _moe_layer(case: Case) -> str | None:
    if case.arguments.get("moe_layer_recompute") and case.arguments.get("recompute_granularity") == "full":
        layers = sum(map(bool, case.arch.moe_layers)) if case.arch.is_moe else 0
        return f"moe_layer_recompute ({layers} MoE layers) excludes recompute_granularity full; set one of the 2"
    return None


@book.hard("R12", megatron("core/transformer/multi_token_prediction.py:1020-1035"), "MTP with uniform recompute: groups of 1 layer")
def _mtp_uniform(case: Case) -> str | None:
    recompute, mtp = case.config.recompute, case.arch.mtp_num_layers
    if mtp and recompute.method == "uniform" and recompute.num_layers != 1:
        return f"{mtp} MTP layers with uniform recompute need recompute_num_layers 1, it is {recompute.num_layers}"
    return None


@book.hard("O1", megatron("training/arguments.py:815"), "overlap_param_gather needs overlap_grad_reduce and the distributed optimizer")
def _param_gather(case: Case) -> str | None:
    c = case.config
    if c.overlap_param_gather and not (c.overlap_grad_reduce and c.use_distributed_optimizer):
        return (
            "overlap_param_gather true needs overlap_grad_reduce and use_distributed_optimizer true, they are"
            f" {str(c.overlap_grad_reduce).lower()} and {str(c.use_distributed_optimizer).lower()} (DP {case.dp})"
        )
    return None


@book.hard("O3-fsdp2", megatron("training/arguments.py:824-842"), "FSDP2: PP 1, EP 1, VPP 1, no distributed optimizer, untied embeddings")
def _fsdp2(case: Case) -> str | None:
    c, a = case.config, case.arguments
    if not c.use_torch_fsdp2:
        return None
    if c.pp > 1 or c.ep > 1 or c.vpp > 1:
        return f"use_torch_fsdp2 needs PP 1, EP 1 and VPP 1, they are {c.pp}, {c.ep} and {c.vpp}"
    wrong = [key for key in ("use_distributed_optimizer", "gradient_accumulation_fusion") if a.get(key)]
    if a.get("ckpt_format") not in ("torch_dist", "torch_dcp"):
        wrong.append(f"ckpt_format {a.get('ckpt_format')}")
    if case.arch.tied_embeddings:
        wrong.append("tied embeddings")
    return f"use_torch_fsdp2 at DP {case.dp} excludes {', '.join(wrong)}" if wrong else None


@book.hard("O9", megatron("core/optimizer/optimizer_config.py:375-426"), "low-precision optimizer states need the distributed optimizer")
def _precision_aware(case: Case) -> str | None:
    a, c = case.arguments, case.config
    if a.get("use_precision_aware_optimizer"):
        if not c.use_distributed_optimizer or c.optimizer != "adam":
            wrong = [] if c.use_distributed_optimizer else ["use_distributed_optimizer true"]
            wrong += [] if c.optimizer == "adam" else [f"optimizer adam (it is {c.optimizer})"]
            return f"use_precision_aware_optimizer at DP {case.dp} needs {' and '.join(wrong)}"
        return None
    low = [
        key for key in ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype") if a.get(key) not in (None, "fp32")
    ]
    return f"{len(low)} optimizer dtypes below fp32 need use_precision_aware_optimizer true: {', '.join(low)}" if low else None


@book.hard("O14", megatron("training/arguments.py:1422-1431"), "Muon excludes sharded optimizers")
def _muon(case: Case) -> str | None:
    """dist_muon shards by layers on its own: it takes the overlaps, which plain muon refuses, but neither of the other shardings."""
    c, a = case.config, case.arguments
    if c.optimizer != "muon":
        return None
    keys = ["use_distributed_optimizer", "use_torch_fsdp2"]
    keys += [] if a.get("optimizer") == "dist_muon" else ["overlap_grad_reduce", "overlap_param_gather"]
    wrong = [f"{key} false" for key in keys if getattr(c, key)]
    wrong += ["ckpt_format torch or torch_dist"] if a.get("ckpt_format") not in (None, "torch", "torch_dist") else []
    return f"optimizer {a.get('optimizer')} at DP {case.dp} needs {', '.join(wrong)}" if wrong else None


@book.hard("G8", megatron("training/arguments.py:1310-1316"), "deterministic mode excludes flash attention, the fused loss and autotuning")
def _deterministic(case: Case) -> str | None:
    """Turbo's autotuning sets an environment variable that Primus's own check of the mode refuses (G9)."""
    if not case.arguments.get("deterministic_mode"):
        return None
    wrong = [key for key in ("use_flash_attn", "cross_entropy_loss_fusion", "use_turbo_autotune") if case.arguments.get(key)]
    if wrong:
        return f"deterministic_mode excludes {len(wrong)} keys that are true: {', '.join(wrong)} (vocabulary {case.arch.vocab_size})"
    return None
