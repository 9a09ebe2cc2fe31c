"""How a solved order grows: one more F, B and W a rank, repeated for ever at a place where that keeps the order and the cap.

An order of one chunk a rank is a word over F, B and W in which each kind counts its micro-batches up. Repeating a block of one F, B and W
leaves the differences of the counts as they are, so if the block is legal once it is legal for ever; that ranks do not wait for each other
for ever is checked when the graph is built, and again at every size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from primus_mcp.projection.pipeline.graph import Graph, build_graph, end_times, value_table
from primus_mcp.projection.pipeline.heuristic import PlannerCosts
from primus_mcp.projection.pipeline.order import Kind, Order, Row, Task
from primus_mcp.projection.pipeline.periodic import Splice
from primus_mcp.projection.pipeline.rules import SOLVED_SCHEDULE
from primus_mcp.projection.pipeline.steady import Repeating, repeating_graph

Word = tuple[Kind, ...]
_BLOCKS: tuple[tuple[Kind, Kind, Kind], ...] = (("F", "W", "B"), ("F", "B", "W"), ("W", "F", "B"))
_LEAST_REPEATS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where one rank's row grows, and by which order of one F, B and W."""

    at: int
    block: tuple[Kind, Kind, Kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """An order of `base` micro-batches whose rows grow by one block a micro-batch; without cuts it has this one size."""

    pp: int
    base: int
    rows: tuple[Word, ...]
    cuts: tuple[Cut, ...] = ()

    @property
    def period(self) -> int:
        """One micro-batch, none where it cannot grow."""
        return 1 if self.cuts else 0

    def first_size(self, micro_batches: int) -> int:  # noqa: ARG002
        """Enough repeats to compare states."""
        return self.base + _LEAST_REPEATS

    def order(self, micro_batches: int) -> Order:
        """The order of any number of micro-batches from `base` on."""
        more = micro_batches - self.base
        words = [
            row[: cut.at] + cut.block * more + row[cut.at :] if cut else row
            for row, cut in zip(self.rows, self.cuts or (None,) * self.pp, strict=True)
        ]
        ranks = tuple(map(numbered, words))
        return Order(
            schedule=SOLVED_SCHEDULE,
            pp=self.pp,
            vpp=1,
            micro_batches=micro_batches,
            vee=False,
            period=self.period,
            paired_from=(),
            ranks=ranks,
        )

    def graph(self, micro_batches: int) -> Graph:
        """Built once a size."""
        return _grown_graph(self, micro_batches)

    def repeating(self, micro_batches: int) -> Repeating | None:
        """The cuts of this size."""
        repeats = micro_batches - self.base
        found = tuple(Splice(at=cut.at + 3 * repeats, length=3, repeats=repeats) for cut in self.cuts)
        return repeating_graph(self.graph(micro_batches), found)


@lru_cache(maxsize=64)
def _grown_graph(grown: Grown, micro_batches: int) -> Graph:
    return build_graph(grown.order(micro_batches))


def numbered(word: tuple[Kind, ...]) -> Row:
    """Kinds to tasks: micro-batches count up in every kind."""
    count = {"F": 0, "B": 0, "W": 0}
    row = []
    for kind in word:
        row.append(Task(kind, count[kind], 0))
        count[kind] += 1
    return tuple(row)


def words_of(rows: tuple[Row, ...]) -> tuple[Word, ...]:
    """The kinds of every rank."""
    return tuple(tuple(task.kind for task in row) for row in rows)


def caps_of(micro_batches: int, costs: PlannerCosts) -> tuple[float, ...]:
    """Most live micro-batches of every rank."""
    return costs.caps or (float(micro_batches),) * len(costs.forward)


def _fitting_cuts(word: tuple[Kind, ...], cap: float, micro_batch: int) -> tuple[Cut, ...]:
    """The ways in which a row may grow behind B(micro_batch - 1)."""
    at = [place for place, kind in enumerate(word, 1) if kind == "B"][micro_batch - 1]
    return tuple(Cut(at=at, block=block) for block in _BLOCKS if _may_repeat(_counts(word[:at]), block, cap))


def _counts(word: Word) -> tuple[int, int, int]:
    return word.count("F"), word.count("B"), word.count("W")


def _may_repeat(counts: tuple[int, int, int], block: Word, cap: float) -> bool:
    """Whether a block that leaves the differences of the counts as they are keeps them legal inside itself."""
    forwards, backwards, weights = counts
    for kind in block:
        forwards, backwards, weights = forwards + (kind == "F"), backwards + (kind == "B"), weights + (kind == "W")
        if not forwards >= backwards >= weights or forwards - weights > cap:
            return False
    return True


def _growths(base: int, rows: tuple[Row, ...], caps: tuple[float, ...]) -> Iterator[Grown]:
    """Every place of the later half where all ranks can grow, each rank by its first choice of each preference."""
    words = words_of(rows)
    for micro_batch in range(base // 2, base):
        choices = [_fitting_cuts(word, cap, micro_batch) for word, cap in zip(words, caps, strict=True)]
        if not all(choices):
            continue
        seen = set()
        for preferred in range(len(_BLOCKS)):
            picked = tuple(next((cut for cut in cuts if cut.block == _BLOCKS[preferred]), cuts[0]) for cuts in choices)
            if picked not in seen:
                seen.add(picked)
                yield Grown(pp=len(words), base=base, rows=words, cuts=picked)


def run_step_s(grown: Grown, micro_batches: int, costs: PlannerCosts) -> float | None:
    """Step of one size; None where ranks would wait for each other for ever."""
    try:
        graph = build_graph(grown.order(micro_batches))
    except ValueError:
        return None
    values = value_table(costs.forward, costs.backward, costs.weight, (costs.hop,) * (grown.pp - 1))
    return max(end_times(graph, values))


def best_growth(base: int, rows: tuple[Row, ...], micro_batches: int, costs: PlannerCosts) -> Grown | None:
    """The growth with the shortest trial, then improved rank by rank."""
    caps, trial = caps_of(micro_batches, costs), min(micro_batches, base + 3 * len(rows))
    best: Grown | None = None
    best_s = 0.0
    for grown in _growths(base, rows, caps):
        step = run_step_s(grown, trial, costs)
        if step is not None and (best is None or step < best_s):
            best, best_s = grown, step
    if best is None:
        return None
    for rank, block in product(range(len(rows)), _BLOCKS):
        cut = replace(best.cuts[rank], block=block)
        if cut == best.cuts[rank] or not _may_repeat(_counts(best.rows[rank][: cut.at]), block, caps[rank]):
            continue
        other = replace(best, cuts=(*best.cuts[:rank], cut, *best.cuts[rank + 1 :]))
        step = run_step_s(other, trial, costs)
        if step is not None and step < best_s:
            best, best_s = other, step
    return best
