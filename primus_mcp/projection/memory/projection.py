"""`project_memory`: device memory of every pipeline rank of a legal configuration.

peak(rank) = states + persistent buffers + max over the schedule's live states of (saved + pinned + transient)
allocated = peak; reserved = allocated + fragmentation; device = reserved + communicators + DeepEP buffers + runtime
upper = device + sqrt(sum of (high - value)^2 over the uncertain terms): independent errors add in quadrature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import MEMORY
from primus_mcp.inputs.hardware import Cluster, Vendor
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.memory.activations.settings import ActivationSettings, activation_settings
from primus_mcp.projection.memory.caveats import Caveat, memory_caveats
from primus_mcp.projection.memory.outside import (
    Estimate,
    communicator_count,
    communicators,
    deepep_buffer_bytes,
    fragmentation,
    runtime,
)
from primus_mcp.projection.memory.peak import Peak, schedule_key, stage_peak
from primus_mcp.projection.memory.persistent import PersistentMemory, persistent_memory
from primus_mcp.projection.memory.profile import GROUPS
from primus_mcp.projection.memory.stage import Stage, pipeline_stages
from primus_mcp.projection.memory.static import StaticMemory, static_memory
from primus_mcp.projection.memory.verdict import Fit, verdict
from primus_mcp.projection.placement import Placement, place

_SAVED = tuple(f"saved_{group}" for group in GROUPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """One pipeline rank at its peak. `components` (whole bytes, by the names of `components.COMPONENTS`) sum to `device_bytes`.

    `least_bytes`: the same after the allocator has given back the cache that it can, as it does before it fails.
    """

    rank: int
    allocated_bytes: int
    reserved_bytes: int
    device_bytes: int
    upper_bytes: int
    least_bytes: int
    param_optimizer_bytes: int
    activation_bytes: int
    peak_moment: str
    components: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryProjection:
    """Every pipeline rank; `worst` needs the most device memory and decides. `caveats`: what the figures rest on."""

    ranks: tuple[RankMemory, ...]
    worst: RankMemory
    caveats: tuple[Caveat, ...]

    @property
    def device_bytes(self) -> int:
        """Device memory of the worst rank."""
        return self.worst.device_bytes

    @property
    def upper_bytes(self) -> int:
        """Upper bound of any rank."""
        return max(rank.upper_bytes for rank in self.ranks)

    @property
    def least_bytes(self) -> int:
        """What the neediest rank cannot do without."""
        return max(rank.least_bytes for rank in self.ranks)

    def fits(self, usable_bytes: float) -> Fit:
        """Verdict against the usable memory of one GPU. Beyond it by reclaimable cache alone is a risk, not a refusal."""
        return verdict(min(self.device_bytes, self.least_bytes), self.upper_bytes, usable_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What is the same on every rank."""

    arch: Architecture
    config: TrainingConfig
    placement: Placement
    settings: ActivationSettings
    vendor: Vendor
    outside: Mapping[str, Estimate]


def project_memory(arch: Architecture, config: TrainingConfig, cluster: Cluster) -> MemoryProjection:
    """Memory of every rank. Raises InputError where the degrees, the batch or the schedule do not divide (placement, pipeline)."""
    return project_placed(arch, config, place(arch, config, cluster.world_size), cluster.gpu.vendor)


def project_placed(arch: Architecture, config: TrainingConfig, placement: Placement, vendor: Vendor) -> MemoryProjection:
    """The same for a placement that is already known."""
    count = communicator_count(arch, config, placement)
    deepep = deepep_buffer_bytes(arch, config)
    run = _Run(
        arch=arch,
        config=config,
        placement=placement,
        settings=activation_settings(arch, config),
        vendor=vendor,
        outside={
            "communicators": communicators(vendor, count),
            "deepep_buffers": Estimate(value_bytes=deepep, high_bytes=deepep),
            "runtime": runtime(vendor, expert_exchange=arch.is_moe and config.ep > 1),
        },
    )
    stages = pipeline_stages(run.settings, config.ep, placement.chunks, placement.owner)
    schedule = schedule_key(config, placement.micro_batches)
    ranks = tuple(_rank_memory(run, stage, stage_peak(stage, schedule)) for stage in stages)
    worst = max(ranks, key=lambda rank: rank.device_bytes)
    return MemoryProjection(ranks=ranks, worst=worst, caveats=memory_caveats(arch, config, vendor))


def _rank_memory(run: _Run, stage: Stage, peak: Peak) -> RankMemory:
    static = static_memory(stage, run.arch, run.config, run.placement)
    persistent = persistent_memory(stage, run.config, run.settings, run.vendor, peak.live_chunks, run.placement.micro_batches)
    inside = _components(static, persistent, peak)
    activation = peak.total_bytes
    moment = peak.moment
    if static.step_transient_bytes > activation:
        inside = _components(static, persistent, None)
        moment = "optimizer step"
    slack = fragmentation(run.arch, run.config, activation + persistent.unsharded_layers_bytes + persistent.pipeline_buffers_bytes)
    outside = {name: estimate.value_bytes for name, estimate in run.outside.items()}
    components = {name: round(size) for name, size in (*inside.items(), ("fragmentation", slack.value_bytes), *outside.items()) if size}
    device = sum(components.values())
    reserved = device - sum(components.get(name, 0) for name in outside)
    allocated = reserved - components.get("fragmentation", 0)
    states_bytes = sum(components.get(name, 0) for name in ("weights", "main_gradients", "optimizer_states", "fp8_weight_copies"))
    return RankMemory(
        rank=stage.rank,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        device_bytes=device,
        upper_bytes=device + round(_uncertainty(run, allocated, slack)),
        least_bytes=device - round(slack.reclaimable_bytes),
        param_optimizer_bytes=states_bytes,
        activation_bytes=round(activation),
        peak_moment=moment,
        components=components,
    )


def _components(static: StaticMemory, persistent: PersistentMemory, peak: Peak | None) -> dict[str, float]:
    """Everything inside the allocator at the peak; without `peak`, at the optimizer step."""
    parts = {
        "weights": static.weights_bytes,
        "main_gradients": static.main_gradients_bytes,
        "optimizer_states": static.optimizer_states_bytes,
        "fp8_weight_copies": static.fp8_weight_copies_bytes,
        "unsharded_layers": persistent.unsharded_layers_bytes,
        "pipeline_buffers": persistent.pipeline_buffers_bytes,
        "placeholder_gradients": persistent.placeholder_gradients_bytes,
        "gather_buffer": persistent.gather_buffer_bytes,
        "pipeline_gradient": persistent.pipeline_gradient_bytes,
        "workspaces": persistent.workspaces_bytes,
    }
    if peak is None:
        return {**parts, "optimizer_step": static.step_transient_bytes}
    saved = dict(zip(_SAVED, peak.saved, strict=True))
    return {**parts, **saved, "pinned_for_weight_gradients": peak.pinned_bytes, "transient": peak.transient_bytes}


def _uncertainty(run: _Run, allocated: float, slack: Estimate) -> float:
    """Quadrature of the upper errors: allocated (share by model kind), fragmentation, and each term outside torch."""
    share = MEMORY["allocated_error_moe_fraction" if run.arch.is_moe else "allocated_error_dense_fraction"].high
    errors = [allocated * share, slack.high_bytes - slack.value_bytes]
    errors += [estimate.high_bytes - estimate.value_bytes for estimate in run.outside.values()]
    return sqrt(sum(error * error for error in errors))
