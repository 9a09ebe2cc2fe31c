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
from primus_mcp.projection.memory.fully_sharded import pipeline_buffers_bytes, unsharded_bytes
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
from primus_mcp.projection.memory.persistent import stage_buffers, workspaces_bytes
from primus_mcp.projection.memory.stage import Stage, pipeline_stages
from primus_mcp.projection.memory.static import static_memory
from primus_mcp.projection.memory.verdict import Fit, Word, verdict, verdict_text, word
from primus_mcp.projection.placement import Placement, place

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

    def verdict(self, cluster: Cluster) -> Word:
        """Against the cap and the GPU, in one word."""
        found = word(self.fits(cluster.hbm_bytes), within_cap=self.device_bytes <= cluster.memory_cap_bytes)
        assert found is not None
        return found

    def verdict_text(self, cluster: Cluster) -> str:
        """The same with the figures that it compares."""
        return verdict_text(self.fits(cluster.hbm_bytes), self.device_bytes, self.upper_bytes, cluster.memory_cap_bytes, cluster.hbm_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What is the same on every rank."""

    arch: Architecture
    config: TrainingConfig
    placement: Placement
    settings: ActivationSettings
    workspaces: Mapping[str, int]
    slack: Slack
    outside: Mapping[str, int]
    outside_bytes: int
    outside_square: float
    allocated_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _States:
    """Weights, gradients and optimizer states of ranks with the same layers; `step_bytes` exist during the optimizer step alone."""

    components: Mapping[str, int]
    total_bytes: int
    step_bytes: float


def project_memory(arch: Architecture, config: TrainingConfig, cluster: Cluster) -> MemoryProjection:
    """Memory of every rank. Raises InputError where the degrees, the batch or the schedule do not divide (placement, pipeline)."""
    return project_placed(arch, config, place(arch, config, cluster.world_size), cluster.gpu.vendor)


def project_placed(arch: Architecture, config: TrainingConfig, placement: Placement, vendor: Vendor) -> MemoryProjection:
    """The same for a placement that is already known."""
    run = _run(arch, config, placement, vendor)
    stages = pipeline_stages(run.settings, config.ep, placement.chunks, placement.owner)
    schedule = schedule_key(config, placement.micro_batches)
    states: dict[int, _States] = {}
    ranks = []
    for stage in stages:
        if stage.like not in states:
            states[stage.like] = _states(run, stage)
        ranks.append(_rank_memory(run, stage, states[stage.like], stage_peak(stage, schedule)))
    worst = max(ranks, key=lambda rank: rank.device_bytes)
    return MemoryProjection(ranks=tuple(ranks), worst=worst, caveats=memory_caveats(arch, config, vendor))


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
        workspaces={"workspaces": round(workspaces_bytes(arch, config, vendor))},
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


def _states(run: _Run, stage: Stage) -> _States:
    static = static_memory(stage, run.arch, run.config, run.placement)
    sizes = (static.weights_bytes, static.main_gradients_bytes, static.optimizer_states_bytes, static.fp8_weight_copies_bytes)
    components = {name: round(size) for name, size in zip(_STATES, sizes, strict=True) if size}
    return _States(components=components, total_bytes=sum(components.values()), step_bytes=static.step_transient_bytes)


def _fully_sharded(run: _Run, stage: Stage, peak: Peak) -> dict[str, int]:
    """What FSDP2 holds gathered, and torch pipelining's buffers."""
    unsharded = unsharded_bytes(stage, run.arch, run.config) + peak.gradients_bytes
    buffers = pipeline_buffers_bytes(stage, run.config, run.settings, peak.live_chunks, run.placement.micro_batches)
    sizes = {"unsharded_layers": unsharded, "pipeline_buffers": buffers}
    return {name: round(size) for name, size in sizes.items() if size}


def _rank_memory(run: _Run, stage: Stage, states: _States, peak: Peak) -> RankMemory:
    activation = peak.total_bytes
    gathered = _fully_sharded(run, stage, peak) if run.config.use_torch_fsdp2 else {}
    varying = activation + sum(gathered.values()) if gathered else activation
    at_step = states.step_bytes > varying
    inside = {"optimizer_step": round(states.step_bytes)} if at_step else {**gathered, **peak.components}
    components = {**states.components, **stage_buffers(stage, run.settings), **run.workspaces, **inside}
    allocated = sum(components.values())
    slack = round(varying * run.slack.value)
    if slack:
        components["fragmentation"] = slack
    components |= run.outside
    device = allocated + slack + run.outside_bytes
    return RankMemory(
        rank=stage.rank,
        allocated_bytes=allocated,
        reserved_bytes=allocated + slack,
        device_bytes=device,
        upper_bytes=device + round(_uncertainty(run, allocated, varying)),
        least_bytes=device - round(varying * run.slack.reclaimable),
        param_optimizer_bytes=states.total_bytes,
        activation_bytes=round(activation),
        peak_moment="optimizer step" if at_step else peak.moment,
        components=components,
    )


def _uncertainty(run: _Run, allocated: float, varying: float) -> float:
    """Quadrature of the upper errors: allocated (share by kind of run), fragmentation, and each term outside torch."""
    inside, slack = allocated * run.allocated_error, varying * (run.slack.high - run.slack.value)
    return sqrt(inside * inside + slack * slack + run.outside_square)
