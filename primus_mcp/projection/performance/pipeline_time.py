"""From stage times to the pipeline's timeline, through the one simulator."""

from __future__ import annotations

from dataclasses import replace

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.settings import LayerSettings, layer_settings
from primus_mcp.projection.performance.measured import UNMEASURED, MeasuredParts
from primus_mcp.projection.performance.stages import StageCost, stage_cost, within_window
from primus_mcp.projection.pipeline import Timeline, TracedTask, build_order, simulate, stage_times, trace
from primus_mcp.projection.pipeline.heuristic import PlannerCosts
from primus_mcp.projection.pipeline.rules import PAIRED_SCHEDULES, SOLVED_SCHEDULE, SPLIT_PAIR_SCHEDULES, order_problem, overlapped_schedule
from primus_mcp.projection.pipeline.times import Pair
from primus_mcp.projection.placement import Placement
from primus_mcp.projection.planner import planner_of
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


def _sender_waits(config: TrainingConfig) -> bool:
    """Megatron's own schedules make the sender wait unless p2p is overlapped (arguments.py:790-803)."""
    return schedule_name(config) in _SENDER_WAITS and not config.overlap_p2p


def _group_size(config: TrainingConfig) -> int | None:
    return config.microbatch_group_size if schedule_name(config) == "interleaved" else None


def run_name(config: TrainingConfig, placement: Placement) -> str:
    """The order with the pairs that overlapped expert exchange makes of forwards and backwards, where there is one for these sizes."""
    name = schedule_name(config)
    if not config.overlap_moe_a2a:
        return name
    paired = overlapped_schedule(name)
    problem = order_problem(paired, placement.pp, placement.vpp, placement.micro_batches, _group_size(config))
    return paired if problem is None else name


def stage_costs(
    rates: Rates, arch: Architecture, config: TrainingConfig, placement: Placement, measured: MeasuredParts = UNMEASURED
) -> tuple[tuple[StageCost, ...], tuple[StageCost, ...]]:
    """(every chunk as it runs mostly, every chunk while no other task hides its expert exchange); the same object where no tasks pair."""
    settings = layer_settings(config)
    stages = tuple(stage_cost(rates, arch, settings, chunk, config.recompute, measured) for chunk in placement.chunks)
    if not config.overlap_moe_a2a:
        return stages, stages
    waits = replace(settings, exchange_waits=True)
    alone = tuple(stage_cost(rates, arch, waits, chunk, config.recompute, measured) for chunk in placement.chunks)
    stages = tuple(within_window(stage, waiting) for stage, waiting in zip(stages, alone, strict=True))
    return (alone, alone) if alone == stages or run_name(config, placement) not in PAIRED_SCHEDULES else (stages, alone)


def paired_s(stages: tuple[StageCost, ...], alone: tuple[StageCost, ...], order: str) -> Pair | None:
    """What forwards and backwards (input gradients in split orders) take of a pair, where that is not what they take alone.

    A weight gradient runs outside the pair and takes as long as ever: the input gradient is what a backward in pairs takes beyond it.
    """
    if alone is stages:
        return None
    apart = order in SPLIT_PAIR_SCHEDULES
    backward_s = (
        stage.backward_s + stage.weight_s - (waiting.weight_s if apart else 0.0) for stage, waiting in zip(stages, alone, strict=True)
    )
    return tuple(stage.forward_s for stage in stages), tuple(backward_s)


def plan_costs(config: TrainingConfig, stages: tuple[StageCost, ...], transfer_s: float) -> PlannerCosts | None:
    """What a planned schedule plans with: the solver with the real times, the heuristic with the configuration's."""
    found = planner_of(config)
    if found is None or config.schedule != SOLVED_SCHEDULE:
        return found
    return replace(
        found,
        forward=tuple(stage.forward_s for stage in stages),
        backward=tuple(stage.backward_s for stage in stages),
        weight=tuple(stage.weight_s for stage in stages),
        hop=transfer_s,
    )


def solved_warnings(config: TrainingConfig, placement: Placement, planner: PlannerCosts | None) -> tuple[tuple[str, str], ...]:
    """How far a solved order may be from the best: memoised with the order itself."""
    if config.schedule != SOLVED_SCHEDULE or planner is None:
        return ()
    from primus_mcp.projection.pipeline.ilp import solve  # numpy loads for a solved order only

    found = solve(placement.micro_batches, planner)
    solved = f"a program of {found.solved_micro_batches} micro-batches was solved" if found.solved_micro_batches else "too large to solve"
    state = "proven the shortest" if found.proven else f"at most {found.gap:.2%} longer than any"
    text = (
        f"order of {placement.micro_batches} micro-batches from {found.source}, {state} within {max(planner.caps or ()):g} live; {solved}"
    )
    return (("schedule-gap", text),)


def timeline(
    config: TrainingConfig,
    placement: Placement,
    stages: tuple[StageCost, ...],
    transfer_s: float,
    planner: PlannerCosts | None = None,
    paired: Pair | None = None,
) -> Timeline:
    """One iteration's compute. `paired`: see `paired_s`. Schedules that Primus's own pipeline runs ask for their inputs late."""
    return simulate(
        run_name(config, placement),
        pp=placement.pp,
        vpp=placement.vpp,
        micro_batches=placement.micro_batches,
        forward_s=tuple(stage.forward_s for stage in stages),
        backward_s=tuple(stage.backward_s for stage in stages),
        weight_s=tuple(stage.weight_s for stage in stages),
        hop_s=transfer_s,
        blocking=_sender_waits(config),
        asking=True,
        group_size=_group_size(config),
        planner=planner,
        paired_s=paired,
    )


def traced(
    rates: Rates, arch: Architecture, config: TrainingConfig, placement: Placement, *, most_tasks: int, most: int | None = None
) -> tuple[str, int, tuple[tuple[TracedTask, ...], ...]]:
    """(order, micro-batches shown, tasks of every rank with their times) of what `timeline` prices, for pictures.

    Cut to the first micro-batches that hold about `most_tasks` tasks, to `most` micro-batches where given, but not below two rounds nor to
    a number for which the order does not exist. Raises InputError where the order depends on times (seaailab-ilp).
    """
    stages, alone = stage_costs(rates, arch, config, placement)
    name, pp, vpp, group = run_name(config, placement), placement.pp, placement.vpp, _group_size(config)
    shown = min(placement.micro_batches, most or placement.micro_batches, max(2 * pp, most_tasks // (3 * pp * vpp)))
    while shown < placement.micro_batches and order_problem(name, pp, vpp, shown, group) is not None:
        shown += 1
    times = stage_times(
        len(alone),
        tuple(stage.forward_s for stage in alone),
        tuple(stage.backward_s for stage in alone),
        tuple(stage.weight_s for stage in alone),
        hop_s(rates, arch, layer_settings(config), pp, rates.cluster.world_size, scatter=config.scatter_p2p),
        paired_s(stages, alone, name),
    )
    order = build_order(name, pp, vpp, shown, group, planner_of(config))
    return name, shown, trace(order, times, blocking=_sender_waits(config), asking=True)
