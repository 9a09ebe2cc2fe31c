"""Rules on routing and on the expert layers' own switches; most of them no trial moves."""

from __future__ import annotations

from primus_mcp.inputs.override_findings import REMOVED
from primus_mcp.inputs.trainer_arguments import turbo_flag
from primus_mcp.space.rules.base import Case, RuleBook, megatron, primus

book = RuleBook()
CAPACITY_BALANCING = ("aux_loss", "seq_aux_loss", "global_aux_loss", "none")
"""Load balancing that may drop tokens."""
_CONFIG = "core/transformer/transformer_config.py"
_VALIDATION = "backends/megatron/patches/args/rocm_arg_validation.py"


@book.hard("E2", megatron(_CONFIG + ":1171-1181"), "an expert width needs experts")
def _width_without_experts(case: Case) -> str | None:
    a = case.arguments
    width = a.get("moe_ffn_hidden_size")
    if width is None or a.get("num_experts"):
        return None
    return f"moe_ffn_hidden_size {width} needs num_experts, the model has 0 experts; set it to null"


@book.hard("E4", megatron("core/transformer/moe/token_dispatcher.py:1359-1386"), "the flex dispatcher excludes shared-expert overlap")
def _flex_overlap(case: Case) -> str | None:
    a, experts = case.arguments, case.arch.experts
    if experts is None or a.get("moe_token_dispatcher_type") != "flex" or a.get("use_turbo_deepep"):
        return None
    if a.get("moe_shared_expert_overlap") and experts.shared_expert_ffn_hidden_size:
        return f"moe_token_dispatcher_type flex at EP {case.config.ep} needs moe_shared_expert_overlap false, it is true"
    return None


@book.hard("E5", megatron(_CONFIG + ":1183"), "moe_enable_deepep needs the flex dispatcher")
def _stock_deepep(case: Case) -> str | None:
    """Turbo's DeepEP sets that dispatcher itself."""
    a, c = case.arguments, case.config
    if a.get("use_turbo_deepep") and a.get("enable_primus_turbo") and c.tp == 1:
        return None
    if a.get("moe_enable_deepep") and a.get("moe_token_dispatcher_type") != "flex":
        kind = a.get("moe_token_dispatcher_type")
        return f"moe_enable_deepep at EP {case.config.ep} needs moe_token_dispatcher_type flex, it is {kind}"
    return None


@book.hard("E14", megatron(_CONFIG + ":2085"), "delayed weight gradients need the overlapped expert all-to-all")
def _delayed(case: Case) -> str | None:
    a, ep = case.arguments, case.config.ep
    if not a.get("delay_wgrad_compute"):
        return None
    if not a.get("overlap_moe_expert_parallel_comm"):
        return f"delay_wgrad_compute at EP {ep} needs overlap_moe_expert_parallel_comm true, it is false"
    if a.get("patch_moe_overlap"):
        return f"delay_wgrad_compute at EP {ep} needs patch_moe_overlap false: Primus's overlap delays weight gradients itself"
    return None


@book.hard("E18", primus(_VALIDATION + ":191"), "keys that Primus took out are not set; one grouped GEMM is")
def _removed(case: Case) -> str | None:
    used = {key: instead for key, instead in REMOVED.items() if case.arguments.get(key)}
    named = ", ".join(f"{key} (write {instead})" for key, instead in used.items())
    if used:
        return f"{len(used)} keys that Primus took out are set: {named}"
    if case.arguments.get("use_turbo_grouped_gemm") and case.arguments.get("moe_use_legacy_grouped_gemm"):
        return "use_turbo_grouped_gemm and moe_use_legacy_grouped_gemm are both true, 1 of the 2 is allowed"
    return None


@book.hard("E21", megatron(_CONFIG + ":1225-1255"), "a capacity factor needs balancing by a loss; padding needs a factor")
def _capacity(case: Case) -> str | None:
    if not case.arch.is_moe:
        return None
    a = case.arguments
    factor = a.get("moe_expert_capacity_factor")
    padded = a.get("moe_pad_expert_input_to_capacity")
    if padded and (factor is None or factor < 0):
        written = "null (0 set)" if factor is None else factor
        return f"moe_pad_expert_input_to_capacity true needs moe_expert_capacity_factor >= 0, it is {written}"
    if factor is None:
        return None
    balancing = a.get("moe_router_load_balancing_type")
    kinds = balancing if isinstance(balancing, list) else [balancing]
    wrong = [str(kind) for kind in kinds if kind is not None and kind not in CAPACITY_BALANCING]
    if wrong:
        return (
            f"moe_expert_capacity_factor {factor} needs moe_router_load_balancing_type of {', '.join(CAPACITY_BALANCING)},"
            f" it is {', '.join(wrong)}"
        )
    return None


def _single(value: object) -> object:
    """The trainer takes a list of one as its entry."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


@book.hard("E22", megatron(_CONFIG + ":1217"), "each kind of load balancing has its coefficient; sinkhorn has none")
def _coefficients(case: Case) -> str | None:
    if not case.arch.is_moe:
        return None
    kinds, coefficient = (_single(case.arguments.get(key)) for key in ("moe_router_load_balancing_type", "moe_aux_loss_coeff"))
    if isinstance(kinds, list):
        given = len(coefficient) if isinstance(coefficient, list) else 0
        if given != len(kinds):
            return f"moe_router_load_balancing_type lists {len(kinds)} kinds, moe_aux_loss_coeff {given}; write a list of {len(kinds)}"
    elif kinds == "sinkhorn" and coefficient:
        return f"moe_router_load_balancing_type sinkhorn needs moe_aux_loss_coeff 0, it is {coefficient}"
    return None


@book.hard("E23", megatron(_CONFIG + ":1809"), "routing to 1 expert by softmax is scored before the choice")
def _top_one(case: Case) -> str | None:
    a = case.arguments
    if not case.arch.is_moe or a.get("moe_router_topk") != 1 or a.get("moe_router_score_function") != "softmax":
        return None
    if a.get("moe_router_pre_softmax") or a.get("moe_router_load_balancing_type") == "sinkhorn":
        return None
    return "moe_router_topk 1 with moe_router_score_function softmax needs moe_router_pre_softmax true, it is false"


@book.hard("E24", megatron(_CONFIG + ":1819-1837"), "groups of experts are even, and as many as are chosen")
def _groups(case: Case) -> str | None:
    experts, a = case.arch.experts, case.arguments
    chosen, groups = a.get("moe_router_group_topk"), a.get("moe_router_num_groups")
    if experts is None or not case.arch.is_moe or not chosen:
        return None
    if not groups:
        return f"moe_router_group_topk {chosen} needs moe_router_num_groups, it is null"
    if experts.num_experts % groups:
        return f"{experts.num_experts} experts are not a multiple of moe_router_num_groups {groups}"
    return f"moe_router_group_topk {chosen} exceeds moe_router_num_groups {groups}" if chosen > groups else None


@book.hard("E25", megatron("core/transformer/moe/moe_utils.py:599"), "the chosen groups hold as many experts as are chosen")
def _group_choice(case: Case) -> str | None:
    """A group is scored by its best top k / chosen groups; a choice that is larger than its groups takes experts that are masked out."""
    experts, a = case.arch.experts, case.arguments
    chosen, groups, top = a.get("moe_router_group_topk"), a.get("moe_router_num_groups"), a.get("moe_router_topk") or 0
    if experts is None or not case.arch.is_moe or not chosen or not groups or experts.num_experts % groups or chosen > groups:
        return None
    held = experts.num_experts // groups
    if top < chosen:
        return f"moe_router_topk {top} is less than moe_router_group_topk {chosen}: a group is scored by none of its experts"
    if top > chosen * held:
        return f"moe_router_topk {top} exceeds the {chosen} x {held} experts of moe_router_group_topk {chosen}; choose more groups"
    return None


@book.hard("E26", megatron(_CONFIG + ":1769"), "an expert bias needs sigmoid scores")
def _bias(case: Case) -> str | None:
    """Judged where a score function is written: a model read from its own configuration names none."""
    experts, score = case.arch.experts, case.arguments.get("moe_router_score_function")
    if experts is None or not case.arch.is_moe or not case.arguments.get("moe_router_enable_expert_bias"):
        return None
    if score is not None and score != "sigmoid":
        count = experts.num_experts
        return f"moe_router_enable_expert_bias ({count} experts) needs moe_router_score_function sigmoid, it is {score}"
    return None


@book.hard("E29", megatron("core/transformer/moe/experts.py:171"), "grouped experts with biases exclude bias_dropout_fusion")
def _fused_dropout(case: Case) -> str | None:
    if case.arch.is_moe and case.config.grouped_gemm == "te" and case.arch.linear_bias and case.arguments.get("bias_dropout_fusion"):
        layers = sum(map(bool, case.arch.moe_layers))
        return f"moe_grouped_gemm with add_bias_linear in {layers} layers needs bias_dropout_fusion false, it is true"
    return None


@book.hard(
    "E30", primus("backends/megatron/core/transformer/experts.py:132-153"), "Turbo's fused expert activation: plain gated SiLU or GELU"
)
def _fused_activation(case: Case) -> str | None:
    a, c = case.arguments, case.config
    if not case.arch.is_moe or c.grouped_gemm != "turbo":
        return None
    if c.sync_free_stage != 3 and not turbo_flag(a, "use_turbo_fused_act_with_probs"):
        return None
    wrong = [f"{key} {a[key]}" for key in ("activation_func_clamp_value", "glu_linear_offset") if a.get(key)]
    wrong += ["activation_func_fp8_input_store true"] if a.get("activation_func_fp8_input_store") else []
    wrong += [] if case.arch.gated_mlp else ["experts without a gate (swiglu false)"]
    if wrong:
        return f"use_turbo_fused_act_with_probs (sync_free_stage {c.sync_free_stage}) excludes {', '.join(wrong)}"
    return None
