"""What lies in memory from the first step to the last: weights, main gradients, optimizer states, FP8 copies.

N_d dense and N_x routed-expert elements of a rank; shards: dp * cp for dense, expert_dp for experts (Megatron's distributed optimizer).
  weights 2 (N_d + N_x); main gradients g (N_d + N_x), never sharded; optimizer o (N_d / (dp cp) + N_x / expert_dp)
With g = 4 and o = 4 + 4 + 4 that is 18 B a parameter unsharded. Torch FSDP2 divides all three by dp * cp.
Source: NVIDIA/Megatron-LM core/optimizer/distrib_optimizer.py; 14 B200 runs within 0.31%. Known error: none for BF16; no run tests FP8 copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.layout import Chunk
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.layers.settings import expert_precision, linear_precision
from primus_mcp.projection.memory.weights import LinearWeight, layer_weights
from primus_mcp.projection.parameters import (
    RankParameters,
    embedding_parameters,
    final_norm_parameters,
    head_parameters,
    layer_parameters,
    mtp_parameters,
)
from primus_mcp.projection.placement import Placement
from primus_mcp.units import BF16_BYTES, FP8_BYTES, FP32_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMemory:
    """Bytes of one rank. `step_transient_bytes` exist only during the optimizer step, when no activation is alive."""

    weights_bytes: float
    main_gradients_bytes: float
    optimizer_states_bytes: float
    fp8_weight_copies_bytes: float
    step_transient_bytes: float


@lru_cache(maxsize=16384)
def rank_parameters(arch: Architecture, tp: int, ep: int, etp: int, pp: int, chunks: tuple[Chunk, ...]) -> RankParameters:
    """Parameters of a pipeline rank, padded vocabulary included.

    A tied output matrix is stored once where the embedding is on the same rank; with MTP the rank of the loss holds a second copy of the
    embedding unless it has the first.
    """
    total = RankParameters()
    has_embedding = any(chunk.embedding for chunk in chunks)
    for chunk in chunks:
        moe = sum(arch.moe_layers[layer] for layer in chunk.layers)
        for kind, count in ((True, moe), (False, len(chunk.layers) - moe)):
            total += layer_parameters(arch, kind, tp, ep, etp).times(count) if count else RankParameters()
        if chunk.mtp_layers:
            total += mtp_parameters(arch, tp, ep, etp).times(chunk.mtp_layers)
            total += RankParameters() if has_embedding else RankParameters(dense_sharded=embedding_parameters(arch, tp).dense_sharded)
        if chunk.embedding:
            total += embedding_parameters(arch, tp)
        if chunk.loss:
            total += final_norm_parameters(arch)
            total += RankParameters() if arch.tied_embeddings and has_embedding else head_parameters(arch, tp)
    return total


@lru_cache(maxsize=16384)
def rank_weights(arch: Architecture, tp: int, ep: int, etp: int, chunks: tuple[Chunk, ...]) -> tuple[LinearWeight, ...]:
    """Every linear of the layers on a rank, MTP layers included; embedding, output matrix and router are no TE linears."""
    kinds = [arch.moe_layers[layer] for chunk in chunks for layer in chunk.layers]
    kinds += [arch.moe_layers[-1]] * sum(chunk.mtp_layers for chunk in chunks)
    return tuple(weight for moe in kinds for weight in layer_weights(arch, moe, tp, ep, etp))


def optimizer_bytes_per_parameter(config: TrainingConfig) -> float:
    """Master copy and states of a parameter: Adam two moments, Muon and SGD with momentum one.

    `main_param_bytes` is 2 where the optimizer keeps only the 16 bits that the BF16 weight lacks (store_param_remainders).
    """
    moments = config.exp_avg_bytes + (config.exp_avg_sq_bytes if config.optimizer == "adam" else 0)
    return config.main_param_bytes + moments


def static_memory(arch: Architecture, config: TrainingConfig, placement: Placement, chunks: tuple[Chunk, ...]) -> StaticMemory:
    """Static bytes of the rank that holds `chunks`."""
    held = rank_parameters(arch, config.tp, config.ep, config.etp, config.pp, chunks)
    shards = placement.dp * config.cp
    if config.finetune == "lora":
        return _lora(arch, config, held, chunks, shards, placement.expert_dp)
    if config.use_torch_fsdp2:
        return _fully_sharded(config, held.total, shards)
    dense_shards, expert_shards = (shards, placement.expert_dp) if config.use_distributed_optimizer else (1, 1)
    owned = held.dense / dense_shards + held.expert / expert_shards
    primary, copies = _fp8_weights(arch, config, chunks)
    return StaticMemory(
        weights_bytes=held.total * BF16_BYTES - primary,
        main_gradients_bytes=held.total * config.main_grad_bytes,
        optimizer_states_bytes=owned * optimizer_bytes_per_parameter(config) + _muon_extra(arch, config, held, dense_shards, chunks),
        fp8_weight_copies_bytes=copies,
        step_transient_bytes=owned * _gradient_cast_bytes(config),
    )


def _gradient_cast_bytes(config: TrainingConfig) -> float:
    """Without precision-aware optimizer, BF16 main gradients are cast to fp32 for the step (owned shard only)."""
    aware = config.exp_avg_bytes < FP32_BYTES or config.main_param_bytes < FP32_BYTES
    return 0.0 if aware or config.main_grad_bytes >= FP32_BYTES else FP32_BYTES


def _muon_extra(arch: Architecture, config: TrainingConfig, held: RankParameters, shards: int, chunks: tuple[Chunk, ...]) -> float:
    """Muon steps matrices of the layers only; embedding, output matrix and norms keep Adam's second moment."""
    if config.optimizer != "muon":
        return 0.0
    matrices = sum(weight.elements for weight in rank_weights(arch, config.tp, config.ep, config.etp, chunks))
    return max(held.total - matrices, 0.0) / shards * config.exp_avg_sq_bytes


def _fp8_weights(arch: Architecture, config: TrainingConfig, chunks: tuple[Chunk, ...]) -> tuple[float, float]:
    """(bytes that FP8 primary weights save, bytes of cached FP8 copies).

    TE caches row-wise and column-wise copies over the micro-batches of a step (1 + 1 B; 1 B without the transpose cache); Turbo keeps
    one for tensorwise, two for blockwise and mxfp8. With fp8_param_gather the row-wise copy is the weight itself.
    Source: TransformerEngine _fp8_workspaces; AMD-AGI/Primus-Turbo. Known error: untested, no run with a memory figure.
    """
    linear, expert = linear_precision(config), expert_precision(config)
    if linear == "bf16" and expert == "bf16":
        return 0.0, 0.0
    saved = copies = 0.0
    for weight in rank_weights(arch, config.tp, config.ep, config.etp, chunks):
        precision = expert if weight.expert else linear
        if precision == "bf16":
            continue
        turbo = config.grouped_gemm == "turbo" if weight.expert else config.turbo_gemm
        size = FP8_BYTES / 2 if precision == "fp4" else FP8_BYTES
        both = config.fp8_recipe != "tensorwise" if turbo else config.fp8_weight_transpose_cache
        copies += weight.elements * size * (2 if both else 1)
        if config.fp8_param_gather and not turbo:
            copies -= weight.elements * size
            saved += weight.elements * (BF16_BYTES - size)
    return saved, copies


def _fully_sharded(config: TrainingConfig, parameters: int, shards: int) -> StaticMemory:
    """Torch FSDP2: every state divided by dp * cp, and the fp32 cast of the gradients for the step is sharded as well."""
    owned = parameters / shards
    return StaticMemory(
        weights_bytes=owned * BF16_BYTES,
        main_gradients_bytes=owned * config.main_grad_bytes,
        optimizer_states_bytes=owned * optimizer_bytes_per_parameter(config),
        fp8_weight_copies_bytes=0.0,
        step_transient_bytes=owned * _gradient_cast_bytes(config),
    )


def _lora(
    arch: Architecture, config: TrainingConfig, held: RankParameters, chunks: tuple[Chunk, ...], shards: int, expert_shards: int
) -> StaticMemory:
    """Frozen BF16 weights, and adapters of rank * (rows + columns) elements a linear with gradients and states of their own."""
    adapters = {True: 0.0, False: 0.0}
    for weight in rank_weights(arch, config.tp, config.ep, config.etp, chunks):
        adapters[weight.expert] += config.lora_rank * (weight.rows + weight.columns) * weight.count
    total = adapters[True] + adapters[False]
    dense_shards, routed_shards = (shards, expert_shards) if config.use_distributed_optimizer else (1, 1)
    owned = adapters[False] / dense_shards + adapters[True] / routed_shards
    return StaticMemory(
        weights_bytes=(held.total + total) * BF16_BYTES,
        main_gradients_bytes=total * config.main_grad_bytes,
        optimizer_states_bytes=owned * optimizer_bytes_per_parameter(config),
        fp8_weight_copies_bytes=0.0,
        step_transient_bytes=0.0,
    )
