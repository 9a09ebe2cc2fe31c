"""Rules on attention kernels, position embeddings and fused activations."""

from __future__ import annotations

from primus_mcp.space.rules.base import Case, RuleBook, engine, megatron, primus

book = RuleBook()
NO_CONTEXT = ("unfused", "local")
"""Attention backends that know no context parallelism."""


@book.hard("C3", megatron("core/transformer/transformer_config.py:2101"), "a list of cp_comm_type has one entry a layer")
def _one_a_layer(case: Case) -> str | None:
    """A list of one is its entry, and at CP 1 nothing reads it."""
    kinds, cp = case.arguments.get("cp_comm_type"), case.config.cp
    if cp > 1 and isinstance(kinds, list) and len(kinds) not in (1, case.arch.num_layers):
        return f"cp_comm_type has {len(kinds)} entries at CP {cp}, the model has {case.arch.num_layers} layers; write one, or one a layer"
    return None


@book.hard(
    "C7", engine("attention/dot_product_attention/context_parallel.py:5062-5067"), "a softmax with a sink or offset under CP needs a2a"
)
def _softmax(case: Case) -> str | None:
    """On ROCm only the unfused attention of TransformerEngine knows one, which takes neither CP nor the name of another backend
    (pytorch/attention/dot_product_attention/utils.py, common/fused_attn_rocm).
    """
    c, kind, backend = case.config, case.arguments.get("softmax_type"), case.arguments.get("attention_backend")
    if kind in (None, "vanilla") or c.turbo_attention:
        return None
    if case.cluster.gpu.vendor == "amd":
        if c.cp > 1:
            return f"softmax_type {kind} at CP {c.cp}: TransformerEngine on ROCm has only unfused attention for it, which needs CP 1"
        if backend in ("flash", "fused"):
            return f"softmax_type {kind} at TP {c.tp}: TransformerEngine on ROCm has no {backend} attention for it; use auto or unfused"
        return None
    if c.cp > 1 and c.cp_comm_type != "a2a":
        return f"softmax_type {kind} at CP {c.cp} needs cp_comm_type a2a, it is {c.cp_comm_type}"
    return None


@book.hard("C8", megatron("core/transformer/dot_product_attention.py:57"), "context parallelism needs flash or fused attention")
def _backend(case: Case) -> str | None:
    c, backend = case.config, case.arguments.get("attention_backend")
    if c.cp > 1 and backend in NO_CONTEXT and not c.turbo_attention:
        return f"attention_backend {backend} needs CP 1, CP is {c.cp}; use flash, fused or auto"
    return None


@book.hard("C11", megatron("training/arguments.py:1156-1161"), "hybrid context parallelism: PP 1, no graphs, loss by token, single loader")
def _hybrid_context(case: Case) -> str | None:
    a = case.arguments
    if not a.get("hybrid_context_parallel"):
        return None
    wrong = [f"PP {case.config.pp}"] if case.config.pp > 1 else []
    wrong += ["enable_cuda_graph true"] if a.get("enable_cuda_graph") else []
    wrong += [f"dataloader_type {a.get('dataloader_type')}"] if a.get("dataloader_type") not in (None, "single") else []
    wrong += [] if a.get("calculate_per_token_loss") else ["calculate_per_token_loss false"]
    wrong += ["latent attention"] if case.arch.latent_attention is not None else []
    return f"hybrid_context_parallel excludes {len(wrong)} settings: {', '.join(wrong)}" if wrong else None


@book.hard("C12", primus("backends/megatron/core/extensions/primus_turbo.py:847,912"), "Turbo attention takes no window")
def _turbo_window(case: Case) -> str | None:
    window = case.arguments.get("window_size")
    if case.config.turbo_attention and window is not None:
        return f"use_turbo_attention excludes window_size {str(window)[:40]}; set use_turbo_attention false"
    return None


@book.hard("C16", megatron("core/transformer/transformer_config.py:2256"), "fused rotation of latent attention needs yarn")
def _fused_rotation(case: Case) -> str | None:
    mla, kind = case.arch.latent_attention, case.arguments.get("rope_type")
    if mla is not None and case.config.fused_rope and case.arch.position_embedding == "rope" and kind not in (None, "yarn"):
        return f"apply_rope_fusion on latent attention ({mla.qk_rope_head_dim} rotary) needs rope_type yarn, it is {kind}"
    return None


@book.hard("P1-mtp", megatron("training/arguments.py:688-693"), "MTP layers need rotary or no position embeddings")
def _mtp_positions(case: Case) -> str | None:
    mtp, kind = case.arch.mtp_num_layers, case.arguments.get("position_embedding_type")
    if mtp and kind not in (None, "rope", "none"):
        return f"mtp_num_layers {mtp} needs position_embedding_type rope or none, it is {kind}"
    return None


@book.hard("T15", megatron("training/arguments.py:1530"), "latent attention has no query groups")
def _latent_groups(case: Case) -> str | None:
    mla = case.arch.latent_attention
    if mla is not None and case.arguments.get("group_query_attention"):
        return f"multi_latent_attention (KV rank {mla.kv_lora_rank}) needs group_query_attention false, it is true"
    return None


@book.hard("E33", megatron("core/transformer/transformer_config.py:1605-1644"), "one fused activation: Megatron's or Transformer Engine's")
def _one_activation(case: Case) -> str | None:
    a, arch = case.arguments, case.arch
    key = "bias_swiglu_fusion" if arch.gated_mlp else "bias_gelu_fusion"
    if a.get("use_te_activation_func") and a.get(key) and (arch.gated_mlp or arch.linear_bias):
        return f"use_te_activation_func excludes {key} true, 1 of the 2 is allowed"
    return None
