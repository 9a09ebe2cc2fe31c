"""What lies in memory from the first step to the last: weights, main gradients, optimizer states, FP8 copies.

N_d dense and N_x routed-expert elements of a rank; shards: dp * cp for dense, expert_dp for experts (Megatron's distributed optimizer).
Two copies of the model (DualPipe) double N and the shards: each is a replica of the other, held by other ranks.
  weights 2 (N_d + N_x); main gradients g (N_d + N_x), never sharded; optimizer o (N_d / (dp cp) + N_x / expert_dp)
With g = 4 and o = 4 + 4 + 4 that is 18 B a parameter unsharded. Torch FSDP2 divides all three by dp * cp, but not FP8 copies.
Source: NVIDIA/Megatron-LM core/optimizer/distrib_optimizer.py; 14 B200 runs within 0.33%.
Known error: none for BF16; no run tests FP8 copies.
"""

from __future__ import annotations

from dataclasses import dataclass

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.adapters import Adapters, adapter_parameters, adapters_of
from primus_mcp.projection.layers.settings import expert_precision, linear_precision
from primus_mcp.projection.memory.stage import Stage
from primus_mcp.projection.parameters import layer_shapes
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


def optimizer_bytes_per_parameter(config: TrainingConfig) -> float:
    """Master copy and states of a parameter: Adam two moments, Muon and SGD with momentum one.

    `main_param_bytes` is 2 where the optimizer keeps only the 16 bits that the BF16 weight lacks (store_param_remainders).
    """
    moments = config.exp_avg_bytes + (config.exp_avg_sq_bytes if config.optimizer == "adam" else 0)
    return config.main_param_bytes + moments


def static_memory(stage: Stage, arch: Architecture, config: TrainingConfig, placement: Placement) -> StaticMemory:
    """Static bytes of one pipeline rank."""
    held = stage.parameters
    shards = placement.replicas * config.cp
    adapters = adapters_of(config)
    if adapters is not None:
        return _lora(stage, arch, config, placement, adapters)
    if config.use_torch_fsdp2:
        return _fully_sharded(stage, config, shards)
    dense_shards, expert_shards = (shards, placement.expert_replicas) if config.use_distributed_optimizer else (1, 1)
    owned = held.dense / dense_shards + held.expert / expert_shards
    primary, copies = _fp8_weights(stage, config)
    return StaticMemory(
        weights_bytes=held.total * BF16_BYTES - primary,
        main_gradients_bytes=held.total * config.main_grad_bytes,
        optimizer_states_bytes=owned * optimizer_bytes_per_parameter(config) + _muon_extra(stage, config, dense_shards),
        fp8_weight_copies_bytes=copies,
        step_transient_bytes=owned * _gradient_cast_bytes(config),
    )


def _gradient_cast_bytes(config: TrainingConfig) -> float:
    """Without precision-aware optimizer, BF16 main gradients are cast to fp32 for the step (owned shard only)."""
    aware = config.exp_avg_bytes < FP32_BYTES or config.main_param_bytes < FP32_BYTES
    return 0.0 if aware or config.main_grad_bytes >= FP32_BYTES else FP32_BYTES


def _muon_extra(stage: Stage, config: TrainingConfig, shards: int) -> float:
    """Muon steps matrices of the layers only; embedding, output matrix and norms keep Adam's second moment."""
    if config.optimizer != "muon":
        return 0.0
    others = stage.parameters.total - stage.linear_elements - stage.expert_elements
    return others / shards * config.exp_avg_sq_bytes


def _fp8_weights(stage: Stage, config: TrainingConfig) -> tuple[float, float]:
    """(bytes that FP8 primary weights save, bytes of cached FP8 copies).

    TE caches row-wise and column-wise copies over the micro-batches of a step (1 + 1 B; 1 B without the transpose cache); Turbo keeps
    one for tensorwise, two for blockwise and mxfp8. With fp8_param_gather the row-wise copy is the weight itself.
    Source: TransformerEngine _fp8_workspaces; AMD-AGI/Primus-Turbo. Known error: untested, no run with a memory figure.
    """
    if config.fp8 is None and not config.fp4:
        return 0.0, 0.0
    linear, expert = linear_precision(config), expert_precision(config)
    if linear == "bf16" and expert == "bf16":
        return 0.0, 0.0
    saved = copies = 0.0
    held = ((linear, stage.linear_elements, config.turbo_gemm), (expert, stage.expert_elements, config.grouped_gemm == "turbo"))
    for precision, elements, turbo in held:
        if precision == "bf16":
            continue
        size = FP8_BYTES / 2 if precision == "fp4" else FP8_BYTES
        both = config.fp8_recipe != "tensorwise" if turbo else config.fp8_weight_transpose_cache
        copies += elements * size * (2 if both else 1)
        if config.fp8_param_gather and not turbo:
            copies -= elements * size
            saved += elements * (BF16_BYTES - size)
    return saved, copies


def _fully_sharded(stage: Stage, config: TrainingConfig, shards: int) -> StaticMemory:
    """Torch FSDP2: every state divided by dp * cp. Gradients are kept in the dtype of the BF16 parameters; their fp32 copy for the step is
    sharded and exists without activations: 2 + 2 + 12 B a parameter, 20 B during the step.
    Parameters sharded in fp32 (TorchTitan) are their own master copy: 4 + 4 + 8 B.

    FP8 copies are not sharded: a module casts the gathered weight in the first micro-batch and keeps the whole copy for the others
    (TE knows sharded copies only through `fsdp_group`, which Megatron does not pass), unless layers are gathered in FP8 or cast anew in
    each micro-batch, as TorchTitan does.

    Source: torch fully_shard foreach_reduce; Megatron-LM core/optimizer/optimizer.py (main_param.grad = grad.float()),
    core/extensions/transformer_engine.py (is_first_microbatch); TransformerEngine module/base.py get_weight_workspace.
    """
    owned = stage.parameters.total / shards
    size = config.fsdp_param_bytes
    own_master = size >= FP32_BYTES
    return StaticMemory(
        weights_bytes=owned * size,
        main_gradients_bytes=owned * size,
        optimizer_states_bytes=owned * (optimizer_bytes_per_parameter(config) - (config.main_param_bytes if own_master else 0)),
        fp8_weight_copies_bytes=0.0 if own_master or config.fp8_param_gather else _fp8_weights(stage, config)[1],
        step_transient_bytes=0.0 if own_master else owned * FP32_BYTES,
    )


def _lora(stage: Stage, arch: Architecture, config: TrainingConfig, placement: Placement, adapters: Adapters) -> StaticMemory:
    """Frozen weights with their FP8 copies; adapters have gradients and states of their own, those of experts sharded over expert DP."""
    layers = layer_shapes(arch, placement.of_rank(stage.rank))
    held = adapter_parameters(arch, layers, config.tp, config.ep, config.etp, adapters)
    shards = (placement.replicas * config.cp, placement.expert_replicas) if config.use_distributed_optimizer else (1, 1)
    owned = held.dense / shards[0] + held.expert / shards[1]
    primary, copies = _fp8_weights(stage, config)
    return StaticMemory(
        weights_bytes=(stage.parameters.total + held.total) * BF16_BYTES - primary,
        main_gradients_bytes=held.total * config.main_grad_bytes,
        optimizer_states_bytes=owned * optimizer_bytes_per_parameter(config),
        fp8_weight_copies_bytes=copies,
        step_transient_bytes=0.0,
    )
