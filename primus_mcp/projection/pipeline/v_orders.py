"""ZBV as Primus formats it by hand: two chunks a rank, placed as a V, so that the last stage lies on rank 0."""

from __future__ import annotations

from primus_mcp.projection.pipeline.order import Kind, Row, Task

_Stream = tuple[Kind, int]  # a kind of task on one of the two chunks
_F0: _Stream = ("F", 0)
_B0: _Stream = ("B", 0)
_W0: _Stream = ("W", 0)
_F1: _Stream = ("F", 1)
_B1: _Stream = ("B", 1)
_W1: _Stream = ("W", 1)


class _RowWriter:
    """Appends tasks; micro-batches count up in every kind and chunk."""

    def __init__(self) -> None:
        self.row: list[Task] = []
        self.count = dict.fromkeys((_F0, _B0, _W0, _F1, _B1, _W1), 0)

    def put(self, *streams: _Stream, times: int = 1) -> None:
        for stream in streams * times:
            self.row.append(Task(stream[0], self.count[stream], stream[1]))
            self.count[stream] += 1


def zbv(pp: int, micro_batches: int) -> tuple[Row, ...]:
    """The zero-bubble V order, for m >= 2 pp - 1. Qi et al. 2024, arXiv:2405.15362; phases as Primus's `zbv-formatted` runs them.

    F0^(2(pp-r)-1), (F1 F0)^r, (F1 B1 W1)^(pp-r), then [F0] B0 W0 F1 B1 W1 while a forward is left, (B0 B1)^r, (B0 W0)^(pp-r),
    the W1 that are left, the W0 that are left. Peak: pp micro-batches of 1/pp of the model on every rank.
    """
    return tuple(_zbv_row(pp, rank, micro_batches) for rank in range(pp))


def zbv_paired(pp: int, micro_batches: int) -> tuple[tuple[Row, ...], tuple[int, ...]]:
    """(the same rows, where on each rank F and the B behind it run overlapped when expert all-to-all is).

    From the steady phase on: in the phase before it, the gradient arrives while F runs. On rank 0 the second chunk is the last stage, whose
    B is of the F before it, so it pairs with nothing. AMD-AGI/Primus scheduler/algorithms/base.py, combined nodes.
    """
    return zbv(pp, micro_batches), tuple(2 * pp - 1 + 3 * (pp - rank) for rank in range(pp))


def _zbv_row(pp: int, rank: int, micro_batches: int) -> Row:
    writer = _RowWriter()
    put, count = writer.put, writer.count
    put(_F0, times=2 * (pp - rank) - 1)
    put(_F1, _F0, times=rank)
    put(_F1, _B1, _W1, times=pp - rank)
    while count[_F1] < micro_batches:
        if count[_F0] < micro_batches:
            put(_F0)
        put(_B0, _W0, _F1, _B1, _W1)
    put(_B0, _B1, times=rank)
    put(_B0, _W0, times=pp - rank)
    put(_W1, times=micro_batches - count[_W1])
    put(_W0, times=micro_batches - count[_W0])
    return tuple(writer.row)
