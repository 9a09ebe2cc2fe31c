"""The MoE block of a layer: router, exchange, grouped expert GEMMs, activation, shared expert."""

from __future__ import annotations

from primus_mcp.inputs.architecture import Architecture, MixtureOfExperts
from primus_mcp.inputs.constants import TIME
from primus_mcp.projection.layers.dense_mlp import activation_bytes, clamp_bytes, mlp_pieces
from primus_mcp.projection.layers.linear import accumulation, bias_gradient_rate, linear
from primus_mcp.projection.layers.moe_exchange import (
    exchange_piece,
    expert_tensor_parallel,
    permute_piece,
    received_copies,
    router_piece,
    uses_deepep,
)
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import Piece
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.projection.layers.tensor_parallel import tensor_parallel
from primus_mcp.projection.ops.gemm import GroupedKernel

_KERNELS: dict[str, GroupedKernel] = {"turbo": "persistent", "te": "loop", "legacy": "loop", "sequential": "sequential"}
WORST_CASE_STAGE = 3


def expert_rows(arch: Architecture, experts: MixtureOfExperts, settings: LayerSettings) -> float:
    """Rows of one micro-batch that the experts of a rank work on: T k (x ETP: gathered), times the load imbalance of the slowest rank."""
    return settings.sharded_tokens(arch) * experts.top_k * settings.etp * settings.expert_load_imbalance


def _walked_rows(rows: float, settings: LayerSettings) -> float:
    """Sync-free stage 3 allocates T EP k rows, and casts and masked activation walk them all."""
    return rows * settings.ep if settings.sync_free_stage >= WORST_CASE_STAGE else rows


def _expert_linears(rates: Rates, arch: Architecture, experts: MixtureOfExperts, settings: LayerSettings) -> tuple[Piece, ...]:
    local = experts.num_experts // settings.ep
    rows = expert_rows(arch, experts, settings)
    walked = _walked_rows(rows, settings)
    width = experts.expert_ffn_hidden_size / settings.etp
    accumulate = accumulation(settings, turbo=settings.grouped_gemm == "turbo", legacy=settings.grouped_gemm == "legacy")
    sides = (((2 if arch.gated_mlp else 1) * width, float(arch.hidden_size)), (float(arch.hidden_size), width))
    fused = settings.fused_expert_mlp
    bias_rate = bias_gradient_rate(rates, settings, settings.expert_precision, turbo=settings.grouped_gemm != "te")
    return tuple(
        linear(
            rates,
            "experts",
            tokens=rows / local,
            outputs=outputs,
            inputs=inputs,
            precision=settings.expert_precision,
            cast_bytes=settings.expert_cast_bytes,
            accumulate=accumulate,
            scaling=settings.expert_scaling,
            trains_weights=settings.trains_weights,
            groups=local,
            kernel=_KERNELS[settings.grouped_gemm],
            module="moe",
            cast_rows=(walked, walked),
            casts_input=not (fused and last),
            casts_gradient=not fused or bool(last),
            weight_rate=bias_rate if arch.linear_bias and not last else 1.0,
        )
        for last, (outputs, inputs) in enumerate(sides)
    )


def activation_is_eager(arch: Architecture, settings: LayerSettings) -> bool:
    """TE and Turbo experts without a fused activation run it as eager PyTorch; the legacy grouped MLP always compiles it.

    Sync-free stage 3 brings the fused kernel. Source: Megatron-LM moe/experts.py:300-325, Primus rocm_arg_validation.py:44-73.
    """
    if settings.grouped_gemm == "legacy" or settings.sync_free_stage >= WORST_CASE_STAGE or not arch.gated_mlp:
        return False
    return not (settings.fused_expert_activation or settings.fused_swiglu)


def _activation(rates: Rates, arch: Architecture, experts: MixtureOfExperts, settings: LayerSettings) -> Piece:
    rows = _walked_rows(expert_rows(arch, experts, settings), settings)
    if settings.fused_expert_mlp:
        forward_bytes, backward_bytes = TIME["fused_mlp.forward"], TIME["fused_mlp.backward"]
    elif activation_is_eager(arch, settings):
        clamp = clamp_bytes(arch)
        forward_bytes = TIME["expert_activation.eager.forward"] + clamp[0]
        backward_bytes = TIME["expert_activation.eager.backward"] + clamp[1]
    else:
        forward_bytes, backward_bytes = activation_bytes(arch, fused=True)
    elements = rows * experts.expert_ffn_hidden_size / settings.etp
    return Piece(
        name="expert_activation",
        module="moe_act",
        forward_s=rates.pass_s(elements * forward_bytes),
        backward_s=rates.pass_s(elements * backward_bytes),
    )


def _padding(rates: Rates, arch: Architecture, experts: MixtureOfExperts, settings: LayerSettings) -> list[Piece]:
    """TransformerEngine pads the rows of each expert to a multiple of 16 (32) for FP8: copies in and out, unless counts are even."""
    if settings.expert_precision == "bf16" or settings.grouped_gemm != "te" or settings.forced_balance or settings.fused_expert_mlp:
        return []
    copy_s = rates.pass_s(expert_rows(arch, experts, settings) * arch.hidden_size * TIME["fp8_padding"])
    return [Piece(name="permute", module="moe", forward_s=copy_s, backward_s=copy_s)]


def _expert_bias(rates: Rates, arch: Architecture, experts: MixtureOfExperts, settings: LayerSettings) -> list[Piece]:
    """Per-expert biases of the second product are added by eager fp32 operations over all rows; fused experts add them in their kernels.

    Those of the first product are in the GEMMs either way, their gradient too.
    """
    if not arch.linear_bias:
        return []
    elements = expert_rows(arch, experts, settings) * arch.hidden_size
    fused = settings.fused_expert_mlp
    backward_bytes = TIME["expert_bias.fused_backward" if fused else "expert_bias.backward"]
    return [
        Piece(
            name="expert_bias",
            module="moe",
            forward_s=0.0 if fused else rates.pass_s(elements * TIME["expert_bias.forward"]),
            backward_s=rates.pass_s(elements * backward_bytes),
        )
    ]


def _shared_expert(rates: Rates, arch: Architecture, experts: MixtureOfExperts, settings: LayerSettings) -> tuple[Piece, ...]:
    """A dense MLP of its own. Where it overlaps the exchange, its stream gathers in BF16 outside the linears, which keep what was gathered.

    Source: NVIDIA/Megatron-LM core/transformer/moe/shared_experts.py (`pre_forward_comm`: both linears lose their `parallel_mode`).
    Known error: that gather and the reduce-scatter are felt whole, though the exchange runs beside them.
    """
    width, apart = experts.shared_expert_ffn_hidden_size, settings.shared_expert_overlap
    if not width:
        return ()
    pieces = mlp_pieces(rates, arch, settings, width, name="shared_expert", module="shared_experts", casts_shards=not apart)
    traffic = tensor_parallel(
        rates, arch, settings, pieces[:1], pieces[1], module="shared_experts", quantized=not apart, gathers_again=not apart
    )
    return (*pieces, *traffic)


def moe_pieces(rates: Rates, arch: Architecture, experts: MixtureOfExperts, settings: LayerSettings) -> tuple[Piece, ...]:
    """The whole MoE block. Experts gather no hidden state over TP: with ETP 1 every TP rank routes its own sequence shard."""
    shared = _shared_expert(rates, arch, experts, settings)
    beside = (
        sum(p.forward_s for p in shared if p.collective is None),
        sum(p.backward_s + p.weight_s for p in shared if p.collective is None),
    )
    return (
        router_piece(rates, arch, experts, settings),
        permute_piece(rates, arch, experts, settings),
        *_expert_linears(rates, arch, experts, settings),
        _activation(rates, arch, experts, settings),
        *_padding(rates, arch, experts, settings),
        *_expert_bias(rates, arch, experts, settings),
        *shared,
        exchange_piece(rates, arch, experts, settings, beside),
        *expert_tensor_parallel(rates, arch, experts, settings),
    )


__all__ = ["activation_is_eager", "expert_rows", "moe_pieces", "received_copies", "uses_deepep"]
