"""How tokens reach their experts and return: router, permutation, all-to-all, with what each dispatcher really moves."""

from __future__ import annotations

from primus_mcp.inputs.architecture import Architecture, MixtureOfExperts
from primus_mcp.inputs.constants import TIME, TIME_PAIRS
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import Piece, communication
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.projection.ops.collectives import distinct_destinations
from primus_mcp.units import BF16_BYTES

FUSED_ROUTER_STAGE = 1


def uses_deepep(settings: LayerSettings) -> bool:
    """Sync-free stages 2 and 3 switch DeepEP on; without EP there is nothing to exchange."""
    return settings.ep > 1 and (settings.dispatcher == "deepep" or settings.sync_free_stage > FUSED_ROUTER_STAGE)


def gathers_tokens(settings: LayerSettings) -> bool:
    """Every rank gets all tokens of its EP x ETP group and picks what its experts want (Megatron's all-gather dispatcher)."""
    return settings.dispatcher == "allgather" and not uses_deepep(settings)


def router_is_fused(settings: LayerSettings) -> bool:
    """Asked for, or by sync-free stage >= 1."""
    return settings.fused_router or settings.sync_free_stage >= FUSED_ROUTER_STAGE


def permute_is_fused(settings: LayerSettings) -> bool:
    """Asked for, or by sync-free stage >= 1; DeepEP always fuses in Primus-Turbo since 2026-05 and in Megatron-Core."""
    asked = settings.permute_fusion or settings.sync_free_stage >= FUSED_ROUTER_STAGE
    return asked or (uses_deepep(settings) and settings.deepep_fused_permute)


def received_copies(experts: MixtureOfExperts, settings: LayerSettings) -> float:
    """r: copies of a token that travel under DeepEP, one per distinct destination rank; 1 without EP."""
    return distinct_destinations(experts.num_experts, experts.top_k, settings.ep, forced_balance=settings.forced_balance)


def router_piece(rates: Rates, arch: Architecture, experts: MixtureOfExperts, settings: LayerSettings) -> Piece:
    """Gating GEMM in bf16, scores and top-k; the backward pass runs two fp32 GEMMs after casting (Megatron-LM moe_utils.py:1259-1300).

    Both in one autograd function, which no split backward takes apart: the weight gradient lies in B.
    """
    tokens, count = settings.sharded_tokens(arch), experts.num_experts
    score_s = rates.pass_s(tokens * count * TIME["router.fused" if router_is_fused(settings) else "router.unfused"])
    fp32_gemm_s = 2 * tokens * count * arch.hidden_size / TIME["router_fp32_flops"]
    cast_s = rates.pass_s(tokens * arch.hidden_size * TIME["router_backward_cast"])
    return Piece(
        name="router",
        module="moe",
        forward_s=rates.gemm_s(tokens, count, arch.hidden_size, "bf16") + score_s,
        backward_s=fp32_gemm_s * (2 if settings.trains_weights else 1) + cast_s + score_s,
    )


_EAGER_SORTS = {"library": 2, "no_exchange": 1, "deepep": 0}


def _eager_bytes(copies: float, cleared_tokens: float, path: str) -> float:
    """Bytes an element and direction that eager PyTorch would stream in the same time: gathers and scatter-adds are far from streaming.

    gather b_g s_g + sorts b_s + scatter-add b_a s_a a copy, and clearing what is added to. Both directions hold one gather and one
    scatter-add: the backward of one is the other. The slow-downs are micro-benchmarks; steps of DeepSeek-V2-Lite from the library to
    DeepEP and on to fused kernels (7.0 and 5.6 ms a layer of 49,152 tokens) come out at 6.5 and 5.7.
    """
    scatter, cleared = TIME_PAIRS["permute.eager_scatter"]
    gather_bytes = TIME["permute.eager_gather"] * TIME["permute.eager_gather_slowdown"]
    per_copy = gather_bytes + _EAGER_SORTS[path] * TIME["permute.eager_sort"] + scatter * TIME["permute.eager_scatter_slowdown"]
    return per_copy * copies + cleared * cleared_tokens


def permute_piece(rates: Rates, arch: Architecture, experts: MixtureOfExperts, settings: LayerSettings) -> Piece:
    """Sorting tokens by expert and back, bytes an element of the hidden state and direction: per routed copy and per token.

    DeepEP: 4 (r + k) for permute and unpermute; what its own kernels stage is part of their measured rate. Fused kernels gather and sum
    rows at a share of the streaming rate, a figure of the profile. Gathered tokens are sorted once, as without exchange, but out of and
    into those of all EP x ETP ranks. Source: kernels counted in AMD-AGI/Primus and Primus-Turbo.
    """
    width = settings.sharded_tokens(arch) * arch.hidden_size
    copies = experts.top_k * settings.expert_load_imbalance
    deepep = uses_deepep(settings)
    path = "deepep" if deepep else "no_exchange" if settings.ep == 1 or gathers_tokens(settings) else "library"
    tokens = settings.ep * settings.etp if gathers_tokens(settings) else 1
    streaming = rates.cluster.profile.figures["permute_efficiency"]
    if not permute_is_fused(settings):
        per_token = _eager_bytes(copies, tokens, path)
    elif deepep:
        rows = received_copies(experts, settings) * settings.expert_load_imbalance
        per_token = TIME["permute.deepep_per_copy"] * (rows + copies) / streaming
    else:
        per_copy, once = TIME_PAIRS[f"permute.{path}_fused"]
        per_token = (per_copy * copies + once * tokens) / streaming
    direction_s = rates.pass_s(width * per_token)
    return Piece(name="permute", module="moe", forward_s=direction_s, backward_s=direction_s)


def exchange_once_s(rates: Rates, arch: Architecture, experts: MixtureOfExperts, settings: LayerSettings) -> float:
    """One dispatch or combine over the EP group (or over `a2a_ep_size` ranks, which prices the exchange of a larger group)."""
    return rates.expert_exchange_s(
        experts,
        settings.sharded_tokens(arch) * settings.expert_load_imbalance,
        float(arch.hidden_size * BF16_BYTES),
        settings.a2a_ep_size or settings.ep,
        settings.etp,
        deepep=uses_deepep(settings),
        forced_balance=settings.forced_balance,
    )


def _gathered_exchange_s(rates: Rates, arch: Architecture, experts: MixtureOfExperts, settings: LayerSettings) -> tuple[float, float]:
    """(forward, backward) seconds of the all-gather dispatcher over EP x ETP ranks, of Ts tokens each and whatever their routing.

    Forward: all-gather of tokens, h 2 B, routing map, E 1 B, and probabilities, E 2 B; reduce-scatter of outputs. Backward: all-gather of
    output gradients, reduce-scatter of those of tokens and probabilities.
    Source: NVIDIA/Megatron-LM core/transformer/moe/token_dispatcher.py (MoEAllGatherTokenDispatcher). Known error: with an fp32 router
    outputs and probabilities move twice the bytes; no published run uses it.
    """
    ranks = (settings.a2a_ep_size or settings.ep) * settings.etp
    tokens = settings.sharded_tokens(arch) * ranks
    hidden_bytes, per_expert = tokens * arch.hidden_size * BF16_BYTES, tokens * experts.num_experts
    hidden_s = rates.all_gather_s(hidden_bytes, ranks, 1) + rates.reduce_scatter_s(hidden_bytes, ranks, 1)
    chosen_s = rates.all_gather_s(per_expert, ranks, 1) + rates.all_gather_s(per_expert * BF16_BYTES, ranks, 1)
    return hidden_s + chosen_s, hidden_s + rates.reduce_scatter_s(per_expert * BF16_BYTES, ranks, 1)


def exchange_piece(
    rates: Rates, arch: Architecture, experts: MixtureOfExperts, settings: LayerSettings, beside_s: tuple[float, float]
) -> Piece:
    """Dispatch and combine, forward and again backward; always bf16 payload.

    `beside_s`: (forward, backward) compute of the shared expert that may hide part of it when the two overlap.
    """
    if gathers_tokens(settings):
        ahead_s, back_s = _gathered_exchange_s(rates, arch, experts, settings)
    else:
        ahead_s = back_s = 2 * exchange_once_s(rates, arch, experts, settings)
    hidden = TIME["moe_a2a_overlap"] if settings.overlap_moe_a2a and not settings.exchange_waits else 0.0
    piece = communication("a2a", ahead_s, back_s, hidden=hidden, module="moe")
    if not settings.shared_expert_overlap:
        return piece
    forward_s, backward_s = beside_s
    return Piece(
        name="a2a",
        collective="a2a",
        module="moe",
        forward_s=max(0.0, piece.forward_s - forward_s),
        backward_s=max(0.0, piece.backward_s - backward_s),
        forward_total_s=ahead_s,
        backward_total_s=back_s,
    )


def expert_tensor_parallel(rates: Rates, arch: Architecture, experts: MixtureOfExperts, settings: LayerSettings) -> list[Piece]:
    """ETP > 1: rows that a rank received are gathered over its ETP group, and results scattered back.

    Gathered tokens are of all ETP ranks already. Known error: DeepEP sends a copy to each ETP rank in place of this gather.
    """
    if settings.etp == 1 or gathers_tokens(settings):
        return []
    rows = settings.sharded_tokens(arch) * experts.top_k * settings.expert_load_imbalance * settings.etp
    size_bytes = rows * arch.hidden_size * BF16_BYTES
    once_s = rates.all_gather_s(size_bytes, settings.etp, 1) + rates.reduce_scatter_s(size_bytes, settings.etp, 1)
    return [communication("tp", once_s, once_s, module="moe")]
