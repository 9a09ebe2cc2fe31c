"""Closed-form lower bounds on the iteration time and the device memory of every configuration of a block, in one NumPy pass.

time >= max over ranks r of [forwards before r + work of r + backwards before r] + exposed gradients + optimizer + exposed gather
 (unsplit schedules: the last backward of r still has to reach rank 0; split ones: of the input gradients only, or nothing)
memory >= states + buffers + (1 + fragmentation) x (saved bytes at the fullest moments of a few ranks + gathered layers) + outside
Stage times, exchanges, optimizer, states and saved bytes are the engine's own; what is left out is waiting between ranks, and the parts of
transients that later layers hide. `tests/search/test_sweep_space.py` holds both bounds against the projections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from primus_mcp.inputs.constants import TIME
from primus_mcp.inputs.training import V_SCHEDULES, Recompute, TrainingConfig
from primus_mcp.inputs.workload import Workload
from primus_mcp.projection.adapters import adapters_of
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.settings import layer_settings
from primus_mcp.projection.memory.fully_sharded import unsharded_bytes
from primus_mcp.projection.memory.outside import communicator_count
from primus_mcp.projection.memory.peak import schedule_key
from primus_mcp.projection.memory.static import static_memory
from primus_mcp.projection.performance.exchange import rank_exchange, trained_parameters
from primus_mcp.projection.performance.optimizer import optimizer_s
from primus_mcp.projection.performance.pipeline_time import hop_s, schedule_name
from primus_mcp.projection.placement import Placement, place
from primus_mcp.search.sweep_masks import Block
from primus_mcp.search.sweep_shapes import Covered, Shape, covered, fullest_states, light_stages, shape_of
from primus_mcp.search.sweep_tables import ENDS, Array, Levers, Sizes, Table, communicator_bytes

Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chosen:
    """Configurations of a block as arrays: which of its batches, of the table's levers, of the recompute records."""

    batch: Index
    lever: Index
    choice: Index


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


def stage_times(table: Table, shape: Shape, recompute: Sequence[Covered], column: Index, choice: Index) -> StageTimes:
    """`stage_cost` for every type of stage and configuration (equal to it: tested)."""
    t, parts, kinds = table.times, shape.parts, len(table.kinds)
    replayed = t["forward"] + t["stall"]
    forward_s = _joined(parts @ replayed, parts @ t["host_forward"])[:, column]
    weight = (parts @ t["weight"])[:, column]
    gpu, host = (parts @ t["gradient"])[:, column] + weight, (parts @ t["host_backward"])[:, column]
    whole = np.stack([item.whole for item in recompute], axis=-1)
    for kind in range(kinds):
        if whole[:, kind].any():
            count = whole[:, kind][:, choice]
            gpu += count * replayed[kind, column]
            host += count * t["host_forward"][kind, column]
    modules = np.array([item.selective for item in recompute])[choice]
    if modules.any():
        gpu += np.where(modules, (parts @ t["selective"])[:, column], 0.0)
    backward_s = _joined(gpu, host)
    host_weight = (parts @ t["host_weight"])[:, column]
    apart_s, rest_s = _joined(weight, host_weight), _joined(gpu - weight, host - host_weight)
    weight_s = backward_s * np.divide(apart_s, apart_s + rest_s, out=np.zeros_like(apart_s), where=weight > 0)
    return StageTimes(forward_s=forward_s, gradient_s=backward_s - weight_s, weight_s=weight_s, once_s=(parts @ t["once"])[:, column])


def pipeline_bounds(
    stages: StageTimes, shape: Shape, config: TrainingConfig, micro_batches: Array, one_hop_s: Array
) -> tuple[Array, Array]:
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


def _exchanges(pricing: Pricing, levers: Levers, shape: Shape, placement: Placement) -> Array:
    """[exchange kind of levers, rank, (whole gradients, whole parameters, optimizer step)] seconds, of one micro-batch under FSDP2."""
    key = ("exchange", shape, placement.dp, placement.expert_dp)
    if key not in levers.memo:
        arch, firsts = pricing.workload.architecture, levers.exchange[0]
        found = np.empty((len(firsts), placement.pp, 3))
        for ranks in shape.ranks:
            held = placement.of_rank(ranks[0])
            for i, config in enumerate(firsts):
                parameters = trained_parameters(arch, held, config.tp, config.ep, config.etp, adapters_of(config))
                exchange = rank_exchange(pricing.rates, arch, config, placement, ranks[0], parameters, (0.0, 0.0))
                step_s = optimizer_s(pricing.rates, config, placement, parameters)
                found[i, list(ranks)] = exchange.gradients_s, exchange.parameters_s, step_s
        levers.memo[key] = found
    return levers.memo[key]


def _exposed(transfer_s: Array, window_s: Array, overlapped: Array, sharded: Array) -> Array:
    hidden = np.where(sharded, 0.0, transfer_s - TIME["dp_overlap"] * window_s)
    exposed: Array = np.where(overlapped, np.maximum(TIME["dp_floor"] * transfer_s, hidden), transfer_s)
    return exposed


def time_bounds(
    pricing: Pricing, table: Table, shape: Shape, placement: Placement, block: Block, recompute: Sequence[Covered], at: Chosen
) -> Array:
    """Seconds of an iteration, at least. `placement`: of one micro-batch."""
    arch, config, count = pricing.workload.architecture, block.config, len(table.levers.configs)
    of_batch = np.array([table.mbs.index(batch.mbs) for batch in block.batches])
    micro_batches = np.array([float(batch.micro_batches) for batch in block.batches])[at.batch]
    stages = stage_times(table, shape, recompute, of_batch[at.batch] * count + at.lever, at.choice)
    settings = layer_settings(table.levers.configs[0])
    hops = [
        hop_s(pricing.rates, arch, replace(settings, mbs=batch.mbs), config.pp, pricing.world, scatter=config.scatter_p2p)
        for batch in block.batches
    ]
    end_s, first_end_s = pipeline_bounds(stages, shape, config, micro_batches, np.array(hops)[at.batch])
    figures = _exchanges(pricing, table.levers, shape, placement)[table.levers.exchange[1][at.lever]]
    gradients, gathers, optimizers = (figures[:, :, i].T for i in range(3))
    flags = table.levers.overlaps[:, at.lever]
    if flags[2].any():
        times = np.where(flags[2], micro_batches, 1.0)
        gradients, gathers = gradients * times, gathers * times
    once_s = shape.own @ stages.once_s
    exposed_s = once_s + _exposed(gradients, shape.own @ (stages.gradient_s + stages.weight_s), flags[0], flags[2])
    gather_s = _exposed(gathers, shape.own @ stages.forward_s, flags[1], flags[2])
    finish_s = np.maximum((end_s + exposed_s).max(axis=0), first_end_s + exposed_s[0])
    total: Array = finish_s + optimizers.max(axis=0) + gather_s.max(axis=0)
    return total


def _states_bytes(pricing: Pricing, levers: Levers, shape: Shape, placement: Placement) -> Array:
    """[kind of states of levers, watched rank, (states, gathered layers of FSDP2, extra of the optimizer step)] bytes."""
    key = ("states", shape, placement.dp, placement.expert_dp)
    if key not in levers.memo:
        arch, found = pricing.workload.architecture, []
        for config in levers.states[0]:
            row = []
            for stage in light_stages(arch, config.tp, config.ep, config.etp, shape):
                held = static_memory(stage, arch, config, placement)
                whole = held.weights_bytes + held.main_gradients_bytes + held.optimizer_states_bytes + held.fp8_weight_copies_bytes
                gathered = unsharded_bytes(stage, arch, config) if config.use_torch_fsdp2 else 0.0
                row.append((whole, gathered, held.step_transient_bytes))
            found.append(row)
        levers.memo[key] = np.array(found)
    return levers.memo[key]


def _saved(sizes: Sizes, shape: Shape, recompute: Sequence[Covered], lever: Index, choice: Index) -> tuple[Array, Array, Array]:
    """(saved, pinned, excess of the backward pass) of a micro-batch, [type, configuration]."""
    s, parts = sizes.parts, shape.parts
    kinds = parts.shape[1] - len(ENDS)
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
    pricing: Pricing, table: Table, shape: Shape, placement: Placement, block: Block, recompute: Sequence[Covered], batch: int,
    lever: Index, choice: Index,
) -> Array:  # fmt: skip
    """Device bytes of the neediest rank of configurations of one batch, at least."""
    arch, vendor, config = pricing.workload.architecture, pricing.rates.cluster.gpu.vendor, block.config
    size = block.batches[batch]
    sizes = table.sizes(table.mbs.index(size.mbs))
    saved, pinned, excess = _saved(sizes, shape, recompute, lever, choice)
    states = _states_bytes(pricing, table.levers, shape, placement)[table.levers.states[1][lever]]
    schedule = schedule_key(config, size.micro_batches)
    fixed = table.levers.outside[lever] + communicator_bytes(vendor, communicator_count(arch, config, placement))
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
        held, gathered, step = states[:, index].T
        varying = activation + gathered
        worst = np.maximum(worst, held + buffers + np.maximum(varying, step) + varying * table.levers.share[lever] + fixed)
    return worst


class BlockBounds:
    """The bounds of configurations of one block; memory only for those that are asked about."""

    def __init__(self, pricing: Pricing, table: Table, block: Block, recompute: Sequence[Recompute], at: Chosen) -> None:
        arch = pricing.workload.architecture
        placement = replace(place(arch, block.config, pricing.world), micro_batches=1)
        shape = shape_of(arch, placement.chunks, placement.owner)
        records = [covered(arch, shape, record) for record in recompute]
        self._fixed = (pricing, table, shape, placement, block, records)
        self._at = at
        self.time_s = time_bounds(*self._fixed, at)

    def memory_bytes(self, chosen: Index) -> Array:
        """Device bytes of the neediest rank of the chosen configurations, at least."""
        batch, lever, choice = self._at.batch[chosen], self._at.lever[chosen], self._at.choice[chosen]
        found = np.empty(len(chosen))
        for one in np.unique(batch):
            mine = np.nonzero(batch == one)[0]
            found[mine] = memory_bounds(*self._fixed, int(one), lever[mine], choice[mine])
        return found
