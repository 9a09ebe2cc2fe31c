"""The attention block of a layer: projections, rotary, attention core, norms and residuals, with TP and CP traffic."""

from __future__ import annotations

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import TIME
from primus_mcp.projection.layers.latent import latent_projections, rotary_bytes
from primus_mcp.projection.layers.linear import model_linear
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import Piece, communication
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.projection.layers.tensor_parallel import columns_gathered, tensor_parallel
from primus_mcp.units import BF16_BYTES


def _pass(rates: Rates, name: str, elements: float, forward_bytes: float, backward_bytes: float, module: str | None = None) -> Piece:
    return Piece(
        name=name, module=module, forward_s=rates.pass_s(elements * forward_bytes), backward_s=rates.pass_s(elements * backward_bytes)
    )


def _query_projections(rates: Rates, arch: Architecture, settings: LayerSettings, tokens: float) -> list[Piece]:
    """Multi-head or grouped-query attention: QKV fused, (a + 2g) d / TP wide, then the projection a d / TP -> h, with their TP traffic.

    Fewer groups than TP ranks: the weight is split all the same, its output gathered whole and a rank's query heads with their one key
    and value taken out of it (Megatron-LM core/transformer/attention.py, `all_gather_last_dim_from_tensor_parallel_region`).
    """
    query, keys = arch.num_attention_heads * arch.head_dim / settings.tp, arch.num_query_groups * arch.head_dim / settings.tp
    gate = query if arch.attention_output_gate else 0.0
    fused = query + 2 * keys + gate
    biased = arch.linear_bias or arch.qkv_bias
    entry = model_linear(rates, settings, "attention_linear", tokens, fused, arch.hidden_size, gathered="input", biased=biased)
    leave = model_linear(rates, settings, "attention_linear", tokens, arch.hidden_size, query, gathered="gradient")
    pieces = [entry, leave, *tensor_parallel(rates, arch, settings, (entry,), leave)]
    if arch.num_query_groups < settings.tp:
        pieces += columns_gathered(rates, arch, settings, settings.tp * fused, "rope")
    key = max(keys, arch.head_dim)
    grouped = arch.num_query_groups < arch.num_attention_heads
    forward_s = rates.pass_s(tokens * query * TIME["query_copy.forward"]) if grouped else 0.0
    backward_s = rates.pass_s(tokens * (query + 2 * key) * TIME["query_copy.backward"])
    pieces.append(Piece(name="rope", forward_s=forward_s, backward_s=backward_s))
    if arch.position_embedding == "rope":
        pieces.append(_pass(rates, "rope", tokens * (query + key), *rotary_bytes(arch, settings)))
    if arch.qk_norm:
        pieces.append(_pass(rates, "norm", tokens * (query + key), TIME["qk_norm.forward"], TIME["qk_norm.backward"]))
    return pieces


def _core(rates: Rates, arch: Architecture, settings: LayerSettings, windowed: bool, tokens: float) -> list[Piece]:
    """Scores, softmax, values, with what an operator passes over first: Turbo attention copies Q, K, V, FP8 attention transposes and casts
    them, and dO.

    Turbo attention ignores the window, and runs sinks in AITER's Triton kernel, the only one of AITER's that trains them (Primus
    core/extensions/primus_turbo.py, AMD-AGI/Primus-Turbo pytorch/ops/attention).
    """
    mla = arch.latent_attention
    heads = arch.num_attention_heads / settings.tp
    key_dim, value_dim = (arch.head_dim, arch.head_dim) if mla is None else (mla.qk_head_dim, mla.v_head_dim)
    window = arch.sliding_window if windowed and not settings.turbo_attention else None
    forward_s, backward_s = rates.attention_s(
        settings.mbs,
        arch.seq_length,
        heads,
        key_dim,
        value_dim,
        window,
        settings.cp,
        latent=mla is not None,
        flash=settings.flash_attention,
        fp8=settings.fp8_attention,
        sinks=arch.attention_sinks and (settings.turbo_attention or not settings.flash_attention),
    )
    pieces = [Piece(name="attention_core", module="core_attn", forward_s=forward_s, backward_s=backward_s)]
    groups = heads if mla is not None else max(arch.num_query_groups / settings.tp, 1)
    width = heads * key_dim + groups * (key_dim + value_dim)
    if settings.turbo_attention:
        copy = TIME["turbo_attention_copy"]
        pieces.append(_pass(rates, "attention_core", tokens * width, copy, copy, "core_attn"))
    if settings.fp8_attention:
        casts = (TIME["fp8_attention_cast.forward"], TIME["fp8_attention_cast.backward"] * heads * value_dim / width)
        pieces.append(_pass(rates, "attention_core", tokens * width, *casts, "core_attn"))
    return pieces


def _ring_steps(rates: Rates, settings: LayerSettings, query_elements: float, key_elements: float) -> Piece:
    """A ring runs CP smaller kernels: each but the first fills and drains the GPU anew, and each merges its partial result."""
    figures, steps = rates.cluster.profile.figures, settings.cp
    merge = TIME["ring_merge"] * steps
    return Piece(
        name="attention_core",
        module="core_attn",
        forward_s=(steps - 1) * figures["attention_fill_forward_s"] + rates.pass_s(merge * query_elements),
        backward_s=(steps - 1) * figures["attention_fill_backward_s"] + rates.pass_s(merge * (query_elements + key_elements)),
    )


def context_parallel(rates: Rates, arch: Architecture, settings: LayerSettings, core: Piece) -> list[Piece]:
    """CP moves K and V of the whole sequence to every rank (ring or all-gather), and their gradients back; Ulysses exchanges heads.

    bytes = 2 B * T * (d_k + d_v) * groups / TP * CP. Ring (p2p): CP - 1 sends of a rank's own share to its neighbour, which a mesh has one
    link to and the slowest hop paces; hides behind attention, exposed = max(floor t, t - attention). All-gather and a2a: exposed whole.
    Backward moves K, V again and their gradients: 2 t. Source: TransformerEngine context_parallel.py (isend and irecv between neighbours).
    Known error: 3-4% of a step too fast at CP 4 and 8 on B200; no AMD run with CP is published.
    """
    if settings.cp == 1:
        return []
    mla, tokens = arch.latent_attention, settings.tokens(arch)
    heads = arch.num_attention_heads / settings.tp
    if mla is None:
        key_value = 2 * max(arch.num_query_groups / settings.tp, 1) * arch.head_dim
        query_output = 2 * heads * arch.head_dim
    else:
        key_value = heads * (mla.qk_head_dim + mla.v_head_dim)
        query_output = key_value
    if settings.cp_comm_type in ("a2a", "a2a+p2p"):
        size_bytes = tokens * (key_value + query_output) * BF16_BYTES
        exchange_s = rates.all_to_all_s(size_bytes, settings.cp, settings.tp)
        return [communication("cp", exchange_s, exchange_s, module="core_attn")]
    share_bytes = tokens * key_value * BF16_BYTES
    if settings.cp_comm_type != "p2p":
        gather_s = rates.all_gather_s(settings.cp * share_bytes, settings.cp, settings.tp)
        return [communication("cp", gather_s, 2 * gather_s, module="core_attn")]
    transfer_s = (settings.cp - 1) * rates.point_to_point_s(share_bytes, settings.tp, settings.cp)
    return [
        _ring_steps(rates, settings, tokens * query_output / 2, tokens * key_value),
        Piece(
            name="cp",
            collective="cp",
            module="core_attn",
            forward_s=max(TIME["cp_floor.forward"] * transfer_s, transfer_s - core.forward_s),
            backward_s=max(TIME["cp_floor.backward"] * 2 * transfer_s, 2 * transfer_s - core.backward_s),
            forward_total_s=transfer_s,
            backward_total_s=2 * transfer_s,
        ),
    ]


def attention_pieces(rates: Rates, arch: Architecture, settings: LayerSettings, windowed: bool) -> tuple[Piece, ...]:
    """Attention of one layer, without the norm before it."""
    tokens, mla = settings.tokens(arch), arch.latent_attention
    pieces = _query_projections(rates, arch, settings, tokens) if mla is None else latent_projections(rates, arch, mla, settings)
    core = _core(rates, arch, settings, windowed, tokens)
    return (*pieces, *core, *context_parallel(rates, arch, settings, core[0]))
