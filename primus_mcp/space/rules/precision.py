"""Rules on FP8: formats, recipes, GPUs and the widths that quantised GEMMs take."""

from __future__ import annotations

from primus_mcp.space.rules.base import Case, RuleBook, engine, megatron, primus, turbo
from primus_mcp.units import TFLOPS

book = RuleBook()
_VALIDATION = "backends/megatron/patches/args/rocm_arg_validation.py"
FP8_WIDTH = 16
FP8_ROWS = 8
MXFP8_WIDTH = 32


@book.hard("F2", megatron("training/arguments.py:886"), "fp8 and fp4 exclude each other")
def _one_format(case: Case) -> str | None:
    if case.arguments.get("fp8") and case.arguments.get("fp4"):
        return f"fp8 {case.arguments['fp8']} and fp4 {case.arguments['fp4']} exclude each other, 1 is allowed"
    return None


@book.hard("F3", megatron("training/arguments.py:881,844"), "fp8_param_gather needs fp8 and a sharded optimizer")
def _param_gather(case: Case) -> str | None:
    c = case.config
    if case.arguments.get("fp8_param_gather") and (c.fp8 is None or not (c.use_distributed_optimizer or c.use_torch_fsdp2)):
        return f"fp8_param_gather at DP {case.dp} needs fp8 (it is {c.fp8}) and use_distributed_optimizer true"
    return None


@book.hard("F8", primus(_VALIDATION + ":143-148"), "Turbo GEMM takes no delayed scaling")
def _turbo_recipe(case: Case) -> str | None:
    c = case.config
    if c.turbo_gemm and c.fp8 is not None and c.fp8_recipe == "delayed":
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
            widths.append(("expert FFN / ETP", arch.experts.expert_ffn_hidden_size // c.etp))
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


@book.hard("F13", engine("tensor/mxfp8_tensor.py:124-133"), "mxfp8 linears: both dims are multiples of 32")
def _mxfp8_shapes(case: Case) -> str | None:
    c = case.config
    if c.fp8 is None or c.fp8_recipe != "mxfp8":
        return None
    for name, width in linear_widths(case):
        if width % MXFP8_WIDTH:
            return f"mxfp8 at TP {c.tp}: {name} {width} is not a multiple of {MXFP8_WIDTH}"
    return None


@book.hard("F18", primus(_VALIDATION + ":100-108,216"), "unpadded Turbo grouped GEMM excludes router padding")
def _unpadded(case: Case) -> str | None:
    c = case.config
    if case.arguments.get("turbo_grouped_gemm_without_padding") and c.fp8 is not None and c.sync_free_stage >= 1:
        return f"turbo_grouped_gemm_without_padding excludes fp8 {c.fp8} with sync_free_stage {c.sync_free_stage}"
    return None


@book.policy("mla-tensorwise", "with MLA, fp8 takes the tensorwise recipe")
def _mla_recipe(case: Case) -> str | None:
    c = case.config
    if case.trial.fp8 in ("delayed", "mxfp8") and case.arch.latent_attention is not None:
        rank = case.arch.latent_attention.kv_lora_rank
        return f"fp8 {case.trial.fp8} ({c.fp8_recipe}) on latent attention (KV rank {rank}): only the tensorwise recipe; use hybrid or e4m3"
    return None
