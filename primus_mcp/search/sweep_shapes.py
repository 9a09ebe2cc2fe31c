"""A pipeline split as count matrices: which layers and ends lie on which stage and rank, and what recompute covers. Built once a split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.layout import Chunk
from primus_mcp.inputs.training import Recompute
from primus_mcp.projection.layers.recompute import recomputed_layers
from primus_mcp.projection.memory.peak import ScheduleKey
from primus_mcp.projection.memory.stage import Stage
from primus_mcp.projection.memory.weights import layer_weights
from primus_mcp.projection.parameters import layer_parameters, layer_shapes, rank_parameters
from primus_mcp.projection.pipeline import live_states
from primus_mcp.search.sweep_tables import layer_kinds

Array = NDArray[np.float64]
STATES_A_RANK = 6
"""Fullest states of a rank that the memory bound looks at; leaving some out keeps it a bound."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """`types`: a representative chunk of each distinct kind of stage. Matrices are [rank, type] or [type, part] counts.

    `before[r]`: the stages before rank r's first. `watched`: the ranks that the memory bound looks at; `chunk_types[r]`: types of a
    rank's chunks in order. `layers[t]`: layer kinds of a type in model order.
    """

    chunks: tuple[Chunk, ...]
    owner: tuple[int, ...]
    types: tuple[Chunk, ...]
    layers: tuple[tuple[int, ...], ...]
    parts: Array
    own: Array
    before: Array
    chunk_types: tuple[tuple[int, ...], ...]
    watched: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...]
    """Distinct kinds of rank: the ranks of each, which have equal stages and are both ends or neither."""


def _type_key(chunk: Chunk, kinds: Sequence[int]) -> tuple[object, ...]:
    return tuple(kinds[layer] for layer in chunk.layers), chunk.embedding, chunk.loss, chunk.mtp_layers


@lru_cache(maxsize=4096)
def shape_of(arch: Architecture, chunks: tuple[Chunk, ...], owner: tuple[int, ...]) -> Shape:
    """The matrices of a placement."""
    kinds, of_layer = layer_kinds(arch)
    keys = [_type_key(chunk, of_layer) for chunk in chunks]
    distinct = list(dict.fromkeys(keys))
    type_of = [distinct.index(key) for key in keys]
    types = tuple(chunks[keys.index(key)] for key in distinct)
    pp = max(owner) + 1
    parts = np.zeros((len(types), len(kinds) + 3))
    for t, chunk in enumerate(types):
        for layer in chunk.layers:
            parts[t, of_layer[layer]] += 1
        parts[t, len(kinds) :] = (chunk.embedding, chunk.loss, chunk.mtp_layers)
    own, before = np.zeros((pp, len(types))), np.zeros((pp, len(types)))
    for index, rank in enumerate(owner):
        own[rank, type_of[index]] += 1
    for rank in range(pp):
        for index in range(rank):
            before[rank, type_of[index]] += 1
    chunk_types = tuple(tuple(type_of[i] for i, held in enumerate(owner) if held == rank) for rank in range(pp))
    groups: dict[object, list[int]] = {}
    for rank in range(pp):
        groups.setdefault((chunk_types[rank], rank == owner[0], rank == owner[-1]), []).append(rank)
    heaviest = int(np.argmax(own @ parts.sum(axis=1)))
    return Shape(
        chunks=chunks,
        owner=owner,
        types=types,
        layers=tuple(tuple(of_layer[layer] for layer in chunk.layers) for chunk in types),
        parts=parts,
        own=own,
        before=before,
        chunk_types=chunk_types,
        watched=tuple(sorted({0, min(1, pp - 1), pp // 2, heaviest, pp - 1})),
        ranks=tuple(tuple(ranks) for ranks in groups.values()),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Covered:
    """What one recompute record does to every type of stage: `whole[t, kind]` layers run again, `kept[t, kind]` checkpoints kept for
    them; `last_whole[t]` position of the last one (-1: none); `selective` modules run again in all layers.
    """

    whole: Array
    kept: Array
    last_whole: tuple[int, ...]
    selective: bool


@lru_cache(maxsize=65_536)
def covered(arch: Architecture, shape: Shape, recompute: Recompute) -> Covered:
    """Counts of a recompute record over a split."""
    kinds, of_layer = layer_kinds(arch)
    whole, kept = np.zeros((len(shape.types), len(kinds))), np.zeros((len(shape.types), len(kinds)))
    last: list[int] = []
    grouped = recompute.method == "uniform" and recompute.layer_ids is None
    size = max(1, recompute.num_layers or 1) if grouped else 1
    for t, chunk in enumerate(shape.types):
        again = recomputed_layers(recompute, chunk)
        positions = [i for i, layer in enumerate(chunk.layers) if layer in again]
        for i in positions:
            whole[t, of_layer[chunk.layers[i]]] += 1
        for i in positions[::size]:
            kept[t, of_layer[chunk.layers[i]]] += 1
        last.append(positions[-1] if positions else -1)
    return Covered(whole=whole, kept=kept, last_whole=tuple(last), selective=recompute.granularity == "selective")


@lru_cache(maxsize=8192)
def light_stages(arch: Architecture, tp: int, ep: int, etp: int, shape: Shape) -> tuple[Stage, ...]:
    """The watched ranks as the memory projection sees them, without profiles and placeholders (which depend on the levers)."""
    stages = []
    for rank in shape.watched:
        held = tuple(chunk for chunk, owner in zip(shape.chunks, shape.owner, strict=True) if owner == rank)
        kinds = layer_shapes(arch, held)
        weights = [weight for moe, kind in kinds for weight in layer_weights(arch, moe, tp, ep, etp, kind)]
        sizes = [layer_parameters(arch, moe, tp, ep, etp, kind).total for moe, kind in kinds]
        stages.append(
            Stage(
                rank=rank,
                profiles=(),
                parameters=rank_parameters(arch, tp, ep, etp, held),
                has_loss=any(chunk.loss for chunk in held),
                linear_elements=sum(weight.elements for weight in weights if not weight.expert),
                expert_elements=sum(weight.elements for weight in weights if weight.expert),
                placeholder_bytes=0.0,
                largest_layer_parameters=max(sizes, default=0),
                layer_parameters=sum(sizes),
                like=rank,
            )
        )
    return tuple(stages)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class States:
    """The fullest states of one rank: live and pending micro-batches [state, chunk]; the chunk whose full backward runs, or -1."""

    live: Array
    pending: Array
    backward: tuple[int, ...]


@lru_cache(maxsize=16_384)
def fullest_states(schedule: ScheduleKey, rank: int) -> States:
    """At most STATES_A_RANK states a rank, those that hold most; a forward counts its own micro-batch.

    The heuristic schedule takes long to plan: its warm-up holds at least as many as 1F1B's, min(m, PP - rank) (tested), with its own
    costs and no cap; with others at least one.
    """
    name, pp, vpp, micro_batches, group, planner = schedule
    if name == "zero-bubble-heuristic":
        least = 1 if planner else min(micro_batches, pp - rank)
        return States(live=np.array([[float(least)]]), pending=np.zeros((1, 1)), backward=(-1,))
    rows: dict[tuple[tuple[int, ...], tuple[int, ...], int], None] = {}
    for state in live_states(name, pp=pp, vpp=vpp, micro_batches=micro_batches, group_size=group)[rank]:
        live = list(state.forward_live)
        if state.kind == "F":
            live[state.chunk] += 1
        rows[tuple(live), state.weight_pending, state.chunk if state.kind == "D" else -1] = None
    ordered = sorted(rows, key=lambda row: (-sum(row[0]) - sum(row[1]), row[2] < 0))[:STATES_A_RANK]
    return States(
        live=np.array([row[0] for row in ordered], dtype=float),
        pending=np.array([row[1] for row in ordered], dtype=float),
        backward=tuple(row[2] for row in ordered),
    )
