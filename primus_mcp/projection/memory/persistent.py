"""Buffers that live through the run beside the states: placeholder gradients, gather buffer, pipeline reference, workspaces, FSDP2 layers.

Source: TransformerEngine get_dummy_wgrad and gemm.py, NVIDIA/Megatron-LM tensor_parallel/layers.py and pipeline_parallel/schedules.py;
each matched to 0.05% by B200 runs, except FSDP2 and AMD workspaces (no run).
"""

from __future__ import annotations

from dataclasses import dataclass

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import MEMORY
from primus_mcp.inputs.hardware import Vendor
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.memory.activations.settings import ActivationSettings
from primus_mcp.projection.memory.stage import Stage
from primus_mcp.projection.parameters import embedding_parameters, final_norm_parameters, head_parameters
from primus_mcp.units import BF16_BYTES, FP32_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistentMemory:
    """Bytes of one rank, all inside torch's allocator."""

    placeholder_gradients_bytes: float
    gather_buffer_bytes: float
    pipeline_gradient_bytes: float
    workspaces_bytes: float
    unsharded_layers_bytes: float


def persistent_memory(stage: Stage, config: TrainingConfig, settings: ActivationSettings, vendor: Vendor) -> PersistentMemory:
    """Everything above for one pipeline rank.

    The gather buffer (tokens * h, never freed) is on the rank of the output matrix under sequence parallelism. Ranks after the first
    still reference the previous input gradient during the next backward.
    """
    return PersistentMemory(
        placeholder_gradients_bytes=stage.placeholder_bytes,
        gather_buffer_bytes=settings.gathered_bytes if stage.has_loss else 0.0,
        pipeline_gradient_bytes=settings.hidden_bytes if stage.rank > 0 else 0.0,
        workspaces_bytes=_workspaces(settings.arch, config, vendor),
        unsharded_layers_bytes=_unsharded_layers(stage, settings.arch, config) if config.use_torch_fsdp2 else 0.0,
    )


def _workspaces(arch: Architecture, config: TrainingConfig, vendor: Vendor) -> float:
    grouped = MEMORY["te_grouped_gemm_workspace_bytes"].value if arch.is_moe and config.grouped_gemm == "te" else 0.0
    return MEMORY["te_gemm_workspace_bytes"].value + MEMORY[f"{vendor}_blas_workspace_bytes"].value + grouped


def _unsharded_layers(stage: Stage, arch: Architecture, config: TrainingConfig) -> float:
    """FSDP2 at a layer's backward: two gathered layers (this one and the prefetched next) and the root group (embedding, norm, output
    matrix) in BF16, one layer's unsharded BF16 gradient and its fp32 reduce-scatter input, the root's BF16 gradient.

    Source: torch fully_shard with reshard_after_forward, Megatron-LM core/distributed/torch_fully_sharded_data_parallel.py.
    """
    layer = stage.largest_layer_parameters
    root = embedding_parameters(arch, config.tp).total + final_norm_parameters(arch).total
    root += 0 if arch.tied_embeddings else head_parameters(arch, config.tp).total
    return layer * (2 * BF16_BYTES + BF16_BYTES + FP32_BYTES) + root * 2 * BF16_BYTES
