"""The highest moment of a pipeline rank: the schedule's distinct live states, each with the profile of the chunk that runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.memory.profile import GROUPS, ZERO, Moment, Profile, Vector, add
from primus_mcp.projection.memory.stage import Stage
from primus_mcp.projection.pipeline.heuristic import PlannerCosts
from primus_mcp.projection.pipeline.live import LiveState, live_states, states_by_gradients
from primus_mcp.projection.pipeline.rules import overlapped_schedule
from primus_mcp.projection.planner import planner_of

_COMPONENTS = ("pinned_for_weight_gradients", "transient", *(f"saved_{group}" for group in GROUPS))
ScheduleKey = tuple[str, int, int, int, int | None, PlannerCosts | None]
"""Schedule, PP, VPP, micro-batches, group size, what a planned schedule plans with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Bytes at the highest moment: saved by group, pinned for weight gradients, transient; and what runs then.

    `live_chunks`: most micro-batches of chunks alive at any moment. `gradients_bytes`: unsharded gradients that pipelined FSDP2 has
    accumulated by then, beside `total_bytes`. `components`: whole bytes of each, by the names of `components.COMPONENTS`.
    """

    saved: Vector
    pinned_bytes: float
    transient_bytes: float
    total_bytes: float
    moment: str
    live_chunks: int
    components: Mapping[str, int]
    gradients_bytes: float = 0.0


def schedule_key(config: TrainingConfig, micro_batches: int) -> ScheduleKey:
    """What live states depend on. Overlapping the expert exchange with another micro-batch holds one chunk more."""
    name = overlapped_schedule(config.schedule) if config.overlap_moe_a2a else config.schedule
    return name, config.pp, config.vpp, micro_batches, config.microbatch_group_size, planner_of(config)


@lru_cache(maxsize=65536)
def stage_peak(stage: Stage, schedule: ScheduleKey) -> Peak:
    """The highest moment of one pipeline rank under a schedule."""
    name, pp, vpp, micro_batches, group, planner = schedule
    if stage.chunk_gradients_bytes:
        return _accumulating_peak(stage, schedule)
    states = live_states(name, pp=pp, vpp=vpp, micro_batches=micro_batches, group_size=group, planner=planner)
    return highest_moment(states[stage.rank], stage.profiles)


def _accumulating_peak(stage: Stage, schedule: ScheduleKey) -> Peak:
    """The same where gradients come into being with the first backward of a chunk and stay, unsharded, until the last one of the step.

    An interleaved rank that runs all its forward passes first has most activations while it has few gradients.
    """
    name, pp, vpp, micro_batches, group, _ = schedule
    by_gradients = states_by_gradients(name, pp=pp, vpp=vpp, micro_batches=micro_batches, group_size=group)[stage.rank]
    peaks = [
        replace(highest_moment(states, stage.profiles), gradients_bytes=sum(stage.chunk_gradients_bytes[chunk] for chunk in held))
        for held, states in by_gradients.items()
    ]
    highest = max(peaks, key=lambda peak: peak.total_bytes + peak.gradients_bytes)
    return replace(highest, live_chunks=max(peak.live_chunks for peak in peaks))


def highest_moment(states: Sequence[LiveState], profiles: Sequence[Profile]) -> Peak:
    """Walks the states of one rank: bytes of all other live micro-batches, plus the highest moment inside the task that runs.

    base = sum over chunks of forward_live * saved + weight_pending * pinned, without the micro-batch of the task itself.
    """
    best_state, best_total, best_moment = states[0], -1.0, profiles[0].forward
    for state in states:
        base = 0.0
        for live, pending, profile in zip(state.forward_live, state.weight_pending, profiles, strict=True):
            base += live * profile.saved_bytes + pending * profile.pinned_bytes
        own = profiles[state.chunk]
        moment = _moment(own, state.kind)
        base -= 0.0 if state.kind == "F" else own.pinned_bytes if state.kind == "W" else own.saved_bytes
        if base + moment.total_bytes > best_total:
            best_state, best_total, best_moment = state, base + moment.total_bytes, moment
    live_chunks = max(sum(state.forward_live) + (state.kind == "F") for state in states)
    return _peak(best_state, best_total, best_moment, profiles, live_chunks)


def _moment(profile: Profile, kind: str) -> Moment:
    if kind == "F":
        return profile.forward
    if kind == "D":
        return profile.backward
    if kind == "B":
        return profile.split
    return Moment(operation="weight gradients", pinned_bytes=profile.pinned_bytes, total_bytes=profile.pinned_bytes)


def _peak(state: LiveState, total: float, moment: Moment, profiles: Sequence[Profile], live_chunks: int) -> Peak:
    saved, pinned = moment.saved, moment.pinned_bytes
    for index, profile in enumerate(profiles):
        others = state.forward_live[index] - (index == state.chunk and state.kind in "BD")
        waiting = state.weight_pending[index] - (index == state.chunk and state.kind == "W")
        saved = add(saved, tuple(others * size for size in profile.saved) if others else ZERO)
        pinned += waiting * profile.pinned_bytes
    name = {"D": "B"}.get(state.kind, state.kind)
    sizes = (pinned, moment.transient_bytes, *saved)
    return Peak(
        components={name: round(size) for name, size in zip(_COMPONENTS, sizes, strict=True) if size},
        saved=saved,
        pinned_bytes=pinned,
        transient_bytes=moment.transient_bytes,
        total_bytes=total,
        moment=f"{name} of {moment.operation} of chunk {state.chunk}",
        live_chunks=live_chunks,
    )
