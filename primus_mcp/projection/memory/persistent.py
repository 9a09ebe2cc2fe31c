"""Buffers that live through the run beside the states: placeholder gradients, gather buffer, pipeline reference, workspaces.

Source: TransformerEngine get_dummy_wgrad and gemm.py, NVIDIA/Megatron-LM tensor_parallel/layers.py and pipeline_parallel/schedules.py;
each matched to 0.05% by B200 runs, except AMD workspaces (no run).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import MEMORY
from primus_mcp.inputs.hardware import Vendor
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.memory.activations.settings import ActivationSettings
from primus_mcp.projection.memory.stage import Stage


@lru_cache(maxsize=65536)
def stage_buffers(stage: Stage, settings: ActivationSettings) -> Mapping[str, int]:
    """Bytes of one pipeline rank, all inside torch's allocator, by component.

    The gather buffer (tokens * h, never freed) is on the rank of the output matrix under sequence parallelism. Ranks after the first
    still reference the previous input gradient during the next backward.
    """
    sizes = {
        "placeholder_gradients": stage.placeholder_bytes,
        "gather_buffer": settings.gathered_bytes if stage.has_loss else 0.0,
        "pipeline_gradient": settings.hidden_bytes if stage.rank > 0 else 0.0,
    }
    return {name: round(size) for name, size in sizes.items() if size}


def workspaces_bytes(arch: Architecture, config: TrainingConfig, vendor: Vendor) -> float:
    """TE's GEMM workspace, the BLAS library's, and the four of TE's grouped GEMM; the same on every rank."""
    grouped = MEMORY["te_grouped_gemm_workspace_bytes"].value if arch.is_moe and config.grouped_gemm == "te" else 0.0
    return MEMORY["te_gemm_workspace_bytes"].value + MEMORY[f"{vendor}_blas_workspace_bytes"].value + grouped
