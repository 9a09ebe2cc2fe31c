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
from primus_mcp.projection.memory.fully_sharded import pipeline_buffers_bytes, unsharded_bytes
from primus_mcp.projection.memory.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistentMemory:
    """Bytes of one rank, all inside torch's allocator."""

    placeholder_gradients_bytes: float
    gather_buffer_bytes: float
    pipeline_gradient_bytes: float
    workspaces_bytes: float
    unsharded_layers_bytes: float
    pipeline_buffers_bytes: float


def persistent_memory(
    stage: Stage, config: TrainingConfig, settings: ActivationSettings, workspaces: float, live_chunks: int, micro_batches: int
) -> PersistentMemory:
    """Everything above for one pipeline rank.

    The gather buffer (tokens * h, never freed) is on the rank of the output matrix under sequence parallelism. Ranks after the first
    still reference the previous input gradient during the next backward.
    """
    return PersistentMemory(
        placeholder_gradients_bytes=stage.placeholder_bytes,
        gather_buffer_bytes=settings.gathered_bytes if stage.has_loss else 0.0,
        pipeline_gradient_bytes=settings.hidden_bytes if stage.rank > 0 else 0.0,
        workspaces_bytes=workspaces,
        unsharded_layers_bytes=unsharded_bytes(stage, settings.arch, config) if config.use_torch_fsdp2 else 0.0,
        pipeline_buffers_bytes=pipeline_buffers_bytes(stage, config, settings, live_chunks, micro_batches),
    )


def workspaces_bytes(arch: Architecture, config: TrainingConfig, vendor: Vendor) -> float:
    """TE's GEMM workspace, the BLAS library's, and the four of TE's grouped GEMM; the same on every rank."""
    grouped = MEMORY["te_grouped_gemm_workspace_bytes"].value if arch.is_moe and config.grouped_gemm == "te" else 0.0
    return MEMORY["te_gemm_workspace_bytes"].value + MEMORY[f"{vendor}_blas_workspace_bytes"].value + grouped
