"""`project_performance`: how long one iteration takes, and why."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Cluster, Precision
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.settings import LayerSettings, layer_settings
from primus_mcp.projection.ops.backend import GemmBackend, gemm_model
from primus_mcp.projection.ops.gemm import peak_flops
from primus_mcp.projection.parameters import RankParameters
from primus_mcp.projection.performance.exchange import Exchange, rank_exchange, trained_parameters
from primus_mcp.projection.performance.flops import expert_gemm_flops, model_flops_per_sequence
from primus_mcp.projection.performance.optimizer import optimizer_s
from primus_mcp.projection.performance.pipeline_time import hop_s, timeline
from primus_mcp.projection.performance.record import PerformanceProjection
from primus_mcp.projection.performance.stages import StageCost, stage_cost
from primus_mcp.projection.performance.warnings import performance_warnings
from primus_mcp.projection.pipeline import Timeline
from primus_mcp.projection.placement import Placement, place
from primus_mcp.units import TFLOPS


@lru_cache(maxsize=64)
def rates_for(cluster: Cluster, backend: GemmBackend) -> Rates:
    """One machine object a cluster and backend, so that layer costs stay memoised between trials."""
    return Rates(cluster, gemm_model(cluster, backend))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """What one pipeline rank adds after the pipeline has run."""

    stages: tuple[StageCost, ...]
    exchange: Exchange
    optimizer_s: float
    once_s: float
    end_s: float

    @property
    def finish_s(self) -> float:
        """End of its tasks, exposed gradient exchange, and what runs once an iteration."""
        return self.end_s + self.once_s + self.exchange.gradients_exposed_s


def _parameters(arch: Architecture, config: TrainingConfig, placement: Placement, rank: int) -> RankParameters:
    lora_rank = config.lora_rank if config.finetune == "lora" else None
    return trained_parameters(arch, placement.of_rank(rank), config.tp, config.ep, config.etp, lora_rank)


def _rank(
    rates: Rates, arch: Architecture, config: TrainingConfig, placement: Placement, stages: tuple[StageCost, ...], run: Timeline, rank: int
) -> _Rank:
    own = tuple(stage for stage, owner in zip(stages, placement.owner, strict=True) if owner == rank)
    parameters = _parameters(arch, config, placement, rank)
    times = sum(s.forward_s for s in own), sum(s.backward_s + s.weight_s for s in own)
    return _Rank(
        stages=own,
        exchange=rank_exchange(rates, arch, config, placement, rank, parameters, times),
        optimizer_s=optimizer_s(rates, config, placement, parameters),
        once_s=sum(s.once_s for s in own),
        end_s=run.rank_end_s[rank],
    )


def gemm_precision(arch: Architecture, settings: LayerSettings) -> Precision:
    """The precision that most of the model's GEMM FLOPs run in: MFU is quoted against its peak."""
    linear, expert = settings.linear_precision, settings.expert_precision
    if arch.experts is None or linear == expert:
        return linear
    matrices = model_flops_per_sequence(arch, settings.tp) / (3 * arch.seq_length)
    return expert if expert_gemm_flops(arch) * 2 > matrices else linear


def _breakdown(
    rank: _Rank, count: int, transfer_exposed_s: float, iteration_s: float, update_s: float, gather_s: float
) -> dict[str, float]:
    """Components of the critical rank; `bubble` is what is left, so that the parts sum to the iteration."""
    parts: dict[str, float] = {}
    for stage in rank.stages:
        for name, share_s in stage.shares:
            parts[name] = parts.get(name, 0.0) + count * share_s
    parts["weight_cast"] = rank.once_s
    parts["pipeline_p2p"] = transfer_exposed_s
    parts["gradient_exchange"] = rank.exchange.gradients_exposed_s
    parts["parameter_exchange"] = gather_s
    parts["optimizer"] = update_s
    parts = {name: value for name, value in parts.items() if value != 0.0}
    parts["bubble"] = iteration_s - sum(parts.values())
    return parts


def _traffic(rank: _Rank, count: int, pp_s: tuple[float, float], gather_exposed_s: float) -> tuple[dict[str, float], dict[str, float]]:
    """(whole, exposed) communication of the critical rank in an iteration."""
    whole = {"pp": pp_s[0], "gradients": rank.exchange.gradients_s, "parameters": rank.exchange.parameters_s}
    exposed = {"pp": pp_s[1], "gradients": rank.exchange.gradients_exposed_s, "parameters": gather_exposed_s}
    for stage in rank.stages:
        for target, source in ((whole, stage.transfers), (exposed, stage.exposed)):
            for name, seconds in source:
                target[name] = target.get(name, 0.0) + count * seconds
    return whole, exposed


def _transfers(config: TrainingConfig, rank: int, micro_batches: int, one_s: float) -> float:
    """Seconds that sends of one rank take: every chunk sends once forward and once backward, the ends of the model one less."""
    if config.pp == 1:
        return 0.0
    sends = 2 * config.vpp - (rank in (0, config.pp - 1))
    return sends * micro_batches * one_s


def project_performance(
    arch: Architecture, config: TrainingConfig, cluster: Cluster, *, gemm_backend: GemmBackend = "auto"
) -> PerformanceProjection:
    """Time of one iteration: pipeline of real stage times, then gradients, optimizer and parameters.

    iteration = max over ranks (end of its tasks + FP8 weight casts + exposed gradient exchange) + slowest optimizer + slowest exposed
    parameter gather. Raises InputError where a degree does not divide or the schedule does not exist for the micro-batches,
    UnknownFigureError where the GPU lacks a rate. Known errors: docs/performance.md.
    """
    rates = rates_for(cluster, gemm_backend)
    placement = place(arch, config, cluster.world_size)
    settings = layer_settings(config)
    stages = tuple(stage_cost(rates, arch, settings, chunk, config.recompute) for chunk in placement.chunks)
    one_hop_s = hop_s(rates, arch, settings, config.pp, cluster.world_size)
    run = timeline(config, placement, stages, one_hop_s)
    free_hops = timeline(config, placement, stages, 0.0) if one_hop_s else run
    ranks = tuple(_rank(rates, arch, config, placement, stages, run, index) for index in range(placement.pp))
    critical = max(range(placement.pp), key=lambda index: ranks[index].finish_s)
    slow = ranks[critical]
    update_s = max(rank.optimizer_s for rank in ranks)
    gather_s = max(rank.exchange.parameters_exposed_s for rank in ranks)
    iteration_s = slow.finish_s + update_s + gather_s
    flops = config.gbs * model_flops_per_sequence(arch, config.tp, trains_weights=settings.trains_weights)
    precision = gemm_precision(arch, settings)
    per_gpu = flops / iteration_s / cluster.world_size
    count = placement.micro_batches
    hop_exposed_s = max(0.0, run.rank_end_s[critical] - free_hops.rank_end_s[critical])
    whole, exposed = _traffic(slow, count, (max(hop_exposed_s, _transfers(config, critical, count, one_hop_s)), hop_exposed_s), gather_s)
    return PerformanceProjection(
        iteration_s=iteration_s,
        tokens_per_s_per_gpu=config.gbs * arch.seq_length / iteration_s / cluster.world_size,
        model_flops=flops,
        tflops_per_s_per_gpu=per_gpu / TFLOPS,
        mfu=per_gpu / peak_flops(cluster, precision),
        gemm_precision=precision,
        bubble_ratio=run.bubble_ratio,
        communication_s=MappingProxyType(whole),
        exposed_s=MappingProxyType(exposed),
        time_breakdown_s=MappingProxyType(_breakdown(slow, count, hop_exposed_s, iteration_s, update_s, gather_s)),
        rank_end_s=run.rank_end_s,
        dp=placement.dp,
        expert_dp=placement.expert_dp,
        micro_batches=count,
        backend=rates.gemm.name,
        profile=cluster.profile.name,
        warnings=performance_warnings(arch, config, cluster, placement, stages),
    )
