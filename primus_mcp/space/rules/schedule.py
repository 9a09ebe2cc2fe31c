"""Rules on pipeline schedules: virtual stages, micro-batches and what each runtime needs.

No rule of their own: gathers aligned over stages in the zero-bubble runtime (Z3; they need the overlap that Z2 refuses), attention
residuals over stages (L23; the model is refused before).
"""

from __future__ import annotations

from primus_mcp.inputs.training import V_SCHEDULES
from primus_mcp.space.knobs import schedule_text
from primus_mcp.space.rules.base import Case, RuleBook, megatron, primus

book = RuleBook()
_LAUNCHER = "backends/megatron/core/pipeline_parallel/primuspipe/pipeline_launcher.py"
_ALGORITHMS = "core/pipeline_parallel/scheduler/algorithms/"
_RUNTIME = "backends/megatron/core/pipeline_parallel/zerobubble/runtime.py"


@book.hard("B4", megatron("core/pipeline_parallel/schedules.py:977"), "interleaving: PP <= group size <= micro-batches")
def _group_size(case: Case) -> str | None:
    c, m = case.config, case.micro_batches
    if c.vpp == 1 or c.schedule != "interleaved" or case.patched or case.zero_bubble_runtime or not m:
        return None
    group = c.microbatch_group_size or c.pp
    if not c.pp <= group <= m:
        return (
            f"interleaving needs PP {c.pp} <= micro-batch group {group} <= micro-batches {m} (GBS {c.gbs} / (MBS {c.mbs} x DP {case.dp}))"
        )
    return None


@book.hard("B5", megatron("core/pipeline_parallel/schedules.py:989"), "interleaving: micro-batches fill whole groups")
def _groups_fill(case: Case) -> str | None:
    c, m = case.config, case.micro_batches
    if c.vpp == 1 or c.schedule != "interleaved" or case.patched or case.zero_bubble_runtime or not m:
        return None
    group = c.microbatch_group_size or c.pp
    if group <= m and 0 < m % group < c.pp:
        return f"interleaving needs micro-batches {m} that divide into groups of {group}, or leave at least PP {c.pp}; {m % group} are left"
    return None


@book.policy("interleave-groups", "interleaving: micro-batches are a multiple of PP")
def _interleave_groups(case: Case) -> str | None:
    c, m = case.config, case.micro_batches
    if c.vpp > 1 and c.schedule == "interleaved" and c.microbatch_group_size is None and m % c.pp:
        return f"interleaving needs micro-batches {m} that are a multiple of PP {c.pp}"
    return None


@book.hard("S2", primus(_LAUNCHER + ":62"), "single-stage schedules need VPP 1")
def _single_stage(case: Case) -> str | None:
    c = case.config
    if (c.schedule in ("zero-bubble", "zero-bubble-heuristic") or (case.patched and c.schedule == "1f1b")) and c.vpp != 1:
        return f"schedule {schedule_text(c.schedule)} needs VPP 1, VPP is {c.vpp} (pp_schedule auto runs at any VPP)"
    return None


@book.hard("S3", primus(_LAUNCHER + ":64"), "V schedules need VPP 2")
def _v_order(case: Case) -> str | None:
    c = case.config
    if c.schedule in V_SCHEDULES and c.vpp != 2:
        return f"schedule {schedule_text(c.schedule)} needs VPP 2, VPP is {c.vpp} (pp_schedule auto runs at any VPP)"
    return None


@book.hard("S4", primus(_ALGORITHMS + "interleaved_1f1b.py:33"), "pp_algorithm 1f1b-interleaved needs VPP > 1")
def _interleaved_virtual(case: Case) -> str | None:
    if case.patched and case.arguments.get("pp_algorithm") == "1f1b-interleaved" and case.config.vpp == 1:
        return "pp_algorithm 1f1b-interleaved needs VPP > 1, VPP is 1"
    return None


@book.hard("S5", primus(_ALGORITHMS + "basic_1f1b.py:45"), "Primus 1f1b: micro-batches >= PP - 1")
def _enough_for_1f1b(case: Case) -> str | None:
    c, m = case.config, case.micro_batches
    if case.patched and c.schedule == "1f1b" and 0 < m < c.pp - 1:
        return f"pp_algorithm 1f1b needs micro-batches >= PP - 1 = {c.pp - 1}, there are {m}"
    return None


@book.hard("S6", primus(_ALGORITHMS + "interleaved_1f1b.py:110"), "Primus 1f1b-interleaved: micro-batches a multiple of PP, >= 2 PP")
def _enough_for_interleaved(case: Case) -> str | None:
    c, m = case.config, case.micro_batches
    if case.patched and c.schedule == "interleaved" and m and (m % c.pp or (c.pp > 2 and m < 2 * c.pp)):
        return f"pp_algorithm 1f1b-interleaved needs micro-batches that are a multiple of PP {c.pp} and >= {2 * c.pp}, there are {m}"
    return None


@book.hard("S7", primus(_ALGORITHMS + "zbv_formatted.py:27"), "zbv-formatted: micro-batches >= 2 PP - 1")
def _enough_for_zbv(case: Case) -> str | None:
    c, m = case.config, case.micro_batches
    if case.patched and c.schedule == "zbv-formatted" and 0 < m < 2 * c.pp - 1:
        return f"zbv-formatted needs micro-batches >= 2 x PP - 1 = {2 * c.pp - 1}, there are {m}"
    return None


@book.hard("S9", primus(_LAUNCHER + ":209"), "Primus's pipeline cannot evaluate")
def _no_evaluation(case: Case) -> str | None:
    iterations = case.arguments.get("eval_iters") or 0
    return f"patch_primus_pipeline needs eval_iters 0, it is {iterations}" if case.patched and iterations else None


@book.hard("S10", primus(_LAUNCHER + ":269,321"), "Primus's pipeline loses data-parallel overlap")
def _no_overlap(case: Case) -> str | None:
    c = case.config
    if case.patched and (c.overlap_grad_reduce or c.overlap_param_gather):
        return (
            f"schedule {schedule_text(c.schedule)} at PP {c.pp} needs overlap_grad_reduce and overlap_param_gather false, they are"
            f" {str(c.overlap_grad_reduce).lower()} and {str(c.overlap_param_gather).lower()}"
        )
    return None


@book.hard("S12", primus("backends/megatron/core/extensions/te_wgrad_store.py:105"), "patched pipelines need fused gradient accumulation")
def _fused_accumulation(case: Case) -> str | None:
    if (case.patched or case.zero_bubble_runtime) and not case.config.gradient_accumulation_fusion:
        what = f"schedule {schedule_text(case.config.schedule)} at PP {case.config.pp}"
        return f"{what} loses weight gradients without gradient_accumulation_fusion true"
    return None


@book.hard("S11", primus("backends/megatron/core/extensions/primus_turbo.py:401-420"), "split backward: no FP8 in Turbo GEMMs")
def _no_turbo_fp8(case: Case) -> str | None:
    c = case.config
    if c.splits_weight_gradient and c.pp > 1 and c.turbo_gemm and c.fp8 is not None:
        return f"schedule {schedule_text(c.schedule)} at PP {c.pp} with use_turbo_gemm cannot run fp8 {c.fp8}"
    return None


@book.hard("S13", primus("backends/megatron/core/extensions/te_wgrad_store.py:39"), "patched pipelines: tp_comm_bulk_wgrad off")
def _no_bulk_wgrad(case: Case) -> str | None:
    if (case.patched or case.zero_bubble_runtime) and case.config.tp_comm_overlap and case.arguments.get("tp_comm_bulk_wgrad"):
        return f"tp_comm_overlap at PP {case.config.pp} with schedule {schedule_text(case.config.schedule)} needs tp_comm_bulk_wgrad false"
    return None


@book.hard("Z1-runtime", primus(_RUNTIME + ":1540"), "the zero-bubble runtime needs PP > 1")
def _zero_bubble_depth(case: Case) -> str | None:
    return f"patch_zero_bubble needs PP > 1, PP is {case.config.pp}" if case.zero_bubble_runtime and case.config.pp == 1 else None


@book.hard(
    "Z9",
    primus("backends/megatron/core/pipeline_parallel/zerobubble/scheduler/group_interleaved_1f1b.py:397-401"),
    "its interleaving recomputes no layers",
)
def _interleaved_recompute(case: Case) -> str | None:
    """It recomputes whole chunks, by a recompute_method that Megatron's own check refuses."""
    a, vpp = case.arguments, case.config.vpp
    if not case.zero_bubble_runtime or vpp == 1 or a.get("enable_zero_bubble") or a.get("zero_bubble_v_schedule"):
        return None
    if a.get("recompute_granularity") == "full":
        return f"the zero-bubble runtime's interleaving at VPP {vpp} cannot recompute layers; set recompute_granularity selective or null"
    return None


@book.hard("Z2", primus(_RUNTIME + ":1082"), "zero-bubble runtime: no data-parallel overlap")
def _zero_bubble_overlap(case: Case) -> str | None:
    c = case.config
    if case.zero_bubble_runtime and (c.overlap_grad_reduce or c.overlap_param_gather):
        return f"patch_zero_bubble at PP {c.pp} needs overlap_grad_reduce and overlap_param_gather false"
    return None


@book.hard("Z4", primus(_RUNTIME + ":1103-1128"), "zero-bubble runtime: CP 1")
def _zero_bubble_cp(case: Case) -> str | None:
    return f"patch_zero_bubble needs CP 1, CP is {case.config.cp}" if case.zero_bubble_runtime and case.config.cp > 1 else None


@book.hard("Z5", primus(_RUNTIME + ":1732,1806-1812"), "zero-bubble runtime: virtual stages need a V schedule")
def _zero_bubble_virtual(case: Case) -> str | None:
    a, vpp = case.arguments, case.config.vpp
    if not case.zero_bubble_runtime:
        return None
    v_order = a.get("zero_bubble_v_schedule") or a.get("enable_1f1b_v")
    if a.get("enable_zero_bubble") and vpp > 1 and not v_order:
        return f"enable_zero_bubble with VPP {vpp} needs zero_bubble_v_schedule true; set pp_schedule"
    if not a.get("enable_zero_bubble") and vpp > 1 and not a.get("interleave_group_size"):
        return f"the zero-bubble runtime's interleaving at VPP {vpp} needs interleave_group_size >= 1"
    return None


@book.hard("Z10", primus("backends/megatron/data_loader_store.py:54"), "zero-bubble runtime: no attention mask from the loader")
def _zero_bubble_mask(case: Case) -> str | None:
    if case.zero_bubble_runtime and case.arguments.get("create_attention_mask_in_dataloader") is not False:
        return f"patch_zero_bubble at PP {case.config.pp} needs create_attention_mask_in_dataloader false"
    return None


@book.hard("E13", megatron("core/transformer/transformer_config.py:2028-2082"), "overlapped expert all-to-all")
def _overlapped_exchange(case: Case) -> str | None:
    """Full recompute counts with 0 layers too, as the trainer reads the arguments."""
    c, a, mtp = case.config, case.arguments, case.arch.mtp_num_layers
    if not a.get("overlap_moe_expert_parallel_comm"):
        return None
    wrong = [] if c.ep > 1 else ["EP > 1"]
    wrong += ["VPP > 1 under PP > 1"] if c.pp > 1 and c.vpp == 1 else []
    wrong += ["an alltoall or DeepEP dispatcher"] if case.arch.is_moe and c.dispatcher == "allgather" else []
    wrong += ["no full recompute"] if a.get("recompute_granularity") == "full" else []
    wrong += ["moe_shared_expert_overlap false"] if a.get("moe_shared_expert_overlap") else []
    wrong += ["at most 1 MTP layer"] if mtp > 1 else ["PP > 1 with an MTP layer"] if mtp == 1 and c.pp == 1 else []
    if not wrong:
        return None
    return f"overlap_moe_expert_parallel_comm at EP {c.ep}, PP {c.pp} and VPP {c.vpp} needs {', '.join(wrong)}"


@book.policy(
    "split-fp8",
    "split backward in FP8 is announced by Primus, not supported yet",
    primus("backends/megatron/core/pipeline_parallel/zerobubble/README.md:35"),
)
def _no_fp8(case: Case) -> str | None:
    c = case.config
    if c.splits_weight_gradient and c.pp > 1 and c.fp8 is not None:
        return (
            f"schedule {schedule_text(c.schedule)} at PP {c.pp} with fp8 {c.fp8}: Primus lists FP8 as not supported yet;"
            " set fp8 none or pp_schedule auto"
        )
    return None


@book.policy(
    "S17", "split backward excludes recompute: most of the saved memory is lost", primus("core/projection/config_validation.py:99,133")
)
def _no_recompute(case: Case) -> str | None:
    c = case.config
    if c.splits_weight_gradient and c.pp > 1 and c.recompute.granularity != "none":
        what = f"schedule {schedule_text(c.schedule)} at PP {c.pp}"
        return f"{what} excludes recompute {c.recompute.granularity}; set recompute_granularity none"
    return None
