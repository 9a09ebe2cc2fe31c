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
    Slack,
    communicator_count,
    communicators,
    deepep_buffer_bytes,
    fragmentation,
    runtime,
)
from primus_mcp.projection.memory.peak import Peak, schedule_key, stage_peak
from primus_mcp.projection.memory.persistent import PersistentMemory, persistent_memory, workspaces_bytes
from primus_mcp.projection.memory.profile import GROUPS
from primus_mcp.projection.memory.stage import Stage, pipeline_stages
from primus_mcp.projection.memory.static import StaticMemory, static_memory
from primus_mcp.projection.memory.verdict import Fit, verdict
from primus_mcp.projection.placement import Placement, place

_PERSISTENT = (
    "weights",
    "main_gradients",
    "optimizer_states",
    "fp8_weight_copies",
    "unsharded_layers",
    "pipeline_buffers",
    "placeholder_gradients",
    "gather_buffer",
    "pipeline_gradient",
    "workspaces",
)
_AT_PEAK = (*_PERSISTENT, "pinned_for_weight_gradients", "transient", *(f"saved_{group}" for group in GROUPS))
_AT_STEP = (*_PERSISTENT, "optimizer_step")
_STATES = ("weights", "main_gradients", "optimizer_states", "fp8_weight_copies")


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
    workspaces_bytes: float
    slack: Slack
    outside: Mapping[str, int]
    outside_bytes: int
    outside_square: float
    allocated_error: float


def project_memory(arch: Architecture, config: TrainingConfig, cluster: Cluster) -> MemoryProjection:
    """Memory of every rank. Raises InputError where the degrees, the batch or the schedule do not divide (placement, pipeline)."""
    return project_placed(arch, config, place(arch, config, cluster.world_size), cluster.gpu.vendor)


def project_placed(arch: Architecture, config: TrainingConfig, placement: Placement, vendor: Vendor) -> MemoryProjection:
    """The same for a placement that is already known."""
    run = _run(arch, config, placement, vendor)
    stages = pipeline_stages(run.settings, config.ep, placement.chunks, placement.owner)
    schedule = schedule_key(config, placement.micro_batches)
    ranks = tuple(_rank_memory(run, stage, stage_peak(stage, schedule)) for stage in stages)
    worst = max(ranks, key=lambda rank: rank.device_bytes)
    return MemoryProjection(ranks=ranks, worst=worst, caveats=memory_caveats(arch, config, vendor))


def _run(arch: Architecture, config: TrainingConfig, placement: Placement, vendor: Vendor) -> _Run:
    deepep = deepep_buffer_bytes(arch, config)
    outside = {
        "communicators": communicators(vendor, communicator_count(arch, config, placement)),
        "deepep_buffers": Estimate(value_bytes=deepep, high_bytes=deepep),
        "runtime": runtime(vendor, expert_exchange=arch.is_moe and config.ep > 1),
    }
    held = {name: round(estimate.value_bytes) for name, estimate in outside.items() if estimate.value_bytes}
    return _Run(
        arch=arch,
        config=config,
        placement=placement,
        settings=activation_settings(arch, config),
        workspaces_bytes=workspaces_bytes(arch, config, vendor),
        slack=fragmentation(arch, config),
        outside=held,
        outside_bytes=sum(held.values()),
        outside_square=sum((estimate.high_bytes - estimate.value_bytes) ** 2 for estimate in outside.values()),
        allocated_error=MEMORY[_residual(arch, config)].high,
    )


def _residual(arch: Architecture, config: TrainingConfig) -> str:
    """The constant that holds the error of allocated memory on published runs of this kind."""
    if config.use_torch_fsdp2:
        return "allocated_error_fsdp2_pipeline_fraction" if config.pp > 1 else "allocated_error_fsdp2_fraction"
    return "allocated_error_moe_fraction" if arch.is_moe else "allocated_error_dense_fraction"


def _rank_memory(run: _Run, stage: Stage, peak: Peak) -> RankMemory:
    static = static_memory(stage, run.arch, run.config, run.placement)
    persistent = persistent_memory(stage, run.config, run.settings, run.workspaces_bytes, peak.live_chunks, run.placement.micro_batches)
    activation = peak.total_bytes
    at_step = static.step_transient_bytes > activation
    components = _components(static, persistent, peak, at_step=at_step)
    allocated = sum(components.values())
    varying = activation + persistent.unsharded_layers_bytes + peak.gradients_bytes + persistent.pipeline_buffers_bytes
    slack = round(varying * run.slack.value)
    if slack:
        components["fragmentation"] = slack
    reserved = allocated + slack
    components |= run.outside
    device = reserved + run.outside_bytes
    states_bytes = sum([components[name] for name in _STATES if name in components])
    return RankMemory(
        rank=stage.rank,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        device_bytes=device,
        upper_bytes=device + round(_uncertainty(run, allocated, varying)),
        least_bytes=device - round(varying * run.slack.reclaimable),
        param_optimizer_bytes=states_bytes,
        activation_bytes=round(activation),
        peak_moment="optimizer step" if at_step else peak.moment,
        components=components,
    )


def _components(static: StaticMemory, persistent: PersistentMemory, peak: Peak, *, at_step: bool) -> dict[str, int]:
    """Whole bytes of everything inside the allocator at the peak, or at the optimizer step."""
    sizes = (
        static.weights_bytes,
        static.main_gradients_bytes,
        static.optimizer_states_bytes,
        static.fp8_weight_copies_bytes,
        persistent.unsharded_layers_bytes + peak.gradients_bytes,
        persistent.pipeline_buffers_bytes,
        persistent.placeholder_gradients_bytes,
        persistent.gather_buffer_bytes,
        persistent.pipeline_gradient_bytes,
        persistent.workspaces_bytes,
        *((static.step_transient_bytes,) if at_step else (peak.pinned_bytes, peak.transient_bytes, *peak.saved)),
    )
    names = _AT_STEP if at_step else _AT_PEAK
    return {name: round(size) for name, size in zip(names, sizes, strict=True) if size}


def _uncertainty(run: _Run, allocated: float, varying: float) -> float:
    """Quadrature of the upper errors: allocated (share by kind of run), fragmentation, and each term outside torch."""
    inside, slack = allocated * run.allocated_error, varying * (run.slack.high - run.slack.value)
    return sqrt(inside * inside + slack * slack + run.outside_square)
