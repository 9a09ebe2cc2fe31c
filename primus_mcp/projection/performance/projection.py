"""`project_performance`: how long one iteration takes, and why."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Cluster, Precision
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.adapters import adapters_of
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.settings import LayerSettings, layer_settings
from primus_mcp.projection.ops.backend import GemmBackend, gemm_model
from primus_mcp.projection.ops.gemm import peak_flops
from primus_mcp.projection.performance.critical import IterationTime, RankTime, iteration_time
from primus_mcp.projection.performance.exchange import rank_exchange, trained_parameters
from primus_mcp.projection.performance.flops import expert_gemm_flops, model_flops_per_sequence
from primus_mcp.projection.performance.measured import UNMEASURED, MeasuredParts
from primus_mcp.projection.performance.optimizer import optimizer_s, owned_elements
from primus_mcp.projection.performance.pipeline_time import hop_s, paired_s, plan_costs, run_name, solved_warnings, stage_costs, timeline
from primus_mcp.projection.performance.record import PerformanceProjection
from primus_mcp.projection.performance.stages import StageCost
from primus_mcp.projection.performance.warnings import performance_warnings
from primus_mcp.projection.pipeline import Timeline
from primus_mcp.projection.placement import Placement, place
from primus_mcp.units import TFLOPS


@lru_cache(maxsize=64)
def rates_for(cluster: Cluster, backend: GemmBackend) -> Rates:
    """One machine object a cluster and backend, so that layer costs stay memoised between trials."""
    return Rates(cluster, gemm_model(cluster, backend))


def gemm_precision(arch: Architecture, settings: LayerSettings) -> Precision:
    """The precision that most of the model's GEMM FLOPs run in: MFU is quoted against its peak."""
    linear, expert = settings.linear_precision, settings.expert_precision
    if arch.experts is None or linear == expert:
        return linear
    matrices = model_flops_per_sequence(arch, settings.tp) / (3 * arch.seq_length)
    return expert if expert_gemm_flops(arch) * 2 > matrices else linear


def _rank_time(
    rates: Rates,
    arch: Architecture,
    config: TrainingConfig,
    placement: Placement,
    stages: tuple[StageCost, ...],
    run: Timeline,
    rank: int,
    update_s_per_element: float | None,
) -> RankTime:
    own = tuple(stage for stage, owner in zip(stages, placement.owner, strict=True) if owner == rank)
    parameters = trained_parameters(arch, placement.of_rank(rank), config.tp, config.ep, config.etp, adapters_of(config))
    times = sum(s.forward_s for s in own), sum(s.backward_s + s.weight_s for s in own)
    update_s = optimizer_s(rates, config, placement, parameters)
    if update_s_per_element is not None:
        update_s = update_s_per_element * owned_elements(config, placement, parameters)
    return RankTime(
        stages=own,
        exchange=rank_exchange(rates, arch, config, placement, rank, parameters, times),
        optimizer_s=update_s,
        end_s=run.rank_end_s[rank],
        busy_s=run.rank_busy_s[rank],
        sends=placement.streamed * placement.sends_of(rank),
    )


def _iteration(
    rates: Rates,
    arch: Architecture,
    config: TrainingConfig,
    placement: Placement,
    stages: tuple[StageCost, ...],
    alone: tuple[StageCost, ...],
    one_hop_s: float,
    update_s_per_element: float | None,
) -> tuple[IterationTime, Timeline]:
    """`stages`, `alone`: see `stage_costs`."""
    planner, paired = plan_costs(config, alone, one_hop_s), paired_s(stages, alone, run_name(config, placement))
    run = timeline(config, placement, alone, one_hop_s, planner, paired)
    free = timeline(config, placement, alone, 0.0, planner, paired) if one_hop_s else run
    ranks = tuple(_rank_time(rates, arch, config, placement, stages, run, rank, update_s_per_element) for rank in range(placement.pp))
    iteration = iteration_time(ranks, free.step_s, placement.streamed, one_hop_s)
    if paired is None:
        return iteration, run
    unpaired_s = iteration.busiest.busy_s - placement.streamed * sum(stage.total_s for stage in iteration.busiest.stages)
    return replace(iteration, unpaired_s=unpaired_s), run


def project_performance(
    arch: Architecture,
    config: TrainingConfig,
    cluster: Cluster,
    *,
    gemm_backend: GemmBackend = "auto",
    measured: MeasuredParts = UNMEASURED,
) -> PerformanceProjection:
    """Time of one iteration: a pipeline of real stage times, then gradients, optimizer and parameters (`IterationTime`).

    `measured`: layers, traffic and optimizer as a measured run found them instead of the model's.
    Raises InputError where a degree does not divide or the schedule does not exist for the micro-batches, UnknownFigureError where the
    GPU lacks a rate. Known errors: docs/performance.md.
    """
    rates = rates_for(cluster, gemm_backend)
    if measured.traffic:
        rates = replace(rates, measured=measured.traffic)
    placement = place(arch, config, cluster.world_size)
    settings = layer_settings(config)
    stages, alone = stage_costs(rates, arch, config, placement, measured)
    one_hop_s = hop_s(rates, arch, settings, config.pp, cluster.world_size, scatter=config.scatter_p2p)
    iteration, run = _iteration(rates, arch, config, placement, stages, alone, one_hop_s, measured.update_s_per_element)
    total_s = iteration.total_s
    flops = config.gbs * model_flops_per_sequence(arch, config.tp, trains_weights=settings.trains_weights)
    precision = gemm_precision(arch, settings)
    flops_per_gpu = flops / total_s / cluster.world_size
    whole, exposed = iteration.traffic_s()
    return PerformanceProjection(
        iteration_s=total_s,
        tokens_per_s_per_gpu=config.gbs * arch.seq_length / total_s / cluster.world_size,
        model_flops=flops,
        tflops_per_s_per_gpu=flops_per_gpu / TFLOPS,
        mfu=flops_per_gpu / peak_flops(cluster, precision),
        gemm_precision=precision,
        bubble_ratio=run.bubble_ratio if placement.pp > 1 else 0.0,
        communication_s=MappingProxyType(whole),
        exposed_s=MappingProxyType(exposed),
        time_breakdown_s=MappingProxyType(iteration.breakdown_s(pipelined=placement.pp > 1)),
        rank_end_s=run.rank_end_s,
        dp=placement.dp,
        expert_dp=placement.expert_dp,
        micro_batches=placement.micro_batches,
        backend=rates.gemm.name,
        profile=cluster.profile.name,
        warnings=(
            *performance_warnings(arch, config, cluster, placement, stages),
            *solved_warnings(config, placement, plan_costs(config, alone, one_hop_s)),
        ),
    )
