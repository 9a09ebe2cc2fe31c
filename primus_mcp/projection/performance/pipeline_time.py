"""From stage times to the pipeline's timeline, through the one simulator."""

from __future__ import annotations

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.projection.performance.stages import StageCost
from primus_mcp.projection.pipeline import Timeline, simulate
from primus_mcp.projection.placement import Placement
from primus_mcp.units import BF16_BYTES

_SENDER_WAITS = frozenset({"1f1b", "interleaved"})


def schedule_name(config: TrainingConfig) -> str:
    """The order that runs: one rank needs none, several chunks under 1F1B are interleaved."""
    if config.pp == 1:
        return "1f1b"
    return "interleaved" if config.schedule == "1f1b" and config.vpp > 1 else config.schedule


def hop_s(rates: Rates, arch: Architecture, settings: LayerSettings, pp: int, world: int, *, scatter: bool = False) -> float:
    """One boundary between neighbouring stages: T h 2 B (/ TP under sequence parallelism) over `world / PP` ranks of distance.

    `scatter`: every TP rank sends its share and the next stage gathers the whole (arXiv:2104.04473 section 4.1; not in Megatron-Core).
    """
    if pp == 1:
        return 0.0
    if scatter and settings.tp > 1 and not settings.sequence_parallel:
        size_bytes = settings.tokens(arch) * arch.hidden_size * BF16_BYTES
        return rates.point_to_point_s(size_bytes / settings.tp, world // pp, pp) + rates.all_gather_s(size_bytes, settings.tp, 1)
    return rates.point_to_point_s(settings.sharded_tokens(arch) * arch.hidden_size * BF16_BYTES, world // pp, pp)


def timeline(config: TrainingConfig, placement: Placement, stages: tuple[StageCost, ...], transfer_s: float) -> Timeline:
    """One iteration's compute. Megatron's own schedules make the sender wait unless p2p is overlapped (arguments.py:790-803)."""
    name = schedule_name(config)
    return simulate(
        name,
        pp=placement.pp,
        vpp=placement.vpp,
        micro_batches=placement.micro_batches,
        forward_s=tuple(stage.forward_s for stage in stages),
        backward_s=tuple(stage.backward_s for stage in stages),
        weight_s=tuple(stage.weight_s for stage in stages),
        hop_s=transfer_s,
        blocking=name in _SENDER_WAITS and not config.overlap_p2p,
        group_size=config.microbatch_group_size if name == "interleaved" else None,
    )
