"""A Hugging Face transformers `config.json` to the architecture that it describes.

Every key is read, known to change neither memory nor time, or named in a finding or a refusal: nothing is dropped silently. What a class
fixes in code is in catalog/huggingface.yaml (source: huggingface/transformers@v4.57.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.architecture import Activation, Architecture, LatentAttention, MixtureOfExperts
from primus_mcp.inputs.argument_values import MAX_LAYERS
from primus_mcp.inputs.findings import Finding
from primus_mcp.inputs.huggingface_config import HfConfig, model_classes, shown
from primus_mcp.inputs.huggingface_numbers import read_numbers

_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "quick_gelu": "quick_gelu",
    "relu2": "squared_relu",
}
_LAYER_TYPES = {"sliding_attention": True, "full_attention": False}
_GROUPED = ("group_limited_greedy", "noaux_tc")
_OFF: tuple[Any, ...] = (None, False, 0, 0.0, "", [], {})


@dataclass(frozen=True, slots=True, kw_only=True)
class HfModel:
    """What a config describes. `findings` name every key that the architecture does not hold.

    `numbers`: trainer arguments of what changes neither memory nor time and yet is the model.
    """

    model_type: str
    architecture: Architecture
    numbers: Mapping[str, Any]
    findings: tuple[Finding, ...]


def _activation(config: HfConfig) -> Activation:
    key = "hidden_activation" if config.raw("hidden_activation") is not None else "hidden_act"
    name = config.raw(key)
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise UnsupportedFeatureError(
            f"{key} {shown(name)} cannot be priced", where=config.where, remedy=f"priced: {', '.join(_ACTIVATIONS)}"
        )
    return _ACTIVATIONS[name]


def _latent(config: HfConfig) -> LatentAttention | None:
    if not config.family.latent:
        return None
    if config.flag("attention_bias"):
        raise UnsupportedFeatureError("attention_bias true cannot be priced with latent attention", where=config.where)
    return LatentAttention(
        q_lora_rank=config.optional_count("q_lora_rank"),
        kv_lora_rank=config.count("kv_lora_rank"),
        qk_nope_head_dim=config.count("qk_nope_head_dim"),
        qk_rope_head_dim=config.count("qk_rope_head_dim"),
        v_head_dim=config.count("v_head_dim"),
    )


def _heads(config: HfConfig, hidden: int, latent: LatentAttention | None) -> tuple[int, int, int]:
    """(heads, query groups, head width). Under latent attention neither groups nor the width mean anything: heads, value width."""
    heads = config.count("num_attention_heads")
    if latent is not None:
        return heads, heads, latent.v_head_dim
    groups = config.optional_count("num_key_value_heads") or heads
    if heads % groups:
        raise config.refuse("num_key_value_heads", f"is {groups}, which does not divide {heads} heads", "write a divisor")
    width = config.optional_count("head_dim")
    if width is None and hidden % heads:
        raise config.refuse("head_dim", f"is missing and hidden_size {hidden} is not a multiple of {heads} heads", "write the head width")
    return heads, groups, width or hidden // heads


def _router_groups(config: HfConfig) -> dict[str, Any]:
    """n_group groups of which topk_group are asked; one group is none, and so are groups under a plain top-k."""
    if "topk_method" not in config.family.defaults:
        return {}
    groups, chosen, method = config.optional_count("n_group"), config.optional_count("topk_group"), config.raw("topk_method")
    if not isinstance(method, str) or method not in ("greedy", *_GROUPED):
        raise UnsupportedFeatureError(f"topk_method {shown(method)} cannot be priced", where=config.where)
    if method not in _GROUPED or groups in (None, 1):
        return {}
    return {"router_num_groups": groups, "router_group_topk": chosen}


def _experts(config: HfConfig) -> MixtureOfExperts | None:
    keys = config.family.experts
    if keys is None:
        return None
    number = config.count(keys.number, 0)
    if not number:
        return None
    top_k, width = config.count(keys.top_k), config.count(keys.width)
    if top_k > number:
        raise config.refuse(keys.top_k, f"is {top_k}, more than {number} experts", f"write at most {number}")
    shared = (config.optional_count(keys.shared_width, 0) or 0) if keys.shared_width else 0
    if keys.shared_count:
        shared = (config.optional_count(keys.shared_count, 0) or 0) * width
    return MixtureOfExperts(
        num_experts=number,
        top_k=top_k,
        expert_ffn_hidden_size=width,
        shared_expert_ffn_hidden_size=shared,
        **config.family.expert_fixed,
        **_router_groups(config),
    )


def _moe_layers(config: HfConfig, layers: int, experts: MixtureOfExperts | None) -> tuple[bool, ...]:
    """DeepSeek's first dense layers and stride, or Qwen's sparse step and list of dense layers; every layer elsewhere."""
    if experts is None:
        return (False,) * layers
    if "first_k_dense_replace" in config.family.defaults:
        first, step = config.count("first_k_dense_replace", 0), config.count("moe_layer_freq")
        return tuple(layer >= first and layer % step == 0 for layer in range(layers))
    if "decoder_sparse_step" in config.family.defaults:
        every, dense = config.count("decoder_sparse_step"), config.layers("mlp_only_layers", layers)
        return tuple(layer not in dense and (layer + 1) % every == 0 for layer in range(layers))
    return (True,) * layers


def _window(config: HfConfig, layers: int, longest: int) -> tuple[int | None, tuple[bool, ...]]:
    """(positions, which layers). A window as wide as the longest sequence is none."""
    kinds = config.texts("layer_types", layers, _LAYER_TYPES)
    rule = config.family.window
    if rule == "none":
        if (width := config.document.get("sliding_window")) is not None or (kinds and "sliding_attention" in kinds):
            problem = f"sliding_window {shown(width)} means nothing to model_type {config.model_type}"
            raise UnsupportedFeatureError(problem, where=config.where, remedy="remove it, or name the class that has it")
        config.used.add("sliding_window")
        return None, ()
    size = config.optional_count("sliding_window")
    if rule == "from_layer" and not config.flag("use_sliding_window"):
        size = None
    if size is None or size >= longest:
        return None, ()
    if kinds is not None:
        windowed = tuple(_LAYER_TYPES[kind] for kind in kinds)
    elif rule == "from_layer":
        first = config.count("max_window_layers", 0)
        windowed = tuple(layer >= first for layer in range(layers))
    elif rule == "every_layer":
        windowed = (True,) * layers
    else:
        every = config.count("sliding_window_pattern") if rule == "pattern" else 2
        windowed = tuple((layer + 1) % every != 0 for layer in range(layers))
    return (size, windowed) if any(windowed) else (None, ())


def _mtp(config: HfConfig) -> int:
    """Layers that predict further tokens; for a class that has none the key stays unread, and is named."""
    return (config.optional_count("num_nextn_predict_layers", 0) or 0) if "num_nextn_predict_layers" in config.family.defaults else 0


def _biases(config: HfConfig, *, latent: bool) -> tuple[dict[str, bool], list[str]]:
    """qkv_bias and linear_bias, and what of the config's biases has no place: (fields, sentences)."""
    fixed = {key: bool(config.family.fixed.get(key, False)) for key in ("qkv_bias", "linear_bias")}
    mlp = config.flag("mlp_bias") if "mlp_bias" in config.family.defaults else False
    attention = config.flag("attention_bias") if config.family.attention_bias and not latent else False
    if "qkv_bias" in config.family.defaults:
        attention = config.flag("qkv_bias")
    fields = {"qkv_bias": fixed["qkv_bias"] or attention, "linear_bias": fixed["linear_bias"] or (mlp and attention)}
    told = []
    if attention and config.family.attention_bias == "qkvo" and not fields["linear_bias"]:
        told.append("attention_bias: the bias of the output projection is not counted")
    if mlp and not fields["linear_bias"]:
        told.append("mlp_bias: the biases of the MLP are not counted")
    return fields, told


def _key_findings(config: HfConfig, told: list[str]) -> tuple[Finding, ...]:
    """What happened to every key that the architecture does not hold. Raises UnsupportedFeatureError for features that cannot be priced."""
    table, findings = model_classes(), []
    rest = {key: value for key, value in config.document.items() if key not in config.used}
    for key in [key for key in rest if key in table.refused]:
        if not any(rest[key] == item and type(rest[key]) is type(item) for item in table.refused[key].priced):
            raise UnsupportedFeatureError(f"{table.refused[key].feature} ({key}: {shown(rest[key])}) cannot be priced", where=config.where)
    left = [f"{key}: {table.left_out[key]}" for key in rest if key in table.left_out and rest[key] not in _OFF]
    findings += [Finding(code="hf-left-out", text=text) for text in (*left, *told)]
    known = {*table.no_cost, *table.left_out, *table.refused}
    if unknown := [key for key in rest if key not in known]:
        on, off = [key for key in unknown if rest[key] not in _OFF], [key for key in unknown if rest[key] in _OFF]
        parts = ([f"{', '.join(map(shown, on))} not priced and not carried over"] if on else []) + (
            [f"{', '.join(map(shown, off))} off"] if off else []
        )
        text = f"keys of config.json that are not known to {config.model_type}: {'; '.join(parts)}"
        findings.append(Finding(code="hf-unknown-key", text=text))
    if filled := {key: value for key, value in config.filled.items() if value not in _OFF}:
        values = ", ".join(f"{key} {value}" for key, value in filled.items())
        findings.append(Finding(code="hf-default", text=f"config.json leaves out what {config.model_type} fills in: {values}"))
    named = {*config.used, *unknown, *(text.split(":")[0] for text in left)}
    if ignored := [key for key in rest if key not in named]:
        findings.append(Finding(code="hf-no-cost", text=f"keys that change neither memory nor time: {', '.join(sorted(ignored))}"))
    return tuple(findings)


def _text_part(document: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], tuple[Finding, ...]]:
    """The language model of a multimodal config; what else that has is named."""
    inner = document.get("text_config")
    if inner is None:
        return document, ()
    if not isinstance(inner, Mapping):
        raise InputError(f"text_config is {shown(inner)}", where=where, remedy="write a mapping")
    others = ", ".join(key[:60] for key in document if key not in ("text_config", "model_type", "tie_word_embeddings"))
    text = f"the language model (text_config) is priced alone; left out: {others or 'nothing'}"
    tied = {"tie_word_embeddings": document["tie_word_embeddings"]} if "tie_word_embeddings" in document else {}
    return {**tied, **inner}, (Finding(code="hf-left-out", text=text),)


def read_hf_config(document: Mapping[str, Any], name: str, where: str, *, seq_length: int = 1) -> HfModel:
    """A config (plain data) to its architecture, whose `seq_length` is the model's longest.

    `seq_length`: what will be trained, where that is longer. Raises InputError, UnsupportedFeatureError.
    """
    text, outer = _text_part(document, where)
    config = HfConfig(text, where)
    layers, hidden = config.count("num_hidden_layers"), config.count("hidden_size")
    if layers > MAX_LAYERS:
        raise config.refuse("num_hidden_layers", f"is {layers}", f"write at most {MAX_LAYERS}")
    positions, latent = config.count("max_position_embeddings"), _latent(config)
    heads, groups, head_dim = _heads(config, hidden, latent)
    experts = _experts(config)
    window, windowed = _window(config, layers, max(positions, seq_length))
    biases, told = _biases(config, latent=latent is not None)
    fixed: dict[str, Any] = {**config.family.fixed, **biases}
    if "use_qk_norm" in config.family.defaults:
        fixed["qk_norm"] = config.flag("use_qk_norm")
    if "swiglu_limit" in config.family.defaults:
        fixed["activation_clamp"] = config.number("swiglu_limit")
    architecture = Architecture(
        name=name,
        num_layers=layers,
        hidden_size=hidden,
        ffn_hidden_size=config.count("intermediate_size"),
        num_attention_heads=heads,
        num_query_groups=groups,
        head_dim=head_dim,
        seq_length=positions,
        vocab_size=config.count("vocab_size", 2),
        vocab_source="tokenizer",
        latent_attention=latent,
        experts=experts,
        moe_layers=_moe_layers(config, layers, experts),
        sliding_window=window,
        windowed_layers=windowed,
        activation=_activation(config),
        max_position_embeddings=positions,
        tied_embeddings=config.flag("tie_word_embeddings"),
        mtp_num_layers=_mtp(config),
        attention_dropout=config.fraction("attention_dropout"),
        **fixed,
    )
    numbers = read_numbers(config, architecture)
    findings = (*outer, *_key_findings(config, told), *numbers.findings(tuple(told)))
    return HfModel(model_type=config.model_type, architecture=architecture, numbers=numbers.arguments, findings=findings)
