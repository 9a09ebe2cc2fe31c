"""The model that the trainer would really build from its arguments, whatever the name on the file says."""

from __future__ import annotations

from typing import Literal

from primus_mcp.errors import InputError
from primus_mcp.inputs.architecture import Activation, Architecture, LatentAttention, MixtureOfExperts, PositionEmbedding
from primus_mcp.inputs.argument_values import MAX_LAYERS, Arguments, choice, count, flag, fraction, layer_pattern, optional_count
from primus_mcp.inputs.findings import Finding
from primus_mcp.inputs.hybrid_layers import hybrid_layers
from primus_mcp.inputs.vocabulary import Vocab, resolve_vocabulary

_POSITIONS: dict[str, PositionEmbedding] = {
    "learned_absolute": "learned",
    "rope": "rope",
    "yarn": "rope",
    "mrope": "rope",
    "none": "none",
}
_NORMS: dict[str, Literal["RMSNorm", "LayerNorm"]] = {"RMSNorm": "RMSNorm", "LayerNorm": "LayerNorm"}
_SOFTMAX = {"vanilla": False, "off-by-one": False, "learnable": True}


def _feed_forward_width(arguments: Arguments, hidden: int) -> int:
    """ffn_hidden_size, else 4h, or 2/3 of it in steps of 64 with SwiGLU (Megatron-LM@d3528a21 training/arguments.py)."""
    given = optional_count(arguments, "ffn_hidden_size")
    if given is not None:
        return given
    return int(4 * hidden * 2 / 3 / 64) * 64 if flag(arguments, "swiglu") else 4 * hidden


def _latent_attention(arguments: Arguments) -> LatentAttention | None:
    if not flag(arguments, "multi_latent_attention"):
        return None
    return LatentAttention(
        q_lora_rank=optional_count(arguments, "q_lora_rank"),
        kv_lora_rank=count(arguments, "kv_lora_rank"),
        qk_nope_head_dim=count(arguments, "qk_head_dim"),
        qk_rope_head_dim=count(arguments, "qk_pos_emb_head_dim"),
        v_head_dim=count(arguments, "v_head_dim"),
    )


def _experts(arguments: Arguments, ffn: int) -> MixtureOfExperts | None:
    number = optional_count(arguments, "num_experts", 0)
    if not number:
        return None
    top_k = count(arguments, "moe_router_topk")
    if top_k > number:
        raise InputError(f"is {top_k}, more than num_experts {number}", where="moe_router_topk", remedy=f"write at most {number}")
    return MixtureOfExperts(
        num_experts=number,
        top_k=top_k,
        expert_ffn_hidden_size=optional_count(arguments, "moe_ffn_hidden_size") or ffn,
        shared_expert_ffn_hidden_size=optional_count(arguments, "moe_shared_expert_intermediate_size", 0) or 0,
        router_num_groups=optional_count(arguments, "moe_router_num_groups"),
        router_group_topk=optional_count(arguments, "moe_router_group_topk"),
        router_expert_bias=flag(arguments, "moe_router_enable_expert_bias"),
        shared_expert_gate=flag(arguments, "moe_shared_expert_gate"),
    )


def _moe_layers(arguments: Arguments, layers: int) -> tuple[bool, ...]:
    """An integer N makes layers 0, N, 2N, ... MoE; a list says it a layer (gpt_layer_specs.py)."""
    pattern = layer_pattern(arguments, "moe_layer_freq", layers)
    if isinstance(pattern, int):
        return tuple(layer % pattern == 0 for layer in range(layers))
    return tuple(map(bool, pattern))


def _window(arguments: Arguments, layers: int) -> tuple[int | None, tuple[bool, ...]]:
    """(positions, which layers) from Megatron's window_size or Primus-Turbo's sink attention keys."""
    if turbo_sinks(arguments) and (width := count(arguments, "sink_sliding_window", 0)):
        even_only = flag(arguments, "sink_window_even_layers_only")
        return width, tuple(not even_only or layer % 2 == 0 for layer in range(layers))
    size = arguments["window_size"]
    if size is None:
        return None, ()
    if not (isinstance(size, list) and len(size) == 2 and all(type(item) is int and item >= -1 for item in size)):
        raise InputError(f"is {size!r}", where="window_size", remedy="write [left, right], for example [128, 0]")
    if size[0] < 0:
        return None, ()
    if arguments["window_attn_skip_freq"] is None:
        return size[0], (True,) * layers
    pattern = layer_pattern(arguments, "window_attn_skip_freq", layers)
    if isinstance(pattern, int):
        return size[0], tuple((layer + 1) % pattern != 0 for layer in range(layers))
    return size[0], tuple(map(bool, pattern))


def turbo_sinks(arguments: Arguments) -> bool:
    """Turbo attention with learned sinks; under context parallelism the trainer drops them (rule C15), which costs nothing."""
    return flag(arguments, "enable_primus_turbo") and flag(arguments, "use_turbo_attention") and flag(arguments, "use_sink_attention")


def _activation(arguments: Arguments) -> tuple[bool, Activation]:
    """(gated, function)."""
    if flag(arguments, "swiglu"):
        return True, "silu"
    if flag(arguments, "quick_geglu"):
        return True, "quick_gelu"
    return False, "squared_relu" if flag(arguments, "squared_relu") else "gelu"


def _clamp(arguments: Arguments) -> float | None:
    """--activation-func-clamp-value of a gated activation."""
    value = arguments["activation_func_clamp_value"]
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"is {value!r}", where="activation_func_clamp_value", remedy="write a number")
    return float(value)


def _heads(arguments: Arguments, hidden: int) -> tuple[int, int, int]:
    """(heads, query groups, head width). Without group_query_attention every head has its own key and value."""
    heads = count(arguments, "num_attention_heads")
    groups = (optional_count(arguments, "num_query_groups") or heads) if flag(arguments, "group_query_attention") else heads
    if heads % groups:
        raise InputError(f"is {groups}, which does not divide {heads} heads", where="num_query_groups", remedy="write a divisor")
    width = optional_count(arguments, "kv_channels")
    if width is None and hidden % heads:
        raise InputError(
            f"is not set and hidden_size {hidden} is not a multiple of {heads} heads", where="kv_channels", remedy="write the head width"
        )
    return heads, groups, width or hidden // heads


def read_architecture(arguments: Arguments, name: str, vocab: Vocab = "as-run") -> tuple[Architecture, tuple[Finding, ...]]:
    """Complete trainer arguments to the model that they build, and what is worth telling about its vocabulary.

    Raises InputError for a missing size, a wrong type or sizes that do not divide. Source: Megatron-LM@d3528a21
    megatron/training/arguments.py and core/transformer/transformer_config.py.
    """
    layers, hidden = count(arguments, "num_layers"), count(arguments, "hidden_size")
    if layers > MAX_LAYERS:
        raise InputError(f"is {layers}", where="num_layers", remedy=f"write at most {MAX_LAYERS}")
    heads, groups, head_dim = _heads(arguments, hidden)
    latent = _latent_attention(arguments)
    ffn = _feed_forward_width(arguments, hidden)
    experts = _experts(arguments, ffn)
    gated, activation = _activation(arguments)
    window, windowed = _window(arguments, layers)
    kinds, mixer = hybrid_layers(arguments, layers)
    vocabulary = resolve_vocabulary(arguments, vocab)
    rotary = flag(arguments, "use_rotary_position_embeddings")
    architecture = Architecture(
        name=name,
        num_layers=layers,
        hidden_size=hidden,
        ffn_hidden_size=ffn,
        num_attention_heads=heads,
        num_query_groups=heads if latent else groups,
        head_dim=head_dim,
        seq_length=count(arguments, "seq_length"),
        vocab_size=vocabulary.size,
        vocab_source=vocabulary.source,
        latent_attention=latent,
        experts=experts,
        moe_layers=_moe_layers(arguments, layers) if experts else (False,) * layers,
        sliding_window=window,
        windowed_layers=windowed,
        attention_output_gate=flag(arguments, "attention_output_gate"),
        layer_kinds=kinds,
        mixer=mixer,
        attention_sinks=turbo_sinks(arguments) or choice(arguments, "softmax_type", _SOFTMAX),
        scaled_rope=latent is None and not rotary and arguments["position_embedding_type"] == "yarn",
        activation_clamp=_clamp(arguments) if gated else None,
        gated_mlp=gated,
        activation=activation,
        normalization=choice(arguments, "normalization", _NORMS),
        qk_norm=flag(arguments, "qk_layernorm"),
        qkv_bias=flag(arguments, "add_qkv_bias"),
        linear_bias=flag(arguments, "add_bias_linear"),
        position_embedding="rope" if rotary else choice(arguments, "position_embedding_type", _POSITIONS),
        max_position_embeddings=optional_count(arguments, "max_position_embeddings"),
        tied_embeddings=not flag(arguments, "untie_embeddings_and_output_weights"),
        mtp_num_layers=optional_count(arguments, "mtp_num_layers", 0) or 0,
        vocab_size_divisor=count(arguments, "make_vocab_size_divisible_by"),
        hidden_dropout=fraction(arguments, "hidden_dropout"),
        attention_dropout=fraction(arguments, "attention_dropout"),
    )
    return architecture, vocabulary.findings
