"""Anchors the memory projection: analytic at the target, plus what a measured run showed that the analysis does not know.

Two residuals. Framework overhead: device memory in use minus what torch reserved, instead of the estimated runtime. Live tensors: bytes
that a measured layer saves, over what the operation list says it saves. Kernels other than the target's save other tensors, so their
excess moves the upper bound only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.training import Recompute, TrainingConfig
from primus_mcp.measurement.anchor import AnchorKind
from primus_mcp.measurement.artefact import Artefact
from primus_mcp.measurement.factors import as_measured
from primus_mcp.measurement.shapes import attention_unit, dense_mlp_unit, moe_unit
from primus_mcp.projection.memory import MemoryProjection, RankMemory
from primus_mcp.projection.memory.activations.settings import activation_settings
from primus_mcp.projection.memory.chunks import layer_profile
from primus_mcp.units import BF16_BYTES, FP32_BYTES

_LAYER_COMPONENTS = ("saved_attention", "saved_mlp", "saved_moe")
OVERHEAD, EXCESS = "measured_overhead", "measured_live_tensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryResiduals:
    """`overhead_bytes`: outside torch on the device, None where it cannot be asked (CPU). `live_ratio`: saved by a measured layer over
    saved by the operation list, None where nothing comparable was measured.
    """

    overhead_bytes: float | None
    live_ratio: float | None


def _layer_ratio(arch: Architecture, config: TrainingConfig, artefact: Artefact, *, moe: bool, windowed: bool) -> float | None:
    attention = artefact.unit(attention_unit(arch, config, windowed=windowed).key)
    feed_forward = artefact.unit((moe_unit(arch, config) if moe else dense_mlp_unit(arch, config)).key)
    if attention is None or feed_forward is None or attention.saved_bytes is None or feed_forward.saved_bytes is None:
        return None
    ran_arch, ran = as_measured(arch, config, artefact.number)
    settings = activation_settings(ran_arch, replace(ran, recompute=Recompute()))
    analytic = layer_profile(settings, moe).saved_bytes
    wide = FP32_BYTES / BF16_BYTES if artefact.number == "fp32" else 1.0
    return (attention.saved_bytes + feed_forward.saved_bytes) / wide / analytic


def memory_residuals(arch: Architecture, config: TrainingConfig, artefact: Artefact) -> MemoryResiduals:
    """What the artefact says about memory beside the analysis."""
    outside = [
        float(memory.device_bytes - memory.reserved_bytes)
        for memory in artefact.memory
        if memory.device_bytes is not None and memory.reserved_bytes is not None
    ]
    kinds = dict.fromkeys(zip(arch.moe_layers, arch.layer_windows, strict=True))
    ratios = [_layer_ratio(arch, config, artefact, moe=moe, windowed=narrow) for moe, narrow in kinds]
    known = [ratio for ratio in ratios if ratio is not None]
    return MemoryResiduals(
        overhead_bytes=median(outside) if outside else None, live_ratio=max(known) if len(known) == len(ratios) else None
    )


def _anchored(rank: RankMemory, residuals: MemoryResiduals, kind: AnchorKind) -> RankMemory:
    components = dict(rank.components)
    upper = rank.upper_bytes
    if residuals.overhead_bytes is not None:
        overhead = round(residuals.overhead_bytes) - components.pop("runtime", 0)
        components[OVERHEAD] = round(residuals.overhead_bytes)
        upper += max(0, overhead)
    if residuals.live_ratio is not None:
        excess = round((residuals.live_ratio - 1) * sum(components.get(name, 0) for name in _LAYER_COMPONENTS))
        upper += max(0, excess)
        if kind == "kernels":
            components[EXCESS] = excess
    device = sum(components.values())
    moved = device - rank.device_bytes
    return replace(
        rank,
        components=components,
        device_bytes=device,
        least_bytes=rank.least_bytes + moved,
        upper_bytes=max(upper, device),
        allocated_bytes=rank.allocated_bytes + components.get(EXCESS, 0),
        reserved_bytes=rank.reserved_bytes + components.get(EXCESS, 0),
    )


def anchor_memory(projection: MemoryProjection, residuals: MemoryResiduals, kind: AnchorKind) -> MemoryProjection:
    """The projection with measured residuals."""
    ranks = tuple(_anchored(rank, residuals, kind) for rank in projection.ranks)
    return replace(projection, ranks=ranks, worst=max(ranks, key=lambda rank: rank.device_bytes))
