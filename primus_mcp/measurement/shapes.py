"""The shapes that one rank of a configuration runs, as units that can be timed alone."""

from __future__ import annotations

from primus_mcp.errors import UnsupportedFeatureError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.measurement.job import Unit
from primus_mcp.projection.layers.moe_mlp import expert_rows
from primus_mcp.projection.layers.settings import LayerSettings, layer_settings

OPTIMIZER_ELEMENTS = 1 << 24
"""Elements of the optimizer unit: large enough to leave every cache, small enough for any device."""


def require_measurable(arch: Architecture) -> None:
    """Raises UnsupportedFeatureError for parts that no unit runs."""
    missing = [
        text
        for found, text in (
            (arch.mixer is not None, "a mixer instead of attention"),
            (arch.sparse_indexer is not None, "sparse attention with an indexer"),
            (arch.attention_chunk is not None, "attention over chunks"),
            (arch.attention_sinks, "attention sinks"),
        )
        if found
    ]
    if missing:
        raise UnsupportedFeatureError(f"{arch.name} has {' and '.join(missing)}", where="measured run", remedy="use simulate")


def _tokens(arch: Architecture, settings: LayerSettings) -> tuple[int, int, int]:
    """(sequence length on the rank, its tokens, tokens that norms see): CP cuts sequences, so the tokens of a rank stay."""
    length = arch.seq_length // settings.cp
    return length, settings.mbs * length, round(settings.sharded_tokens(arch))


def core_unit(arch: Architecture, config: TrainingConfig, *, windowed: bool) -> Unit:
    """The attention core of one rank: its heads over its part of the sequence."""
    settings, mla = layer_settings(config), arch.latent_attention
    length, _, _ = _tokens(arch, settings)
    heads = max(1, arch.num_attention_heads // settings.tp)
    window = arch.sliding_window if windowed and not settings.turbo_attention else None
    return Unit(
        kind="attention_core",
        sizes={
            "mbs": settings.mbs,
            "seq": length,
            "heads": heads,
            "groups": heads if mla else max(1, arch.num_query_groups // settings.tp),
            "qk_dim": mla.qk_head_dim if mla else arch.head_dim,
            "v_dim": mla.v_head_dim if mla else arch.head_dim,
            "window": window or 0,
        },
    )


def attention_unit(arch: Architecture, config: TrainingConfig, *, windowed: bool) -> Unit:
    """The attention block with both norms and residual additions of its layer."""
    settings, mla = layer_settings(config), arch.latent_attention
    _, tokens, sharded = _tokens(arch, settings)
    latent = {
        "q_rank": (mla.q_lora_rank or 0) if mla else 0,
        "kv_rank": mla.kv_lora_rank if mla else 0,
        "rope_dim": mla.qk_rope_head_dim if mla else 0,
    }
    flags = {"rope": int(arch.position_embedding == "rope"), "qk_norm": int(arch.qk_norm), "gate": int(arch.attention_output_gate)}
    core = core_unit(arch, config, windowed=windowed)
    return Unit(
        kind="attention",
        sizes={**core.sizes, **latent, **flags, "tokens": tokens, "norm_tokens": sharded, "hidden": arch.hidden_size},
    )


def dense_mlp_unit(arch: Architecture, config: TrainingConfig) -> Unit:
    """The dense MLP of one TP rank."""
    settings = layer_settings(config)
    _, tokens, _ = _tokens(arch, settings)
    width = arch.ffn_hidden_size // settings.tp
    return Unit(kind="dense_mlp", sizes={"tokens": tokens, "hidden": arch.hidden_size, "width": width, "gated": int(arch.gated_mlp)})


def moe_unit(arch: Architecture, config: TrainingConfig) -> Unit:
    """Router, permutation, local experts and shared expert of one rank, without the exchange: the rows that balanced routing brings."""
    settings, experts = layer_settings(config), arch.experts
    assert experts is not None
    _, tokens, sharded = _tokens(arch, settings)
    return Unit(
        kind="moe",
        sizes={
            "tokens": sharded,
            "hidden": arch.hidden_size,
            "routed": experts.num_experts,
            "top_k": experts.top_k,
            "experts": experts.num_experts // settings.ep,
            "rows": round(expert_rows(arch, experts, settings)),
            "width": experts.expert_ffn_hidden_size // settings.etp,
            "shared_tokens": tokens if experts.shared_expert_ffn_hidden_size else 0,
            "shared_width": experts.shared_expert_ffn_hidden_size // settings.tp,
            "gated": int(arch.gated_mlp),
        },
    )


def end_units(arch: Architecture, config: TrainingConfig) -> tuple[Unit, Unit]:
    """Embedding, and output matrix with loss, of one TP rank."""
    settings = layer_settings(config)
    _, tokens, _ = _tokens(arch, settings)
    rows = arch.padded_vocab_size(settings.tp) // settings.tp
    sizes = {"tokens": tokens, "hidden": arch.hidden_size, "vocab": rows}
    return Unit(kind="embedding", sizes=sizes), Unit(kind="head", sizes=sizes)


def units_of(arch: Architecture, config: TrainingConfig) -> tuple[Unit, ...]:
    """One of each kind of unit that the configuration runs. Raises UnsupportedFeatureError."""
    require_measurable(arch)
    found: dict[str, Unit] = {}
    for moe, narrow in dict.fromkeys(zip(arch.moe_layers, arch.layer_windows, strict=True)):
        feed_forward = moe_unit(arch, config) if moe else dense_mlp_unit(arch, config)
        for unit in (core_unit(arch, config, windowed=narrow), attention_unit(arch, config, windowed=narrow), feed_forward):
            found.setdefault(unit.key, unit)
    for unit in (*end_units(arch, config), Unit(kind="optimizer", sizes={"elements": OPTIMIZER_ELEMENTS})):
        found.setdefault(unit.key, unit)
    return tuple(found.values())
