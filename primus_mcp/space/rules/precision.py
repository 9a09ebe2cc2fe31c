"""Rules on FP8: formats, recipes, GPUs and the widths that quantised GEMMs take."""

from __future__ import annotations

from primus_mcp.space.rules.base import Case, RuleBook, engine, megatron, primus, turbo
from primus_mcp.space.rules.moe import pads_router
from primus_mcp.units import TFLOPS

book = RuleBook()
_VALIDATION = "backends/megatron/patches/args/rocm_arg_validation.py"
FP8_WIDTH = 16
FP8_ROWS = 8
MXFP8_WIDTH = 32
MXFP8_DEPTH_AMD = 128
EXPERT_WIDTH = "expert FFN / ETP"
FP4_RECIPES = ("nvfp4", "mxfp4")


@book.hard("F2", megatron("training/arguments.py:886"), "fp8 and fp4 exclude each other")
def _one_format(case: Case) -> str | None:
    if case.arguments.get("fp8") and case.arguments.get("fp4"):
        return f"fp8 {case.arguments['fp8']} and fp4 {case.arguments['fp4']} exclude each other, 1 is allowed"
    return None


@book.hard("F3", megatron("training/arguments.py:881,844"), "fp8_param_gather needs fp8 and a sharded optimizer")
def _param_gather(case: Case) -> str | None:
    """Under FSDP2 the trainer turns it off by itself."""
    c = case.config
    if case.arguments.get("fp8_param_gather") and not c.use_torch_fsdp2 and (c.fp8 is None or not c.use_distributed_optimizer):
        return f"fp8_param_gather at DP {case.dp} needs fp8 (it is {c.fp8}) and use_distributed_optimizer true"
    return None


@book.hard("F4", megatron("training/arguments.py:890-895"), "weights kept in fp4 need fp4")
def _fp4_weights(case: Case) -> str | None:
    if case.arguments.get("fp4_param") and not case.arguments.get("fp4"):
        return f"fp4_param true needs fp4, it is {case.arguments.get('fp4')} (fp8 is {case.config.fp8}); set fp4_param false"
    return None


@book.hard("F5", primus("backends/megatron/core/fp4_utils.py:249-274"), "fp4_recipe is one that Primus has")
def _fp4_recipe(case: Case) -> str | None:
    fp4, recipe = case.arguments.get("fp4"), case.arguments.get("fp4_recipe")
    if fp4 and recipe not in (None, *FP4_RECIPES):
        return f"fp4 {fp4}: fp4_recipe {recipe} is none of the {len(FP4_RECIPES)} that Primus has: {', '.join(FP4_RECIPES)}"
    return None


@book.hard(
    "F6", megatron("core/transformer/transformer_config.py:1083-1112"), "first and last layers in BF16: no delayed scaling, one stage"
)
def _bf16_ends(case: Case) -> str | None:
    c, a = case.config, case.arguments
    if c.fp8 is None or not a.get("first_last_layers_bf16"):
        return None
    if c.fp8_recipe == "delayed":
        return f"first_last_layers_bf16 with fp8 {c.fp8} needs a recipe other than delayed; use tensorwise, blockwise or mxfp8"
    most = case.arch.num_layers // c.pp
    for key in ("num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16"):
        layers = a.get(key)
        if layers is not None and not 0 <= layers <= most:
            return f"{key} {layers} exceeds the {most} layers of a stage ({case.arch.num_layers} layers / PP {c.pp})"
    return None


@book.hard("F9", primus(_VALIDATION + ":151-172"), "Turbo GEMM in fp4 takes the mxfp4 recipe")
def _turbo_fp4(case: Case) -> str | None:
    a, recipe = case.arguments, case.arguments.get("fp4_recipe")
    if not a.get("fp4") or not a.get("use_turbo_gemm"):
        return None
    if recipe != "mxfp4":
        return f"use_turbo_gemm at TP {case.config.tp} with fp4 {a['fp4']} needs fp4_recipe mxfp4, it is {recipe or 'nvfp4'}"
    if a.get("fp4_use_native_te_autocast"):
        return f"use_turbo_gemm at TP {case.config.tp} with fp4 {a['fp4']} needs fp4_use_native_te_autocast false, it is true"
    return None


@book.hard("F14", turbo("ops/grouped_gemm_fp4.py:135"), "Turbo grouped GEMM in mxfp4: widths are multiples of 32")
def _grouped_fp4(case: Case) -> str | None:
    a, c, experts = case.arguments, case.config, case.arch.experts
    if experts is None or not a.get("fp4") or a.get("fp4_recipe") != "mxfp4" or c.grouped_gemm != "turbo" or not case.arch.is_moe:
        return None
    for name, width in (("hidden size", case.arch.hidden_size), ("expert FFN width", experts.expert_ffn_hidden_size)):
        if width % MXFP8_WIDTH:
            return f"mxfp4 with use_turbo_grouped_gemm: {name} {width} is not a multiple of {MXFP8_WIDTH}"
    return None


@book.hard("F20", megatron("core/distributed/distributed_data_parallel_config.py:169"), "reused gradient buffers need gathered FP8 weights")
def _reused_buffer(case: Case) -> str | None:
    """FSDP2 turns gathered FP8 weights off (F3)."""
    gathered = case.arguments.get("fp8_param_gather") and not case.config.use_torch_fsdp2
    if case.arguments.get("reuse_grad_buf_for_mxfp8_param_ag") and not gathered:
        return f"reuse_grad_buf_for_mxfp8_param_ag (fp8 is {case.config.fp8}) needs fp8_param_gather true, it is false"
    return None


@book.hard("F8", primus(_VALIDATION + ":143-148"), "Turbo GEMM takes no delayed scaling")
def _turbo_recipe(case: Case) -> str | None:
    """Asked of use_turbo_gemm alone, also where enable_primus_turbo is false."""
    c = case.config
    if case.arguments.get("use_turbo_gemm") and c.fp8 is not None and c.fp8_recipe == "delayed":
        return f"use_turbo_gemm at TP {c.tp} cannot run fp8_recipe delayed; use tensorwise, blockwise or mxfp8"
    return None


@book.hard("fp8-gpu", turbo("core/low_precision.py:35-72"), "fp8 needs a GPU with FP8 matrix cores")
def _fp8_gpu(case: Case) -> str | None:
    gpu = case.cluster.gpu
    if case.config.fp8 is not None and "fp8" not in gpu.peak_flops:
        return (
            f"fp8 {case.config.fp8} needs FP8 matrix cores (compute capability 8.9 or gfx942, and newer); {gpu.name} ({gpu.arch}) has"
            f" a peak of {gpu.peak_flops['bf16'] / TFLOPS:,.0f} TFLOP/s in BF16 and none in FP8; set fp8 none"
        )
    return None


@book.hard("F11", turbo("core/low_precision.py:35-72"), "mxfp8 needs MI350 or MI355")
def _mxfp8_gpu(case: Case) -> str | None:
    gpu = case.cluster.gpu
    if case.config.fp8 is not None and case.config.fp8_recipe == "mxfp8" and not gpu.supports_mxfp8:
        return f"mxfp8 needs a GPU with 32-element block scales (MI350X, MI355X), the target is {gpu.name} ({gpu.arch})"
    return None


@book.hard(
    "F21",
    "ROCm/TransformerEngine@030b7921:transformer_engine/pytorch/quantization.py:103-105",
    "on AMD GPUs blockwise FP8 is Primus-Turbo's alone: TransformerEngine has none there",
)
def _blockwise_amd(case: Case) -> str | None:
    """Primus lifts that refusal where it puts Primus-Turbo in, so at TP 1 (backends/megatron/patches/turbo/fp8_patches.py); linears and
    experts that stay TransformerEngine's have no such kernels all the same.
    """
    c = case.config
    if case.cluster.gpu.vendor != "amd" or c.fp8 is None or c.fp8_recipe != "blockwise":
        return None
    keys = ["enable_primus_turbo", "use_turbo_gemm"]
    keys += ["use_turbo_grouped_gemm"] if case.arch.is_moe and c.grouped_gemm != "legacy" else []
    missing = ["TP 1"] if c.tp > 1 else [f"{key} true" for key in keys if not case.arguments.get(key)]
    if not missing:
        return None
    return (
        f"fp8 {c.fp8} with fp8_recipe blockwise at TP {c.tp} on {case.cluster.gpu.name} needs {' and '.join(missing)}; set fp8 delayed or"
        " none, or fp8_recipe tensorwise"
    )


def linear_widths(case: Case) -> list[tuple[str, int]]:
    """Input and output widths of the FP8 linears on one TP rank (weights [out, in], elements)."""
    arch, c = case.arch, case.config
    widths = [("hidden size", arch.hidden_size)]
    if arch.latent_attention is not None:
        mla = arch.latent_attention
        widths += [("latent KV rank + rotary", mla.kv_lora_rank + mla.qk_rope_head_dim), ("latent KV rank", mla.kv_lora_rank)]
        widths += [("latent query rank", mla.q_lora_rank)] if mla.q_lora_rank else []
        widths += [("attention output / TP", arch.num_attention_heads * mla.v_head_dim // c.tp)]
        widths += [("query / TP", arch.num_attention_heads * mla.qk_head_dim // c.tp)]
    else:
        heads = arch.num_attention_heads // c.tp + 2 * max(1, arch.num_query_groups // c.tp)
        widths += [("QKV / TP", heads * arch.head_dim), ("attention output / TP", arch.num_attention_heads // c.tp * arch.head_dim)]
    if not (arch.is_moe and all(arch.moe_layers)):
        widths.append(("FFN / TP", arch.ffn_hidden_size // c.tp))
    if arch.experts is not None and arch.is_moe:
        if c.grouped_gemm != "legacy":
            widths.append((EXPERT_WIDTH, arch.experts.expert_ffn_hidden_size // c.etp))
        if arch.experts.shared_expert_ffn_hidden_size:
            widths.append(("shared-expert FFN / TP", arch.experts.shared_expert_ffn_hidden_size // c.tp))
    return widths


@book.hard("F12", engine("utils.py:614"), "FP8 linears: widths are multiples of 16, tokens of 8")
def _fp8_shapes(case: Case) -> str | None:
    c = case.config
    if c.fp8 is None:
        return None
    for name, width in linear_widths(case):
        if width % FP8_WIDTH:
            return f"fp8 {c.fp8} at TP {c.tp}: {name} {width} is not a multiple of {FP8_WIDTH}"
    tokens = c.mbs * case.arch.seq_length // c.cp
    if tokens % FP8_ROWS:
        return f"fp8 {c.fp8}: {tokens} tokens (MBS {c.mbs} x {case.arch.seq_length} / CP {c.cp}) are not a multiple of {FP8_ROWS}"
    return None


@book.hard(
    "F13",
    engine("tensor/mxfp8_tensor.py:124-133"),
    "mxfp8 linears: both dims are multiples of 32, of 128 in TransformerEngine on AMD GPUs",
)
def _mxfp8_shapes(case: Case) -> str | None:
    """Every width is the depth of a GEMM in one direction, which ROCm's TransformerEngine takes in multiples of 128 only
    (ROCm/TransformerEngine common/gemm/rocm_gemm.cu, cublas_gemm; pull request 642 would halve that).
    """
    c = case.config
    if c.fp8 is None or c.fp8_recipe != "mxfp8":
        return None
    amd, turbo_experts = case.cluster.gpu.vendor == "amd", c.grouped_gemm == "turbo"
    for name, width in linear_widths(case):
        own = turbo_experts if name == EXPERT_WIDTH else c.turbo_gemm
        unit = MXFP8_DEPTH_AMD if amd and not own else MXFP8_WIDTH
        if width % unit:
            return f"mxfp8 at TP {c.tp}: {name} {width} is not a multiple of {unit}"
    return None


@book.hard("F18", primus(_VALIDATION + ":100-108,216"), "unpadded Turbo grouped GEMM excludes router padding")
def _unpadded(case: Case) -> str | None:
    c, a = case.config, case.arguments
    if not a.get("turbo_grouped_gemm_without_padding"):
        return None
    missing = [f"{key} true" for key in ("enable_primus_turbo", "use_turbo_grouped_gemm") if not a.get(key)]
    if missing:
        return f"turbo_grouped_gemm_without_padding at EP {c.ep} needs {' and '.join(missing)}"
    if pads_router(case):
        return (
            f"turbo_grouped_gemm_without_padding excludes padded routing: fp8 {c.fp8}, fp4 {str(c.fp4).lower()}, sync_free_stage"
            f" {c.sync_free_stage}, moe_router_padding_for_quantization {str(bool(a.get('moe_router_padding_for_quantization'))).lower()}"
        )
    return None


@book.policy("mla-tensorwise", "with MLA, fp8 takes the tensorwise recipe")
def _mla_recipe(case: Case) -> str | None:
    c = case.config
    if case.trial.fp8 in ("delayed", "mxfp8") and case.arch.latent_attention is not None:
        rank = case.arch.latent_attention.kv_lora_rank
        return f"fp8 {case.trial.fp8} ({c.fp8_recipe}) on latent attention (KV rank {rank}): only the tensorwise recipe; use hybrid or e4m3"
    return None
