"""The dependency graph of an order, in a sequence in which every node follows what it waits for. No times in it.

Node 0 is time zero; row k describes node k + 1 as (previous node of its rank, node of its input, index of the latency, index of the
duration), both indices into the value table of `value_table`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import lru_cache

from primus_mcp.projection.pipeline.heuristic import PlannerCosts
from primus_mcp.projection.pipeline.order import Order, Row, Task, pair_places, stage_of
from primus_mcp.projection.pipeline.schedules import build_order

GraphRow = tuple[int, int, int, int]
_BLOCK = {"F": 0, "B": 1, "W": 2, "D": 3}
_HOP_BLOCK = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Of each rank's i-th task, `task_nodes[rank][i]` is the node in which it ends and `entries[rank][i]` what it waits for: the last
    node of its rank and the node of its input. `owners[node]` = (rank, i); a transfer belongs to its sender's task. `tails[rank]` =
    the rank's last node. The tasks of an overlapped pair end in one node. `asked_after[rank][i]` = the node of the rank behind which the
    task's input was asked for, `queued_after[rank][i]` = the transfer before that of its input; 0 where nobody asks.
    """

    order: Order
    rows: tuple[GraphRow, ...]
    task_nodes: tuple[tuple[int, ...], ...]
    entries: tuple[tuple[tuple[int, int], ...], ...]
    owners: tuple[tuple[int, int], ...]
    tails: tuple[int, ...]
    asked_after: tuple[tuple[int, ...], ...]
    queued_after: tuple[tuple[int, ...], ...]


def value_table(
    forward_s: tuple[float, ...],
    backward_s: tuple[float, ...],
    weight_s: tuple[float, ...],
    hop_s: tuple[float, ...],
    pair_s: tuple[float, ...] = (),
) -> list[float]:
    """Seconds by index: 0; F, B, W and D = B + W of every stage; one hop for every boundary between stages; the overlapped pairs.

    pair_s[s * vpp + c] = forward of stage s with the backward of chunk c on the same rank.
    """
    whole = [backward + weight for backward, weight in zip(backward_s, weight_s, strict=True)]
    return [0.0, *forward_s, *backward_s, *weight_s, *whole, *hop_s, *pair_s]


def check_complete(order: Order) -> None:
    """Every rank holds F and (D, or B and W) of all its micro-batches and chunks once, F before B before W. Raises ValueError."""
    for rank, row in enumerate(order.ranks):
        seen: dict[Task, int] = {}
        for place, task in enumerate(row):
            if task in seen:
                raise ValueError(f"rank {rank} runs {task} twice")
            seen[task] = place
        for chunk in range(order.vpp):
            for i in range(order.streamed):
                _check_one(rank, i, chunk, seen)
        if seen:
            raise ValueError(f"rank {rank} runs tasks that do not exist: {list(seen)[:3]}")


def _check_one(rank: int, micro_batch: int, chunk: int, seen: dict[Task, int]) -> None:
    """Removes the tasks of one micro-batch and chunk from `seen`; raises where one lacks or comes too early."""
    what = f"rank {rank}, micro-batch {micro_batch}, chunk {chunk}"
    forward = seen.pop(Task("F", micro_batch, chunk), None)
    whole = seen.pop(Task("D", micro_batch, chunk), None)
    if forward is None:
        raise ValueError(f"{what}: no F")
    if whole is not None:
        steps = [forward, whole]
    else:
        split = seen.pop(Task("B", micro_batch, chunk), None), seen.pop(Task("W", micro_batch, chunk), None)
        if split[0] is None or split[1] is None:
            raise ValueError(f"{what}: needs D, or B and W")
        steps = [forward, split[0], split[1]]
    if steps != sorted(steps):
        raise ValueError(f"{what}: F, B, W out of order")


class _Builder:
    """Sweeps the ranks round robin and appends what is ready."""

    def __init__(self, order: Order, *, blocking: bool, asking: bool) -> None:
        self.order, self.blocking, self.receives = order, blocking, order.receives if asking else None
        self.stages = order.pp * order.vpp
        self.stage = [[stage_of(r, c, order.pp, vee=order.vee) for c in range(order.vpp)] for r in range(order.pp)]
        self.rank_of = {stage: rank for rank, chunks in enumerate(self.stage) for stage in chunks}
        self.pairs = pair_places(order)
        self.rows: list[GraphRow] = []
        self.owners: list[tuple[int, int]] = [(0, 0)]
        self.nodes: list[list[int]] = [[] for _ in range(order.pp)]
        self.entries: list[list[tuple[int, int]]] = [[] for _ in range(order.pp)]
        self.asked_after = [[0] * len(row) for row in order.ranks]
        self.queued_after = [[0] * len(row) for row in order.ranks]
        self.queues = [deque(queue) for queue in self.receives.queues] if self.receives else []
        self.last_transfer = [0] * len(self.queues)
        self.arrival: dict[tuple[int, int], int] = {}  # (rank, place) -> node where its input has come
        self.tails = [0] * order.pp
        self.output: dict[tuple[bool, int, int], int] = {}  # (is forward, stage, micro-batch) -> node where its output is ready

    def input_of(self, rank: int, task: Task) -> tuple[int, int] | None:
        """(node, latency index) that the task waits for besides its rank; None while that has not run."""
        if task.kind == "W":
            return 0, 0
        stage, forward = self.stage[rank][task.chunk], task.kind == "F"
        source = stage - 1 if forward else stage + 1
        if not self.linked(stage, source):
            return 0, 0
        node = self.output.get((forward, source, task.micro_batch))
        if node is None:
            return None
        local = self.blocking or self.rank_of[source] == rank
        return node, 0 if local else self.hop_index(min(stage, source))

    def linked(self, stage: int, other: int) -> bool:
        """Whether the two neighbours exist and belong to one copy of the model."""
        length = self.stages // self.order.copies
        return 0 <= other < self.stages and stage // length == other // length

    def hop_index(self, boundary: int) -> int:
        return 1 + _HOP_BLOCK * self.stages + boundary

    def pair_index(self, stage: int, chunk: int) -> int:
        return self.hop_index(self.stages - 1) + stage * self.order.vpp + chunk

    def add_row(self, rank: int, source: tuple[int, int], duration: int) -> None:
        """A node behind the rank's last one; it belongs to the rank's next task."""
        self.rows.append((self.tails[rank], *source, duration))
        self.owners.append((rank, len(self.nodes[rank])))
        self.tails[rank] = len(self.rows)

    def transfer(self, pair: int) -> bool:
        """Runs the next transfer between two neighbours if its output is there and its receiver has asked; whether it could.

        A joint of no duration waits for the transfer before and the asking, the transfer's node for both that and the output.
        """
        if not self.queues[pair]:
            return False
        rank, place = self.queues[pair][0]
        assert self.receives is not None
        asked = self.receives.asked[rank][place]
        source = self.input_of(rank, self.order.ranks[rank][place])
        if source is None or asked > len(self.nodes[rank]):
            return False
        self.queues[pair].popleft()
        after, before = self.nodes[rank][asked - 1] if asked else 0, self.last_transfer[pair]
        self.asked_after[rank][place], self.queued_after[rank][place] = after, before
        self.rows += [(before, after, 0, 0), (len(self.rows) + 1, source[0], 0, source[1])]
        self.owners += [(rank, place)] * 2
        self.last_transfer[pair] = self.arrival[rank, place] = len(self.rows)
        return True

    def arrived(self, rank: int, source: tuple[int, int]) -> tuple[int, int] | None:
        """The input of the rank's next task as its row waits for it; None while a transfer that it is asked for by has not run."""
        if self.receives is None or not source[1]:
            return source
        node = self.arrival.get((rank, len(self.nodes[rank])))
        return None if node is None else (node, 0)

    def send(self, rank: int, task: Task, place: int) -> None:
        """Makes the task's output available, behind its transfer where the sender waits for it."""
        if task.kind == "W":
            return
        stage, forward = self.stage[rank][task.chunk], task.kind == "F"
        target = stage + 1 if forward else stage - 1
        if self.blocking and self.linked(stage, target) and self.rank_of[target] != rank:
            self.add_row(rank, (0, 0), self.hop_index(min(stage, target)))
            self.owners[-1] = rank, place
        self.output[forward, stage, task.micro_batch] = self.tails[rank]

    def run_task(self, rank: int, task: Task) -> int:
        """Number of tasks run: 1, or 0 while the input lacks."""
        source = self.input_of(rank, task)
        came = None if source is None else self.arrived(rank, source)
        if source is None or came is None:
            return 0
        self.entries[rank].append((self.tails[rank], source[0]))
        self.add_row(rank, came, 1 + _BLOCK[task.kind] * self.stages + self.stage[rank][task.chunk])
        self.nodes[rank].append(self.tails[rank])
        self.send(rank, task, len(self.nodes[rank]) - 1)
        return 1

    def run_pair(self, rank: int, forward: Task, backward: Task) -> int:
        """An overlapped pair: a joint of no duration waits for the first input, the pair's node for the second. 2, or 0 while one lacks."""
        sources = self.input_of(rank, forward), self.input_of(rank, backward)
        if sources[0] is None or sources[1] is None:
            return 0
        place = len(self.nodes[rank])
        for source, duration in zip(sources, (0, self.pair_index(self.stage[rank][forward.chunk], backward.chunk)), strict=True):
            assert source is not None
            self.entries[rank].append((self.tails[rank], source[0]))
            self.add_row(rank, source, duration)
        self.owners[-1] = rank, place + 1
        self.nodes[rank] += [self.tails[rank]] * 2
        self.send(rank, forward, place + 1)
        self.send(rank, backward, place + 1)
        return 2

    def run_next(self, rank: int, row: Row) -> int:
        """Number of tasks that the rank could run at its place."""
        place = len(self.nodes[rank])
        if place == len(row):
            return 0
        task = row[place]
        if place in self.pairs[rank]:
            return self.run_pair(rank, task, row[place + 1])
        return self.run_task(rank, task)

    def sweep(self) -> bool:
        """Runs every rank as far as it gets; whether any moved."""
        moved = False
        for pair in range(len(self.queues)):
            while self.transfer(pair):
                moved = True
        for rank, row in enumerate(self.order.ranks):
            while self.run_next(rank, row):
                moved = True
        return moved


def build_graph(order: Order, *, blocking: bool = False, asking: bool = False) -> Graph:
    """The graph of an order: F(i, s) waits for F(i, s-1); B or D(i, s) for B or D(i, s+1), on the last stage for F(i, s); W for B.

    blocking: a rank also waits for each transfer that it sends. asking: none begins before its receiver asks, and
    those of two neighbours run one after another (`Order.receives`). Raises
    ValueError for a task that is missing, doubled or out of order, and for a deadlock, naming the task at which every rank waits.
    """
    check_complete(order)
    builder = _Builder(order, blocking=blocking, asking=asking)
    while builder.sweep():
        pass
    places = [len(nodes) for nodes in builder.nodes]
    waiting = [f"rank {rank} waits at {row[places[rank]]}" for rank, row in enumerate(order.ranks) if places[rank] < len(row)]
    if waiting:
        raise ValueError("deadlock: " + "; ".join(waiting))
    return Graph(
        order=order,
        rows=tuple(builder.rows),
        task_nodes=tuple(map(tuple, builder.nodes)),
        entries=tuple(map(tuple, builder.entries)),
        owners=tuple(builder.owners),
        tails=tuple(builder.tails),
        asked_after=tuple(map(tuple, builder.asked_after)),
        queued_after=tuple(map(tuple, builder.queued_after)),
    )


@lru_cache(maxsize=128)
def named_graph(
    schedule: str,
    pp: int,
    vpp: int,
    micro_batches: int,
    group_size: int | None,
    planner: PlannerCosts | None,
    blocking: bool,
    asking: bool = False,
) -> Graph:
    """The graph of a schedule by name, built once."""
    return build_graph(build_order(schedule, pp, vpp, micro_batches, group_size, planner), blocking=blocking, asking=asking)


def end_times(graph: Graph, values: list[float]) -> list[float]:
    """End of every node: end = max(end[previous], end[input] + latency) + duration, the unique earliest execution."""
    end = [0.0]
    push = end.append
    for previous, source, latency, duration in graph.rows:
        free, ready = end[previous], end[source] + values[latency]
        push((ready if ready > free else free) + values[duration])
    return end
