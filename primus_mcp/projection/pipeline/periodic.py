"""How an order grows: the order for m + period micro-batches is the order for m with one more block spliced into every rank.

The block is a copy of the block before it with the micro-batch numbers shifted. This is checked on the orders, not assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from primus_mcp.projection.pipeline.heuristic import PlannerCosts
from primus_mcp.projection.pipeline.order import Kind, Order
from primus_mcp.projection.pipeline.schedules import build_order, period_of, require_sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Splice:
    """One rank: a further block of `length` tasks goes in at position `at`; the `repeats` blocks before it are shifted copies of it."""

    at: int
    length: int
    repeats: int

    @property
    def first(self) -> int:
        """Where the repeating part begins."""
        return self.at - self.repeats * self.length


_Entry = tuple[Kind, int, int, int]  # a task, and how far before it its input is asked for
_Entries = tuple[_Entry, ...]


def _entries(order: Order, rank: int) -> _Entries:
    row = order.ranks[rank]
    receives = order.receives
    back = [place - asked for place, asked in enumerate(receives.asked[rank])] if receives else [0] * len(row)
    return tuple((kind, i, chunk, before) for (kind, i, chunk), before in zip(row, back, strict=True))


def _shifted(row: _Entries, by: int) -> _Entries:
    return tuple((kind, i + by, chunk, before) for kind, i, chunk, before in row)


def _splice_row(row: _Entries, longer: _Entries, period: int) -> Splice | None:
    length, at = len(longer) - len(row), 0
    while at < len(row) and row[at] == longer[at]:
        at += 1
    if _shifted(row[at:], period) != longer[at + length :]:
        return None
    block, repeats = longer[at : at + length], 0
    while at >= (repeats + 1) * length:
        start = at - (repeats + 1) * length
        if _shifted(row[start : start + length], (repeats + 1) * period) != block:
            break
        repeats += 1
    return Splice(at=at, length=length, repeats=repeats)


@lru_cache(maxsize=1024)
def splices(schedule: str, pp: int, vpp: int, micro_batches: int, group_size: int | None) -> tuple[Splice, ...] | None:
    """Where each rank grows by one period; None where the order does not grow that way from this size."""
    order = build_order(schedule, pp, vpp, micro_batches, group_size)
    if not order.period:
        return None
    longer = build_order(schedule, pp, vpp, micro_batches + order.period, group_size)
    shift = order.period // order.copies
    found = [_splice_row(_entries(order, rank), _entries(longer, rank), shift) for rank in range(pp)]
    whole = tuple(splice for splice in found if splice is not None)
    return whole if len(whole) == len(found) else None


def first_size(pp: int, micro_batches: int, period: int) -> int:
    """A size that usually holds warm-up, repeating part and cool-down, equal to m modulo the period.

    Found by trying: 2.5 pp for periods 1 (1F1B with hops repeats after pp) and 2 (DualPipe), 4 periods for the interleaved ones.
    """
    size = 4 * period if period > 2 else 5 * pp // 2 + 2
    return size + (micro_batches - size) % period


def representative_order(
    schedule: str, pp: int, vpp: int, micro_batches: int, group_size: int | None, planner: PlannerCosts | None
) -> Order:
    """An order in which every rank meets the same counts of live micro-batches as in the order for m, but of bounded size.

    A block holds as many F as D (or B and W) of each chunk, so each copy of it starts from the same counts: once a rank has one block
    before the splice point, further ones add no new state.
    """
    require_sizes(schedule, pp, vpp, micro_batches, group_size)
    period = period_of(schedule, pp, group_size)
    size = first_size(pp, micro_batches, period) if period else micro_batches
    while period and size < micro_batches:
        found = splices(schedule, pp, vpp, size, group_size)
        if found is not None and all(splice.repeats for splice in found):
            return build_order(schedule, pp, vpp, size, group_size)
        size += period * max(1, size // period)
    return build_order(schedule, pp, vpp, micro_batches, group_size, planner)
