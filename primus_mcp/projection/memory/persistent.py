"""Buffers that live through the run beside the states: placeholder gradients, gather buffer, pipeline reference, workspaces, FSDP2 layers.

Source: TransformerEngine get_dummy_wgrad and gemm.py, NVIDIA/Megatron-LM tensor_parallel/layers.py and pipeline_parallel/schedules.py;
each matched to 0.05% by B200 runs, except FSDP2 and AMD workspaces (no run).
"""

from __future__ import annotations

from dataclasses import dataclass

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import MEMORY
from primus_mcp.inputs.hardware import Vendor
from primus_mcp.inputs.layout import Chunk
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.memory.activations.settings import ActivationSettings
from primus_mcp.projection.memory.static import rank_weights
from primus_mcp.projection.parameters import embedding_parameters, final_norm_parameters, head_parameters, layer_parameters
from primus_mcp.units import BF16_BYTES, FP32_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistentMemory:
    """Bytes of one rank, all inside torch's allocator."""

    placeholder_gradients_bytes: float
    gather_buffer_bytes: float
    pipeline_gradient_bytes: float
    workspaces_bytes: float
    unsharded_layers_bytes: float


def persistent_memory(
    arch: Architecture, config: TrainingConfig, settings: ActivationSettings, chunks: tuple[Chunk, ...], rank: int, vendor: Vendor
) -> PersistentMemory:
    """Everything above for the pipeline rank that holds `chunks`.

    The gather buffer (tokens * h, never freed) is on the rank of the output matrix under sequence parallelism. Ranks after the first
    still reference the previous input gradient during the next backward.
    """
    has_loss = any(chunk.loss for chunk in chunks)
    return PersistentMemory(
        placeholder_gradients_bytes=placeholder_bytes(arch, config, chunks),
        gather_buffer_bytes=settings.gathered_bytes if has_loss else 0.0,
        pipeline_gradient_bytes=settings.hidden_bytes if rank > 0 else 0.0,
        workspaces_bytes=_workspaces(arch, config, vendor),
        unsharded_layers_bytes=_unsharded_layers(arch, config, chunks) if config.use_torch_fsdp2 else 0.0,
    )


def placeholder_bytes(arch: Architecture, config: TrainingConfig, chunks: tuple[Chunk, ...]) -> float:
    """TE returns a BF16 placeholder for each weight gradient that it accumulated into main_grad: one for each distinct shape, never freed.

    The grouped GEMM holds one expert's shape for each linear. Turbo linears and the legacy grouped GEMM do not accumulate in place.
    """
    if not config.gradient_accumulation_fusion or config.finetune == "lora":
        return 0.0
    shapes = {
        (weight.rows, weight.columns)
        for weight in rank_weights(arch, config.tp, config.ep, config.etp, chunks)
        if (config.grouped_gemm == "te" if weight.expert else not config.turbo_gemm)
    }
    return sum(rows * columns for rows, columns in shapes) * BF16_BYTES


def _workspaces(arch: Architecture, config: TrainingConfig, vendor: Vendor) -> float:
    grouped = MEMORY["te_grouped_gemm_workspace_bytes"].value if arch.is_moe and config.grouped_gemm == "te" else 0.0
    return MEMORY["te_gemm_workspace_bytes"].value + MEMORY[f"{vendor}_blas_workspace_bytes"].value + grouped


def _unsharded_layers(arch: Architecture, config: TrainingConfig, chunks: tuple[Chunk, ...]) -> float:
    """FSDP2 at a layer's backward: two gathered layers (this one and the prefetched next) and the root group (embedding, norm, output
    matrix) in BF16, one layer's unsharded BF16 gradient and its fp32 reduce-scatter input, the root's BF16 gradient.

    Source: torch fully_shard with reshard_after_forward, Megatron-LM core/distributed/torch_fully_sharded_data_parallel.py.
    """
    layer = max(
        layer_parameters(arch, arch.moe_layers[i], config.tp, config.ep, config.etp).total for chunk in chunks for i in chunk.layers
    )
    root = embedding_parameters(arch, config.tp).total + final_norm_parameters(arch).total
    root += 0 if arch.tied_embeddings else head_parameters(arch, config.tp).total
    return layer * (2 * BF16_BYTES + BF16_BYTES + FP32_BYTES) + root * 2 * BF16_BYTES
