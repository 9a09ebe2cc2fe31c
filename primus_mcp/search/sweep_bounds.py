"""Closed-form lower bounds on the iteration time and the device memory of every configuration of a block, in one NumPy pass.

time >= max over ranks r of [forwards before r + work of r + backwards before r] + exposed gradients + optimizer + exposed gather
 (unsplit schedules: the last backward of r still has to reach rank 0; split ones: of the input gradients only, or nothing)
memory >= states + buffers + (1 + fragmentation) x saved bytes at the fullest moments of a few ranks + outside
Stage times, exchanges, optimizer, states and saved bytes are the engine's own; what is left out is waiting between ranks, and the parts of
transients that later layers hide. `tests/search/test_sweep_bounds.py` holds both bounds against the projections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from primus_mcp.inputs.constants import MEMORY, TIME
from primus_mcp.inputs.training import V_SCHEDULES, Recompute, TrainingConfig
from primus_mcp.inputs.workload import Workload
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.settings import layer_settings
from primus_mcp.projection.memory.fully_sharded import unsharded_bytes
from primus_mcp.projection.memory.outside import communicator_count
from primus_mcp.projection.memory.peak import schedule_key
from primus_mcp.projection.memory.static import static_memory
from primus_mcp.projection.performance.exchange import Exchange, rank_exchange, trained_parameters
from primus_mcp.projection.performance.optimizer import optimizer_s
from primus_mcp.projection.performance.pipeline_time import hop_s, schedule_name
from primus_mcp.projection.placement import Placement, place
from primus_mcp.search.sweep_shapes import Covered, Shape, covered, fullest_states, light_stages, shape_of
from primus_mcp.search.sweep_tables import Array, Table, communicator_bytes

Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pricing:
    """What every block is priced with."""

    workload: Workload
    rates: Rates

    @property
    def world(self) -> int:
        """GPUs of the cluster."""
        return self.rates.cluster.world_size


def _joined(gpu_s: Array, host_s: Array) -> Array:
    norm = TIME["host_norm"]
    joined: Array = (gpu_s**norm + host_s**norm) ** (1 / norm)
    return joined


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageTimes:
    """Seconds a micro-batch, [type, configuration]; `once_s` an iteration."""

    forward_s: Array
    gradient_s: Array
    weight_s: Array
    once_s: Array


def stage_times(table: Table, shape: Shape, recompute: Sequence[Covered], lever: Index, choice: Index) -> StageTimes:
    """`stage_cost` for every type of stage and configuration (equal to it: tested)."""
    t, parts, kinds = table.times, shape.parts, len(table.kinds)
    forward_s = _joined(parts @ (t["forward"] + t["stall"]), parts @ t["host_forward"])[:, lever]
    gpu, host = (parts @ (t["gradient"] + t["weight"]))[:, lever], (parts @ t["host_backward"])[:, lever]
    whole = np.stack([item.whole for item in recompute])[choice]
    replayed, host_again = (t["forward"] + t["stall"])[:kinds, lever], t["host_forward"][:kinds, lever]
    for kind in range(kinds):
        count = whole[:, :, kind].T
        gpu = gpu + count * replayed[kind]
        host = host + count * host_again[kind]
    modules = np.array([item.selective for item in recompute])[choice]
    if modules.any():
        gpu = gpu + np.where(modules, (parts @ t["selective"])[:, lever], 0.0)
    backward_s = _joined(gpu, host)
    weight_s = (parts @ t["weight"])[:, lever] * backward_s / gpu
    return StageTimes(forward_s=forward_s, gradient_s=backward_s - weight_s, weight_s=weight_s, once_s=(parts @ t["once"])[:, lever])


def pipeline_bounds(stages: StageTimes, shape: Shape, config: TrainingConfig, micro_batches: int, one_hop_s: float) -> tuple[Array, Array]:
    """(end of each rank at least [rank, configuration], end of rank 0 at least).

    end_r >= before_r + r hops + work_r. Unsplit: rank 0 ends after the last backward of r has passed every stage before it. Split, one
    chunk a rank: after the input gradients of all micro-batches of r and of one micro-batch of the stages before it, and one W of rank 0.
    """
    name = schedule_name(config)
    rank = np.arange(shape.own.shape[0])[:, None]
    backward_s = stages.gradient_s + stages.weight_s
    start_s = shape.before @ stages.forward_s + rank * one_hop_s
    work_s = micro_batches * (shape.own @ (stages.forward_s + backward_s))
    if name in ("1f1b", "interleaved") and not config.overlap_p2p and config.pp > 1:
        ends = np.array([(shape.owner[0] == r) + (shape.owner[-1] == r) for r in range(config.pp)])[:, None]
        work_s = work_s + (micro_batches * (2 * config.vpp - ends) - (rank > 0)) * one_hop_s
    end_s = start_s + work_s
    if name in V_SCHEDULES:
        return end_s, end_s[0]
    if name in ("1f1b", "interleaved"):
        return end_s, (end_s + shape.before @ backward_s + rank * one_hop_s).max(axis=0)
    gradients_s = micro_batches * (shape.own @ (stages.forward_s + stages.gradient_s)) + shape.before @ stages.gradient_s
    last_weight_s = (rank > 0) * (shape.own @ stages.weight_s)[0]
    return end_s, np.maximum(end_s[0], (start_s + gradients_s + rank * one_hop_s + last_weight_s).max(axis=0))


@lru_cache(maxsize=65_536)
def _exchanges(pricing: Pricing, shape: Shape, place_key: tuple[int, ...], config: TrainingConfig) -> tuple[tuple[Exchange, float], ...]:
    """(whole transfers, optimizer seconds) of each distinct kind of rank. `config` carries one lever key."""
    arch, placement = pricing.workload.architecture, _placement(shape, place_key)
    found = []
    for ranks in shape.ranks:
        held = placement.of_rank(ranks[0])
        lora = config.lora_rank if config.finetune == "lora" else None
        parameters = trained_parameters(arch, held, config.tp, config.ep, config.etp, lora, config.lora_targets)
        exchange = rank_exchange(pricing.rates, arch, config, placement, ranks[0], parameters, (0.0, 0.0))
        found.append((exchange, optimizer_s(pricing.rates, config, placement, parameters)))
    return tuple(found)


def _placement(shape: Shape, key: tuple[int, ...]) -> Placement:
    pp, vpp, dp, expert_dp, micro_batches = key
    return Placement(chunks=shape.chunks, owner=shape.owner, pp=pp, vpp=vpp, dp=dp, expert_dp=expert_dp, micro_batches=micro_batches)


def _exposed(transfer_s: Array, window_s: Array, overlapped: Array, sharded: Array) -> Array:
    hidden = np.where(sharded, 0.0, transfer_s - TIME["dp_overlap"] * window_s)
    exposed: Array = np.where(overlapped, np.maximum(TIME["dp_floor"] * transfer_s, hidden), transfer_s)
    return exposed


def time_bounds(
    pricing: Pricing, table: Table, shape: Shape, placement: Placement, config: TrainingConfig, recompute: Sequence[Covered],
    lever: Index, choice: Index,
) -> Array:  # fmt: skip
    """Seconds of an iteration, at least."""
    arch, m = pricing.workload.architecture, placement.micro_batches
    stages = stage_times(table, shape, recompute, lever, choice)
    one_hop_s = hop_s(pricing.rates, arch, layer_settings(table.first), config.pp, pricing.world)
    end_s, first_end_s = pipeline_bounds(stages, shape, config, m, one_hop_s)
    firsts, key_of = table.levers.exchange
    per_key = []
    for first in firsts:
        counted = m if first.use_torch_fsdp2 else 1
        per_key.append(_exchanges(pricing, shape, (placement.pp, placement.vpp, placement.dp, placement.expert_dp, counted), first))
    kind_of = np.empty(placement.pp, dtype=np.intp)
    for kind, ranks in enumerate(shape.ranks):
        kind_of[list(ranks)] = kind
    figures = np.array([[(one.gradients_s, one.parameters_s, step_s) for one, step_s in entries] for entries in per_key])
    gradients, gathers, optimizers = figures[key_of[lever]][:, kind_of].T
    flags = table.levers.overlaps[:, lever]
    once_s = shape.own @ stages.once_s
    exposed_s = once_s + _exposed(gradients, shape.own @ (stages.gradient_s + stages.weight_s), flags[0], flags[2])
    gather_s = _exposed(gathers, shape.own @ stages.forward_s, flags[1], flags[2])
    finish_s = np.maximum((end_s + exposed_s).max(axis=0), first_end_s + exposed_s[0])
    total: Array = finish_s + optimizers.max(axis=0) + gather_s.max(axis=0)
    return total


@lru_cache(maxsize=65_536)
def _states_bytes(pricing: Pricing, shape: Shape, place_key: tuple[int, ...], config: TrainingConfig) -> tuple[tuple[float, float], ...]:
    """(states and gathered layers, extra bytes of the optimizer step) of each watched rank."""
    arch, placement = pricing.workload.architecture, _placement(shape, place_key)
    found = []
    for stage in light_stages(arch, config.tp, config.ep, config.etp, shape):
        held = static_memory(stage, arch, config, placement)
        whole = held.weights_bytes + held.main_gradients_bytes + held.optimizer_states_bytes + held.fp8_weight_copies_bytes
        gathered = unsharded_bytes(stage, arch, config) if config.use_torch_fsdp2 else 0.0
        found.append((whole + gathered, held.step_transient_bytes))
    return tuple(found)


def _saved(table: Table, shape: Shape, recompute: Sequence[Covered], lever: Index, choice: Index) -> tuple[Array, Array, Array]:
    """(saved, pinned, excess of the backward pass) of a micro-batch, [type, configuration]."""
    s, parts, kinds = table.sizes().parts, shape.parts, len(table.kinds)
    selective = np.array([item.selective for item in recompute])[choice]
    whole = np.stack([item.whole for item in recompute])[choice]
    kept = np.stack([item.kept for item in recompute])[choice]
    saved = np.where(selective, (parts @ s["selective_saved"])[:, lever], (parts @ s["saved"])[:, lever])
    pinned = np.where(selective, (parts @ s["selective_pinned"])[:, lever], (parts @ s["pinned"])[:, lever])
    for kind in range(kinds):
        saved = saved + kept[:, :, kind].T * s["checkpoint"][kind, lever] - whole[:, :, kind].T * s["saved"][kind, lever]
    excess = np.zeros_like(saved)
    last_whole = np.array([item.last_whole for item in recompute])[choice]
    for t, layers in enumerate(shape.layers):
        after = parts[t, kinds + 1] * s["saved"][kinds + 1, lever] + parts[t, kinds + 2] * s["saved"][kinds + 2, lever]
        if parts[t, kinds + 1]:
            excess[t] = np.maximum(excess[t], s["excess"][kinds + 1, lever])
        if not layers:
            continue
        plain = np.where(selective, s["selective_excess"][layers[-1], lever], s["excess"][layers[-1], lever])
        final = np.where(last_whole[:, t] == len(layers) - 1, s["checkpoint_excess"][layers[-1], lever], plain)
        excess[t] = np.maximum(excess[t], final - after)
        behind = np.array([[sum(kind == k for kind in layers[p + 1 :]) for k in range(kinds)] for p in range(len(layers))] + [[0] * kinds])
        position = last_whole[:, t]
        hidden = sum(behind[position, k] * s["saved"][k, lever] for k in range(kinds))
        of_kind = np.array([*layers, layers[0]])[position]
        earlier = np.where(position >= 0, s["checkpoint_excess"][of_kind, lever] - hidden - after, 0.0)
        excess[t] = np.maximum(excess[t], earlier)
    return saved, pinned, excess


def memory_bounds(
    pricing: Pricing, table: Table, shape: Shape, placement: Placement, config: TrainingConfig, recompute: Sequence[Covered],
    lever: Index, choice: Index,
) -> Array:  # fmt: skip
    """Device bytes of the neediest rank, at least."""
    arch, vendor = pricing.workload.architecture, pricing.rates.cluster.gpu.vendor
    sizes = table.sizes()
    saved, pinned, excess = _saved(table, shape, recompute, lever, choice)
    firsts, key_of = table.levers.states
    place_key = (placement.pp, placement.vpp, placement.dp, placement.expert_dp, 1)
    states = np.array([_states_bytes(pricing, shape, place_key, first) for first in firsts])[key_of[lever]]
    schedule = schedule_key(config, placement.micro_batches)
    workspaces = MEMORY["te_gemm_workspace_bytes"].value + MEMORY[f"{vendor}_blas_workspace_bytes"].value
    fixed = table.levers.outside[lever] + communicator_bytes(vendor, communicator_count(arch, config, placement)) + workspaces
    worst = np.zeros(len(lever))
    for index, rank in enumerate(shape.watched):
        found, types = fullest_states(schedule, rank), list(shape.chunk_types[rank])
        moments = found.live @ saved[types] + found.pending @ pinned[types]
        for row, chunk in enumerate(found.backward):
            if chunk >= 0:
                moments[row] += excess[types[chunk]]
        activation = moments.max(axis=0)
        has_loss = any(shape.types[t].loss for t in types)
        present = sorted({kind for t in types for kind in shape.layers[t]})
        buffers = table.levers.placeholder[present].max(axis=0)[lever] if present else np.zeros(len(lever))
        buffers = buffers + (sizes.gathered[lever] if has_loss else 0.0) + (sizes.hidden[lever] if rank > 0 else 0.0)
        inside = states[:, index, 0] + buffers + np.maximum(activation, states[:, index, 1])
        worst = np.maximum(worst, inside + activation * table.levers.share[lever] + fixed)
    return worst


class BlockBounds:
    """The bounds of one block; memory only for the configurations that are asked about. (lever[i], choice[i]) are its configurations."""

    def __init__(
        self, pricing: Pricing, table: Table, config: TrainingConfig, recompute: Sequence[Recompute], lever: Index, choice: Index
    ) -> None:
        arch = pricing.workload.architecture
        self.placement = place(arch, config, pricing.world)
        shape = shape_of(arch, self.placement.chunks, self.placement.owner)
        records = [covered(arch, shape, record) for record in recompute]
        self._fixed = (pricing, table, shape, self.placement, config, records)
        self._lever, self._choice = lever, choice
        self.time_s = time_bounds(*self._fixed, lever, choice)

    def memory_bytes(self, chosen: Index) -> Array:
        """Device bytes of the neediest rank of the chosen configurations, at least."""
        return memory_bounds(*self._fixed, self._lever[chosen], self._choice[chosen])
