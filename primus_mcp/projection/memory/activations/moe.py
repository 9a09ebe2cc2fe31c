"""Feed-forward half of an MoE layer: router, shared expert, dispatch, grouped GEMMs, combine.

R = dispatched rows = local tokens * top-k * ETP * imbalance; EP does not appear. The [R, h] copies of permutation and exchange are not
kept; the router probabilities multiply inside the activation, so combine keeps nothing. Source: NVIDIA/Megatron-LM core/transformer/moe,
AMD-AGI/Primus@fd1eeabb; DeepSeek-V2 on B200 -0.2 to -0.3%. Known error: the number of fp32 router tensors is judgement (0.1 GiB).
"""

from __future__ import annotations

from primus_mcp.inputs.architecture import MixtureOfExperts
from primus_mcp.inputs.constants import MEMORY
from primus_mcp.projection.memory.activations.adapters import with_adapter
from primus_mcp.projection.memory.activations.mlp import linear_pair, mlp_norm
from primus_mcp.projection.memory.activations.operation import Operation, RecomputeModule, Saved, kept
from primus_mcp.projection.memory.activations.settings import ActivationSettings
from primus_mcp.units import BF16_BYTES, FP32_BYTES

_MOE: tuple[RecomputeModule, ...] = ("moe",)


def moe_operations(settings: ActivationSettings) -> tuple[Operation, ...]:
    """Norm, router, shared expert, dispatch, experts and combine. The shared expert's output waits for the combine."""
    experts = settings.arch.experts
    assert experts is not None
    shared: tuple[Operation, ...] = ()
    waiting = 0.0
    if experts.shared_expert_ffn_hidden_size:
        copy = settings.local_tokens * settings.arch.hidden_size * settings.own_input_bytes("linear_fc1")
        shared = linear_pair(
            settings, experts.shared_expert_ffn_hidden_size, "moe", "shared_expert_", kept(copy), ("moe", "shared_experts")
        )
        waiting = settings.hidden_bytes
    return (
        mlp_norm(settings, own_module=True),
        _router(settings, experts),
        *shared,
        _dispatch(settings, experts, waiting),
        *_grouped_gemms(settings, experts, waiting),
        _combine(settings, waiting),
    )


def _router(settings: ActivationSettings, experts: MixtureOfExperts) -> Operation:
    """The norm output (shared by router, shared expert and permutation) and the [tokens, E] score tensors."""
    count = MEMORY["fused_router_fp32_tensors" if settings.fused_router else "router_fp32_tensors"].value
    scores = settings.local_tokens * experts.num_experts
    hidden = settings.hidden_bytes
    return Operation(
        name="router",
        group="moe",
        saved=(Saved(size_bytes=hidden, producer="mlp_norm", input_of=_MOE), *kept(scores * (FP32_BYTES * count + BF16_BYTES))),
        forward_transient_bytes=scores * 2 * FP32_BYTES,
        backward_transient_bytes=scores * 2 * FP32_BYTES + 2 * hidden,
        modules=_MOE,
    )


def _exchange_bytes(settings: ActivationSettings) -> float:
    """[rows, h] buffers alive at once while tokens move.

    Library all-to-all: permuted, sent and received copies (three). DeepEP: received and permuted (two). Sync-free stage 2 and 3 receive
    into a buffer of tokens * EP rows whatever arrives, the all-gather dispatcher gathers that many.
    """
    rows = settings.dispatched_rows * settings.arch.hidden_size * BF16_BYTES
    if settings.dispatch_ranks > 1:
        return settings.hidden_bytes * settings.dispatch_ranks + settings.expert_rows * settings.arch.hidden_size * BF16_BYTES
    return (2 if settings.dispatcher == "deepep" else 3) * rows


def _dispatch(settings: ActivationSettings, experts: MixtureOfExperts, waiting: float) -> Operation:
    """Saved: the row-id map of the permutation (two ids an expert, one count a token) and one fp32 probability a row."""
    map_bytes = settings.local_tokens * (2 * experts.num_experts + 1) * FP32_BYTES
    transient = _exchange_bytes(settings) + waiting
    return Operation(
        name="dispatch",
        group="moe",
        saved=kept(map_bytes, settings.expert_rows * FP32_BYTES),
        forward_transient_bytes=transient,
        backward_transient_bytes=transient + settings.hidden_bytes,
        modules=_MOE,
    )


def _grouped_gemms(settings: ActivationSettings, experts: MixtureOfExperts, waiting: float) -> tuple[Operation, ...]:
    """Saved: fc1 input R h, fc1 output 2 R f, fc2 input R f, each width over ETP.

    An eager SwiGLU (TE or Turbo grouped GEMM without activation fusion; the legacy one is always compiled) also keeps silu and the
    unweighted product: 10 B a row and f instead of 6. Source: Megatron-LM core/transformer/moe/experts.py:300-325.
    """
    arch, rows, residual = settings.arch, settings.expert_rows, settings.hidden_bytes + waiting
    width = experts.expert_ffn_hidden_size / settings.etp
    gate = 2 if arch.gated_mlp else 1
    row_hidden = rows * arch.hidden_size * BF16_BYTES
    input_bytes = rows * arch.hidden_size * settings.kept_input_bytes("linear_fc1", expert=True)
    first_out, activated = rows * width * gate * BF16_BYTES, rows * width * BF16_BYTES
    second_input = rows * width * settings.kept_input_bytes("linear_fc2", expert=True)
    fused = settings.grouped_gemm == "legacy" or settings.fused_swiglu or settings.fused_expert_activation
    eager = 0.0 if fused else 2 * activated
    first = Operation(
        name="expert_fc1",
        group="moe",
        saved=kept(input_bytes),
        forward_transient_bytes=first_out + waiting,
        backward_transient_bytes=first_out + row_hidden + residual + settings.wgrad_bytes(width * gate, arch.hidden_size, expert=True),
        pinned_bytes=input_bytes + first_out,
        modules=_MOE,
    )
    activation = Operation(
        name="expert_activation",
        group="moe",
        saved=kept(first_out, eager, rows * FP32_BYTES),
        forward_transient_bytes=activated + eager + waiting,
        backward_transient_bytes=activated + eager + first_out + residual,
        modules=("moe", "moe_act"),
    )
    second = Operation(
        name="expert_fc2",
        group="moe",
        saved=(Saved(size_bytes=second_input, producer="expert_activation"),),
        forward_transient_bytes=row_hidden + waiting,
        backward_transient_bytes=row_hidden + activated + residual + settings.wgrad_bytes(arch.hidden_size, width, expert=True),
        pinned_bytes=second_input + row_hidden,
        modules=_MOE,
    )
    return (
        with_adapter(settings, first, "linear_fc1", rows, (arch.hidden_size, gate * width), expert=True),
        activation,
        with_adapter(settings, second, "linear_fc2", rows, (width, arch.hidden_size), expert=True),
    )


def _combine(settings: ActivationSettings, waiting: float) -> Operation:
    transient = _exchange_bytes(settings) + waiting
    return Operation(
        name="combine",
        group="moe",
        forward_transient_bytes=transient,
        backward_transient_bytes=transient + settings.hidden_bytes,
        modules=_MOE,
    )
