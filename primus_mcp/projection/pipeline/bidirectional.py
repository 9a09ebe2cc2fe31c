"""DualPipe: two streams of micro-batches cross the ranks in opposite directions, a forward of one beside a backward of the other.

DeepSeek-V3 technical report, arXiv:2412.19437, section 3.2.1; phases as in github.com/deepseek-ai/DualPipe. Chunk 0 of rank r is stage r of
the first copy of the model, chunk 1 stage pp-1-r of the second; each copy takes half of the micro-batches. DualPipeV folds the two into
one model of 2 pp stages in a V, where the second stream is the same micro-batches on their way back.
"""

from __future__ import annotations

from collections import deque

from primus_mcp.projection.pipeline.order import Kind, Row, Task


class _Writer:
    """Appends tasks of the near chunk (the one whose stage comes first in its model) and the far one; W wait in one queue."""

    def __init__(self, near: int) -> None:
        self.near = near
        self.row: list[Task] = []
        self.count: dict[tuple[str, int], int] = {}
        self.waiting: deque[Task] = deque()
        self.paired_from = 0

    def put(self, kind: Kind, *, far: bool) -> None:
        """The next F, D or B of a chunk; the W of a B waits. Backwards count on, whether split or whole."""
        chunk = 1 - self.near if far else self.near
        stream = "F" if kind == "F" else "B"
        i = self.count.get((stream, chunk), 0)
        self.count[stream, chunk] = i + 1
        self.row.append(Task(kind, i, chunk))
        if kind == "B":
            self.waiting.append(Task("W", i, chunk))

    def put_weight(self) -> None:
        """The oldest W that waits."""
        self.row.append(self.waiting.popleft())


def _row(depth: int, outer: int, streamed: int, near: int) -> tuple[Row, int]:
    """(row, place of its first overlapped pair) of a rank that is `outer` ranks from its end of a half of `depth` ranks.

    a = near, b = far chunk, n micro-batches a chunk, X an overlapped pair:
    Fa^2(H-1-q) (Fa Fb)^(q+1) (Bb W Fb)^(H-1-q) (X(Fa,Db) X(Fb,Da))^(n-2H+q+1) (Db X(Fb,Da))^(H-1-q) (Db Da)^(q+1) (W Ba)^(H-1-q) W*,
    where the innermost rank runs its first Fa, Db apart, and of the 2(q+1) backwards before the last phase those from q+1 on are split.
    """
    writer, inner = _Writer(near), depth - 1 - outer
    for _ in range(2 * inner):
        writer.put("F", far=False)
    for _ in range(outer + 1):
        writer.put("F", far=False)
        writer.put("F", far=True)
    for _ in range(inner):
        writer.put("B", far=True)
        writer.put_weight()
        writer.put("F", far=True)
    paired_from = len(writer.row) + (2 if inner == 0 else 0)
    for _ in range(streamed - 2 * depth + outer + 1):
        writer.put("F", far=False)
        writer.put("D", far=True)
        writer.put("F", far=True)
        writer.put("D", far=False)
    for _ in range(inner):
        writer.put("D", far=True)
        writer.put("F", far=True)
        writer.put("D", far=False)
    for k in range(2 * (outer + 1)):
        writer.put("B" if k > outer else "D", far=k % 2 == 0)
    for _ in range(inner):
        writer.put_weight()
        writer.put("B", far=False)
    while writer.waiting:
        writer.put_weight()
    return tuple(writer.row), paired_from


def dualpipe(pp: int, micro_batches: int) -> tuple[tuple[Row, ...], tuple[int, ...]]:
    """(rows, place of the first overlapped pair of each rank), micro_batches of both directions together; numbers count in each copy."""
    rows = [_row(pp // 2, min(rank, pp - 1 - rank), micro_batches // 2, int(2 * rank >= pp)) for rank in range(pp)]
    return tuple(row for row, _ in rows), tuple(place for _, place in rows)


def dualpipe_v(pp: int, micro_batches: int) -> tuple[tuple[Row, ...], tuple[int, ...]]:
    """The same folded: one copy of 2 pp stages in a V."""
    rows = [_row(pp, rank, micro_batches, 0) for rank in range(pp)]
    return tuple(row for row, _ in rows), tuple(place for _, place in rows)
