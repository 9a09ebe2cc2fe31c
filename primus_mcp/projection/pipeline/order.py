"""What a pipeline schedule is: per rank an ordered list of tasks, and nothing else (no times, no bytes)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["F", "B", "W", "D"]


class Task(NamedTuple):
    """F forward; B input gradient (with its recompute); W weight gradient; D = B and W in one go. `chunk` counts the rank's own chunks."""

    kind: Kind
    micro_batch: int
    chunk: int


Row = tuple[Task, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receives:
    """What transfers wait for besides their sender. `asked[rank][place]`: the place whose task the input of `place` is asked for before.
    `queues`: (receiving rank, its place) of transfers that run one after another.
    """

    asked: tuple[tuple[int, ...], ...]
    queues: tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Tasks of every rank in the order in which it runs them.

    `vee`: odd chunks are placed mirrored (the last stage of two lies on rank 0). `period`: micro-batches after which the steady
    pattern repeats; 0 where it does not. `paired_from`: place in each rank's row from which an F directly before a D or B of other work
    runs overlapped with it; empty where no tasks overlap. `copies`: 2 where chunk 1 belongs to a second copy of the model, which takes half
    of the micro-batches in the other direction (DualPipe); micro-batches are then numbered in each copy. `receives`: when transfers
    begin in Primus's own pipeline; None for orders that it does not run.
    """

    schedule: str
    pp: int
    vpp: int
    micro_batches: int
    vee: bool
    period: int
    paired_from: tuple[int, ...]
    ranks: tuple[Row, ...]
    copies: int = 1
    receives: Receives | None = None

    @property
    def streamed(self) -> int:
        """Micro-batches that each chunk runs."""
        return self.micro_batches // self.copies

    @property
    def splits_weight_gradient(self) -> bool:
        """Whether B and W are separate tasks."""
        return any(task.kind == "B" for row in self.ranks for task in row)


def stage_of(rank: int, chunk: int, pp: int, *, vee: bool) -> int:
    """Model position (0 = embedding side) of a chunk: loop = chunk pp + rank; vee = mirrored on odd chunks."""
    return chunk * pp + (pp - 1 - rank if vee and chunk % 2 else rank)


def home_of(stage: int, pp: int, *, vee: bool) -> tuple[int, int]:
    """(rank, chunk) of a model position: the inverse of `stage_of`."""
    chunk, place = divmod(stage, pp)
    return (pp - 1 - place if vee and chunk % 2 else place), chunk


def _overlap(task: Task, following: Task) -> bool:
    return task.kind == "F" and following.kind in "BD" and task[1:] != following[1:]


def pair_places(order: Order) -> tuple[frozenset[int], ...]:
    """Per rank the places of the forwards that run overlapped with the D or B behind them, which is not their own."""
    if not order.paired_from:
        return (frozenset(),) * order.pp
    return tuple(
        frozenset(place for place in range(start, len(row) - 1) if _overlap(row[place], row[place + 1]))
        for row, start in zip(order.ranks, order.paired_from, strict=True)
    )
