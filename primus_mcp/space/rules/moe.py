"""Rules on experts: expert parallelism, dispatchers, DeepEP, sync-free stages and grouped GEMMs.

No rule: router probabilities in fp32 with Megatron's own DeepEP (E8). Its dispatcher casts them, with a warning, before it asserts.
"""

from __future__ import annotations

from primus_mcp.inputs.hardware import GpuProfile
from primus_mcp.space.knobs import schedule_text
from primus_mcp.space.rules.base import Case, RuleBook, megatron, primus, turbo
from primus_mcp.space.trainer_keys import DEEPEP_NUM_CU_LIMIT, DEEPEP_WIDE_EP

book = RuleBook()
DEEPEP_GROUPS = (2, 4, 8, 16, 24, 32, 64, 128, 144, 160)
"""Sizes of the expert group for which Primus-Turbo's DeepEP has a buffer configuration."""
DEEPEP_NODE = 8
"""Ranks that it takes to share a node."""
TURBO_ARCHS = ("gfx942", "gfx950")
"""AMD architectures that Primus-Turbo is built for."""
_VALIDATION = "backends/megatron/patches/args/rocm_arg_validation.py"


@book.hard("E1", megatron("training/arguments.py:1263"), "EP divides the experts; dense models have EP 1")
def _experts(case: Case) -> str | None:
    ep, experts = case.config.ep, case.arch.experts
    if experts is None or not case.arch.is_moe:
        return f"EP {ep} needs experts, the model has 0; use EP 1" if ep > 1 else None
    return f"{experts.num_experts} experts are not a multiple of EP {ep}" if experts.num_experts % ep else None


@book.hard("E6", megatron("core/transformer/transformer_config.py:1194"), "DeepEP excludes padding experts to capacity")
def _padding(case: Case) -> str | None:
    if case.config.dispatcher == "deepep" and case.arguments.get("moe_pad_expert_input_to_capacity"):
        return f"DeepEP at EP {case.config.ep} excludes moe_pad_expert_input_to_capacity true"
    return None


@book.hard("E7", megatron("core/transformer/transformer_config.py:1203-1215"), "shared-expert overlap needs the all-to-all dispatcher")
def _shared_overlap(case: Case) -> str | None:
    c = case.config
    if c.shared_expert_overlap and c.dispatcher != "alltoall":
        return f"moe_shared_expert_overlap at EP {c.ep} needs the alltoall dispatcher, it is {c.dispatcher}"
    return None


@book.hard("E9", primus(_VALIDATION + ":221-227"), "DeepEP needs router dtype fp32 and no shared-expert overlap")
def _deepep(case: Case) -> str | None:
    """Asked of the arguments, so of a dense model too."""
    a = case.arguments
    if not case.turbo_deepep:
        return None
    if a.get("moe_shared_expert_overlap") or a.get("moe_router_dtype") != "fp32":
        return (
            f"use_turbo_deepep at EP {case.config.ep} needs moe_router_dtype fp32 and moe_shared_expert_overlap false, they are"
            f" {a.get('moe_router_dtype')} and {str(bool(a.get('moe_shared_expert_overlap'))).lower()}"
        )
    return None


@book.hard("E10", primus(_VALIDATION + ":228-233"), f"DeepEP at EP >= {DEEPEP_WIDE_EP} uses at most {DEEPEP_NUM_CU_LIMIT} compute units")
def _deepep_units(case: Case) -> str | None:
    ep, units = case.config.ep, case.arguments.get("turbo_deepep_num_cu") or 0
    if case.turbo_deepep and ep >= DEEPEP_WIDE_EP and units > DEEPEP_NUM_CU_LIMIT:
        return f"DeepEP at EP {ep} allows turbo_deepep_num_cu <= {DEEPEP_NUM_CU_LIMIT}, it is {units}"
    return None


@book.hard("E11", turbo("deep_ep/buffer.py:266-307"), "DeepEP serves certain group sizes (ETP x EP), across nodes of 8 GPUs only")
def _deepep_group(case: Case) -> str | None:
    """The table of buffer configurations has no other sizes; ranks are told to nodes by rank // 8 (NUM_MAX_NVL_PEERS)."""
    c, node = case.config, case.cluster.gpus_per_node
    group = c.etp * c.ep
    if c.dispatcher != "deepep" or not case.arch.is_moe:
        return None
    if group == 1:
        return f"DeepEP needs ETP x EP > 1, they are {c.etp} and {c.ep}"
    if group not in DEEPEP_GROUPS:
        sizes = ", ".join(str(size) for size in DEEPEP_GROUPS)
        return f"DeepEP serves ETP x EP of {sizes}, {c.etp} x {c.ep} is {group}; set use_turbo_deepep false"
    if group > node and node != DEEPEP_NODE:
        return f"DeepEP across nodes takes {DEEPEP_NODE} GPUs for a node, here a node has {node} (ETP x EP is {group})"
    return None


@book.hard("E12", primus("backends/megatron/patches/turbo/moe_dispatcher_patches.py:28"), "DeepEP needs enable_primus_turbo")
def _deepep_enabled(case: Case) -> str | None:
    if case.arguments.get("use_turbo_deepep") and case.arch.is_moe and not case.arguments.get("enable_primus_turbo"):
        return f"use_turbo_deepep at EP {case.config.ep} is ignored without enable_primus_turbo true"
    return None


@book.hard("E17", primus("core/runtime/train_runtime.py:527-533"), "a sync-free stage >= 2 turns DeepEP on too late for the dispatcher")
def _stage_without_deepep(case: Case) -> str | None:
    """The dispatcher is exchanged before the arguments are checked, where the stage sets use_turbo_deepep: the library's own runs."""
    asked = case.trial.use_turbo_deepep is not False  # E16 refuses that
    if case.arch.is_moe and case.sync_free >= 2 and asked and not case.arguments.get("use_turbo_deepep"):
        return (
            f"turbo_sync_free_moe_stage {case.sync_free} without use_turbo_deepep true leaves the library's dispatcher in; set it to true"
        )
    return None


def turbo_left_out(gpu: GpuProfile, tp: int) -> bool:
    """Whether Primus leaves Primus-Turbo's dispatcher, layer classes and attention out at this TP (rule turbo-tp)."""
    return gpu.vendor == "amd" and tp > 1


@book.hard(
    "turbo-tp", primus("backends/megatron/patches/turbo/utils.py:42-61"), "Primus leaves Primus-Turbo out above TP 1: no DeepEP there"
)
def _turbo_tensor_parallel(case: Case) -> str | None:
    """The dispatcher, the layer classes and the attention stay the library's own, with a warning in the log (AMD GPUs)."""
    tp = case.config.tp
    if not turbo_left_out(case.cluster.gpu, tp) or not case.arch.is_moe or not case.turbo_deepep:
        return None
    asked = f"sync_free_stage {case.sync_free}" if case.sync_free >= 2 else "use_turbo_deepep true"
    return (
        f"{asked} does nothing at TP {tp}: Primus leaves Primus-Turbo out above TP 1; set use_turbo_deepep false and sync_free_stage 0 or 1"
    )


@book.hard("E15", primus(_VALIDATION + ":199-205"), "sync-free stages need Primus-Turbo, >= 2 its grouped GEMM")
def _sync_free(case: Case) -> str | None:
    """Asked of the arguments, so of a dense model too."""
    a, stage = case.arguments, case.sync_free
    if stage and not a.get("enable_primus_turbo"):
        return f"turbo_sync_free_moe_stage {stage} needs enable_primus_turbo true"
    if stage >= 2 and not a.get("use_turbo_grouped_gemm"):
        return f"turbo_sync_free_moe_stage {stage} needs use_turbo_grouped_gemm true, it is false"
    return None


@book.hard("T17", primus("backends/megatron/core/extensions/primus_turbo.py:2024,2256,2294"), "Turbo grouped GEMM needs ETP 1")
def _turbo_etp(case: Case) -> str | None:
    c = case.config
    if c.grouped_gemm == "turbo" and case.arch.is_moe and c.etp > 1:
        return f"use_turbo_grouped_gemm needs ETP 1, ETP is {c.etp} (TP {c.tp}); set expert_tensor_parallel_size 1"
    return None


@book.hard("E19", primus("backends/megatron/patches/te_patches/legacy_grouped_mlp_wgrad_patches.py:158"), "legacy grouped GEMM: bf16 only")
def _legacy(case: Case) -> str | None:
    c = case.config
    if c.grouped_gemm == "legacy" and case.arch.is_moe and (case.patched or case.zero_bubble_runtime) and c.fp8 is not None:
        return f"moe_use_legacy_grouped_gemm under schedule {schedule_text(c.schedule)} at PP {c.pp} runs bf16 only, fp8 is {c.fp8}"
    return None


def pads_router(case: Case) -> bool:
    """Whether routing is padded for quantised experts: asked for, or by a sync-free stage, which decides it by the precision (E16)."""
    a, c = case.arguments, case.config
    if case.sync_free:
        return c.fp8 is not None or c.fp4
    return bool(a.get("moe_router_padding_for_quantization") or a.get("moe_router_padding_for_fp8"))


@book.hard("F17", megatron("core/transformer/transformer_config.py:1797-1807"), "padded FP8 routing needs alltoall or DeepEP")
def _router_padding(case: Case) -> str | None:
    c = case.config
    if not case.arch.is_moe or not pads_router(case):
        return None
    stage = f" (sync_free_stage {c.sync_free_stage})" if c.sync_free_stage else ""
    if c.fp8 is None and not c.fp4:
        return f"moe_router_padding_for_quantization at EP {c.ep} needs fp8 or fp4, neither is set; set it to false"
    if c.dispatcher == "allgather":
        return f"padding the router for {c.fp8 or 'fp4'}{stage} at EP {c.ep} needs the alltoall or flex dispatcher, it is allgather"
    return None


@book.policy(
    "E27",
    "fused routing drops the expert bias",
    primus("backends/megatron/core/transformer/moe/router.py:36-43"),
)
def _expert_bias(case: Case) -> str | None:
    experts, c = case.arch.experts, case.config
    if experts is None or not experts.router_expert_bias or c.forced_balance or case.workload.baseline.fused_router:
        return None
    if c.sync_free_stage >= 1 or c.fused_router:
        return f"sync_free_stage {c.sync_free_stage} fuses the router, which then ignores the bias of {experts.num_experts} experts"
    return None


def runs_turbo(gpu: GpuProfile) -> bool:
    """Whether Primus-Turbo, or on NVIDIA what stands for it there, runs on this GPU."""
    return gpu.vendor != "amd" or gpu.arch in TURBO_ARCHS


@book.hard("turbo-gpu", "AMD-AGI/Primus-Turbo@00ec3a84:setup.py:26", "Primus-Turbo runs on gfx942 and gfx950")
def _turbo_gpu(case: Case) -> str | None:
    c, gpu = case.config, case.cluster.gpu
    if runs_turbo(gpu):
        return None
    used = {
        "use_turbo_deepep": case.arch.is_moe and c.dispatcher == "deepep",
        f"sync_free_stage {c.sync_free_stage}": case.arch.is_moe and c.sync_free_stage > 0,
        "use_turbo_grouped_gemm": case.arch.is_moe and c.grouped_gemm == "turbo",
        "use_turbo_gemm": c.turbo_gemm,
        "use_turbo_attention": c.turbo_attention,
    }
    names = [name for name, on in used.items() if on]
    if not names:
        return None
    return f"{', '.join(names)} at TP {c.tp} needs Primus-Turbo, built for {' and '.join(TURBO_ARCHS)}; {gpu.name} is {gpu.arch}"
