"""Attention of one layer, operation by operation: norm, projections, rotary embedding, core attention, output projection.

Per token and rank: h hidden, q = heads * d / TP, k = v = groups * d / TP. Source of what is saved: NVIDIA/Megatron-LM core/transformer
(attention.py, multi_latent_attention.py) and TransformerEngine, matched to 0.05% by B200 runs (Megatron-Core 0.14, TE 2.11). Every
backward also holds the gradient of the residual branch. Known error: transients of ring and gather context parallelism are judgement.
"""

from __future__ import annotations

from primus_mcp.inputs.architecture import LatentAttention
from primus_mcp.projection.memory.activations.adapters import with_adapter
from primus_mcp.projection.memory.activations.operation import Operation, Saved, kept
from primus_mcp.projection.memory.activations.settings import ActivationSettings
from primus_mcp.units import BF16_BYTES, FP32_BYTES


def attention_operations(settings: ActivationSettings) -> tuple[Operation, ...]:
    """The attention half of a layer, from its norm to the residual addition."""
    latent = settings.arch.latent_attention
    heads = settings.arch.num_attention_heads / settings.tp
    if latent is not None:
        before = _latent_projections(settings, latent, heads)
        query, key, value = (heads * width for width in (latent.qk_head_dim, latent.qk_head_dim, latent.v_head_dim))
        produced_by = "qkv_up"
    else:
        before = _query_projections(settings, heads)
        query = heads * settings.arch.head_dim
        key = value = _local_groups(settings) * settings.arch.head_dim
        produced_by = ""
    output = heads * (latent.v_head_dim if latent else settings.arch.head_dim)
    core = _core_attention(settings, heads, (query, key, value, output), produced_by)
    return (*before, core, _output_projection(settings, output), *_dropout(settings, "attention_dropout_mask"))


def _local_groups(settings: ActivationSettings) -> float:
    """Key / value heads on a rank; with fewer groups than TP ranks each rank holds one whole group."""
    return max(settings.arch.num_query_groups / settings.tp, 1.0)


def _norm(settings: ActivationSettings) -> Operation:
    hidden = settings.hidden_bytes
    return Operation(
        name="attention_norm",
        group="attention",
        saved=kept(hidden, settings.norm_statistics_bytes),
        forward_transient_bytes=hidden,
        backward_transient_bytes=3 * hidden,
        modules=("layernorm",) if settings.arch.latent_attention else (),
    )


def _query_projections(settings: ActivationSettings, heads: float) -> tuple[Operation, ...]:
    """Fused norm + QKV linear, optional QK-norm, rotary embedding (which keeps only its tables)."""
    arch, hidden = settings.arch, settings.hidden_bytes
    query = settings.tokens * heads * arch.head_dim * BF16_BYTES
    key = settings.tokens * _local_groups(settings) * arch.head_dim * BF16_BYTES
    qkv = query + 2 * key
    input_bytes = settings.local_tokens * arch.hidden_size * settings.kept_input_bytes("linear_qkv", normed=True)
    width = (arch.num_attention_heads + 2 * arch.num_query_groups) * arch.head_dim / settings.tp
    gathered_groups = qkv * settings.tp if arch.num_query_groups < settings.tp else 0.0
    projection = Operation(
        name="qkv",
        group="attention",
        saved=kept(input_bytes),
        forward_transient_bytes=settings.gathered_bytes + qkv + gathered_groups,
        backward_transient_bytes=settings.gathered_bytes
        + qkv
        + gathered_groups
        + settings.full_hidden_bytes
        + hidden
        + settings.wgrad_bytes(width, arch.hidden_size),
        pinned_bytes=input_bytes + qkv,
    )
    adapted = with_adapter(settings, projection, "linear_qkv", settings.tokens, (arch.hidden_size, width), "norm")
    operations = [_norm(settings), adapted]
    if arch.qk_norm:
        statistics = settings.tokens * (heads + _local_groups(settings)) * FP32_BYTES
        operations.append(
            Operation(
                name="qk_norm",
                group="attention",
                saved=kept(query + key, statistics),
                forward_transient_bytes=query + key,
                backward_transient_bytes=query + key + hidden,
            )
        )
    operations.append(Operation(name="rope", group="attention", forward_transient_bytes=qkv, backward_transient_bytes=2 * qkv + hidden))
    return tuple(operations)


def _latent_projections(settings: ActivationSettings, latent: LatentAttention, heads: float) -> tuple[Operation, ...]:
    """MLA: norm, down-projections of Q and KV, their norms and up-projections, rotary embedding. K is expanded per head.

    Sequence parallelism: down-projections, latents and what is kept of them are of a shard; up-projections gather their latents, in the
    forward pass and again in the backward pass, which also holds their whole gradients before they are scattered.
    """
    arch, tokens, shard, hidden = settings.arch, settings.tokens, settings.local_tokens, settings.hidden_bytes
    first = "linear_q_proj" if latent.q_lora_rank is None else "linear_q_down_proj"
    kept_norm = max(settings.kept_input_bytes(first), settings.kept_input_bytes("linear_kv_down_proj"))
    norm_output = Saved(size_bytes=settings.local_tokens * arch.hidden_size * kept_norm, producer="attention_norm")
    kept_input = settings.kept_input_bytes("linear_kv_up_proj", normed=True)
    query = tokens * heads * latent.qk_head_dim * BF16_BYTES
    up = tokens * heads * (latent.qk_nope_head_dim + latent.v_head_dim) * BF16_BYTES
    value = tokens * heads * latent.v_head_dim * BF16_BYTES
    compressed = shard * (latent.kv_lora_rank + latent.qk_rope_head_dim) * BF16_BYTES
    latent_kv = shard * latent.kv_lora_rank
    gathered = tokens * latent.kv_lora_rank * BF16_BYTES if settings.shards_sequence else 0.0
    statistics = shard * FP32_BYTES
    down_width, up_width = latent.kv_lora_rank + latent.qk_rope_head_dim, heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    down = Operation(
        name="kv_down",
        group="attention",
        forward_transient_bytes=compressed,
        backward_transient_bytes=compressed + 2 * hidden + settings.wgrad_bytes(down_width, arch.hidden_size),
        pinned_bytes=compressed,
    )
    expand = Operation(
        name="kv_up",
        group="attention",
        saved=(*kept(compressed, statistics), Saved(size_bytes=latent_kv * kept_input, producer="qkv_up")),
        forward_transient_bytes=up + gathered,
        backward_transient_bytes=up + hidden + latent_kv * BF16_BYTES + 2 * gathered + settings.wgrad_bytes(up_width, latent.kv_lora_rank),
        pinned_bytes=latent_kv * kept_input + up,
        modules=("mla_up_proj",),
    )
    return (
        _norm(settings),
        *_latent_query(settings, latent, heads, norm_output),
        with_adapter(settings, down, "linear_kv_down_proj", shard, (arch.hidden_size, down_width)),
        with_adapter(settings, expand, "linear_kv_up_proj", tokens, (latent.kv_lora_rank, up_width)),
        Operation(
            name="qkv_up",
            group="attention",
            forward_transient_bytes=query + up,
            backward_transient_bytes=4 * query + value + hidden,
            modules=("mla_up_proj",),
        ),
    )


def _latent_query(settings: ActivationSettings, latent: LatentAttention, heads: float, norm_output: Saved) -> tuple[Operation, ...]:
    arch, tokens, shard, hidden = settings.arch, settings.tokens, settings.local_tokens, settings.hidden_bytes
    query = tokens * heads * latent.qk_head_dim * BF16_BYTES
    width = heads * latent.qk_head_dim
    if latent.q_lora_rank is None:
        projection = Operation(
            name="q_proj",
            group="attention",
            saved=(norm_output,),
            forward_transient_bytes=query,
            backward_transient_bytes=settings.gathered_bytes
            + query
            + settings.full_hidden_bytes
            + hidden
            + settings.wgrad_bytes(width, arch.hidden_size),
            pinned_bytes=norm_output.size_bytes + query,
        )
        return (with_adapter(settings, projection, "linear_q_proj", tokens, (arch.hidden_size, width), "sequence"),)
    rank = latent.q_lora_rank
    compressed = shard * rank * BF16_BYTES
    gathered = tokens * rank * BF16_BYTES if settings.shards_sequence else 0.0
    down = Operation(
        name="q_down",
        group="attention",
        saved=(norm_output,),
        backward_transient_bytes=2 * hidden + compressed + settings.wgrad_bytes(rank, arch.hidden_size),
        pinned_bytes=norm_output.size_bytes + compressed,
    )
    normed = Saved(size_bytes=shard * rank * settings.kept_input_bytes("linear_q_up_proj", normed=True), producer="qkv_up")
    up = Operation(
        name="q_up",
        group="attention",
        saved=(*kept(compressed, shard * FP32_BYTES), normed),
        forward_transient_bytes=query + gathered,
        backward_transient_bytes=query + 2 * compressed + hidden + 2 * gathered + settings.wgrad_bytes(width, rank),
        pinned_bytes=normed.size_bytes + query,
        modules=("mla_up_proj",),
    )
    return (
        with_adapter(settings, down, "linear_q_down_proj", shard, (arch.hidden_size, rank)),
        with_adapter(settings, up, "linear_q_up_proj", tokens, (rank, width)),
    )


def _core_attention(settings: ActivationSettings, heads: float, widths: tuple[float, float, float, float], produced_by: str) -> Operation:
    """Q, K, V and the log-sum-exp of each row (flash), or Q, K, V and every score (math: s^2 * heads, softmax and dropout).

    Sinks make rows of scores one longer, which no fused softmax takes: plain PyTorch keeps its fp32 result beside the BF16 one, and holds
    the scores in BF16, in fp32 and masked while it runs (TransformerEngine dot_product_attention/backends.py and softmax.py).
    The output is kept by the projection after it. CP with all-to-all keeps one more output, from before its exchange (TE >= 2.8).
    Flash backward holds dO, dQ, dK, dV and an fp32 accumulator of dQ.
    """
    tokens, hidden = settings.tokens, settings.hidden_bytes
    query, key, value, output = (tokens * width * BF16_BYTES for width in widths)
    # CP all-to-all exchanges Q, K, V inside the kernel's autograd function, so mla_up_proj cannot drop them.
    producer = "" if settings.cp > 1 and settings.cp_comm_type == "a2a" else produced_by
    inputs = Saved(size_bytes=query + key + value, producer=producer, input_of=("core_attn",))
    if not settings.flash_attention:
        scores = settings.mbs * heads * (settings.arch.seq_length**2) / settings.cp
        per_score = 2 * BF16_BYTES + 1 if settings.arch.attention_dropout else BF16_BYTES
        working = BF16_BYTES + FP32_BYTES
        if settings.arch.attention_sinks:
            per_score, working = FP32_BYTES + BF16_BYTES + (1 if settings.arch.attention_dropout else 0), BF16_BYTES + 2 * FP32_BYTES
        return Operation(
            name="math_attention",
            group="attention",
            saved=(inputs, Saved(size_bytes=scores * per_score)),
            forward_transient_bytes=scores * working,
            backward_transient_bytes=scores * working + hidden,
            modules=("core_attn",),
        )
    forward, backward, extra = _context_parallel_bytes(settings, query, key, value, output)
    log_sum_exp = tokens * heads * FP32_BYTES
    return Operation(
        name="flash_attention",
        group="attention",
        saved=(inputs, *kept(log_sum_exp + extra)),
        forward_transient_bytes=forward,
        backward_transient_bytes=backward + hidden,
        modules=("core_attn",),
    )


def _context_parallel_bytes(
    settings: ActivationSettings, query: float, key: float, value: float, output: float
) -> tuple[float, float, float]:
    """(forward, backward transient, extra saved) of flash attention under the CP exchange in use."""
    backward = output + query + key + value + 2 * query
    kind = settings.cp_comm_type
    if settings.cp == 1:
        return output, backward, 0.0
    if kind == "a2a":
        exchanged = query + key + value
        return 3 * exchanged, max(backward, 4 * exchanged), output
    if kind in ("allgather", "all_gather"):
        return (key + value) * settings.cp, backward + 2 * (key + value) * settings.cp, 0.0
    # p2p, and a2a+p2p by its larger part: two buffers of the neighbour's K and V, double in backward
    return 2 * (key + value) + 2 * output, backward + 4 * (key + value), 0.0


def _output_projection(settings: ActivationSettings, width: float) -> Operation:
    """Keeps the attention output, which BF16 shares with core attention; FP8 keeps its own copy beside the BF16 one."""
    output = settings.tokens * width * BF16_BYTES
    own_copy = settings.tokens * width * settings.own_input_bytes("linear_proj")
    full = settings.full_hidden_bytes
    projection = Operation(
        name="attention_projection",
        group="attention",
        saved=kept(output, own_copy),
        forward_transient_bytes=full,
        backward_transient_bytes=settings.gathered_bytes
        + full
        + output
        + settings.hidden_bytes
        + settings.wgrad_bytes(settings.arch.hidden_size, width),
        pinned_bytes=(own_copy or output) + full,
    )
    return with_adapter(settings, projection, "linear_proj", settings.tokens, (width, settings.arch.hidden_size))


def _dropout(settings: ActivationSettings, name: str) -> tuple[Operation, ...]:
    if not settings.arch.hidden_dropout:
        return ()
    hidden = settings.hidden_bytes
    mask = settings.local_tokens * settings.arch.hidden_size
    return (Operation(name=name, group="attention", saved=kept(mask), forward_transient_bytes=hidden, backward_transient_bytes=hidden),)
