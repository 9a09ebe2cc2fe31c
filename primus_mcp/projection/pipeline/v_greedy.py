"""V-Half and V-Min: a building block repeated on a grid of unit cells, then pulled together without raising the peak.

Qi et al. 2024, "Pipeline parallelism with controllable memory", arXiv:2405.15362. The grid is built for F = B = W = 1 cell; only the
order of the tasks is kept (and where a rank asks for its inputs), real times are run through it later.
"""

from __future__ import annotations

from primus_mcp.projection.pipeline.order import Kind, Row, Task, home_of, stage_of

Offsets = dict[tuple[Kind, int], int]
Cells = tuple[tuple[int, ...], ...]
_BLOCK_CELLS = 6  # F, B and W of two chunks
_CHANGE = {"F": 1, "B": 0, "W": -1}  # live chunks; what B leaves is needed by W


def v_half(pp: int, micro_batches: int) -> tuple[tuple[Row, ...], Cells]:
    """Rows and the cell of every task. Peak floor(pp/2) + 1 micro-batches of 1/pp of the model, about half of 1F1B."""
    gap = 0 if pp % 2 else 3
    return _greedy(
        [
            {("F", 0): 2 * r, ("F", 1): 3 * pp - r - 2, ("B", 1): 3 * pp + gap + 2 * r - 1, ("B", 0): 6 * pp + gap - r - 2}
            for r in range(pp)
        ],
        micro_batches,
    )


def v_min(pp: int, micro_batches: int) -> tuple[tuple[Row, ...], Cells]:
    """Rows and the cell of every task. Peak floor((pp+1)/3) + 1 micro-batches of 1/pp of the model, about a third of 1F1B."""
    gap = 0 if pp % 3 else 2
    return _greedy(
        [{("F", 0): r, ("F", 1): 2 * pp - r - 1, ("B", 1): 2 * pp + gap + r, ("B", 0): 4 * pp + gap - r - 1} for r in range(pp)],
        micro_batches,
    )


def _greedy(offsets: list[Offsets], micro_batches: int) -> tuple[tuple[Row, ...], Cells]:
    grid = _Grid(offsets, micro_batches)
    cap = grid.place_weights()
    grid.pull_forward(cap)
    grid.pull_cooldown()
    taken = tuple(tuple(sorted(cells)) for cells in grid.cells)
    return tuple(tuple(cells[cell] for cell in own) for own, cells in zip(taken, grid.cells, strict=True)), taken


class _Grid:
    """`cells[rank]`: cell -> task; `when[rank]`: task -> cell; `live[rank][cell]`: live chunks after the cell."""

    def __init__(self, offsets: list[Offsets], micro_batches: int) -> None:
        self.pp, self.micro_batches = len(offsets), micro_batches
        self.when: list[dict[Task, int]] = [
            {Task(kind, i, chunk): start + _BLOCK_CELLS * i for (kind, chunk), start in of_rank.items() for i in range(micro_batches)}
            for of_rank in offsets
        ]
        self.cells: list[dict[int, Task]] = [{cell: task for task, cell in when.items()} for when in self.when]
        self.live: list[list[int]] = []
        self.cooling: list[set[Task]] = []
        self.length = 0

    def place_weights(self) -> int:
        """Gives every W the first free cell after its B, oldest first; notes what follows the last F1. Returns the peak live count."""
        for rank in range(self.pp):
            self._place_weights_of(rank)
        self.length = max(map(len, self.live))
        for live in self.live:
            live += [live[-1]] * (self.length - len(live))
        return max(map(max, self.live))

    def _place_weights_of(self, rank: int) -> None:
        cells, when = self.cells[rank], self.when[rank]
        queue: list[Task] = []
        cooling: set[Task] = set()
        live, now, cell, last = [], 0, 0, max(cells)
        cool = False
        while cell <= last or queue:
            task = cells.get(cell)
            if task is None and queue:
                task = queue.pop(0)._replace(kind="W")
                cells[cell], when[task] = task, cell
            if task is not None:
                now += _CHANGE[task.kind]
                if cool:
                    cooling.add(task)
                if task.kind == "B":
                    queue.append(task)
                # The cool-down counts from the last F1, but the first B0 hides one that came before it.
                if task == ("B", 0, 0):
                    cool = False
                elif task == ("F", self.micro_batches - 1, 1):
                    cool = True
            live.append(now)
            cell += 1
        self.live.append(live)
        self.cooling.append(cooling)

    def earliest(self, rank: int, task: Task) -> int:
        """The first cell after the task's inputs and its predecessor of the same kind and chunk."""
        kind, i, chunk = task
        when = self.when[rank]
        cell = when[Task(kind, i - 1, chunk)] + 1 if i else 0
        if kind == "W":
            return max(cell, when[Task("B", i, chunk)] + 1)
        source = stage_of(rank, chunk, self.pp, vee=True) + (-1 if kind == "F" else 1)
        if 0 <= source < 2 * self.pp:
            other, its_chunk = home_of(source, self.pp, vee=True)
            return max(cell, self.when[other][Task(kind, i, its_chunk)] + 1)
        return max(cell, when[Task("F", i, chunk)] + 1) if kind == "B" else cell

    def move(self, rank: int, task: Task, old: int, new: int) -> None:
        if new != old:
            del self.cells[rank][old]
            self.cells[rank][new], self.when[rank][task] = task, new

    def pull_forward(self, cap: int) -> None:
        """Every task, by cell and rank, to the first free cell that keeps the live count within `cap` on the way."""
        for cell in range(self.length):
            for rank in range(self.pp):
                task = self.cells[rank].get(cell)
                if task is None:
                    continue
                change, live = _CHANGE[task.kind], self.live[rank]
                for new in range(self.earliest(rank, task), cell):
                    if new not in self.cells[rank] and (change <= 0 or max(live[new:cell]) + change <= cap):
                        for passed in range(new, cell):
                            live[passed] += change
                        self.move(rank, task, cell, new)
                        break

    def pull_cooldown(self) -> None:
        """After the last F1: first F and B as early as they can with W lifted out, then the W into what is free."""
        lifted: list[list[Task]] = [[] for _ in range(self.pp)]
        for cell in range(self.length):
            for rank, cells in enumerate(self.cells):
                task = cells.get(cell)
                if task is None or task not in self.cooling[rank]:
                    continue
                if task.kind == "W":
                    lifted[rank].append(task)
                    del cells[cell]
                else:
                    free = (new for new in range(self.earliest(rank, task), cell) if new not in cells)
                    self.move(rank, task, cell, next(free, cell))
        for rank, tasks in enumerate(lifted):
            for task in tasks:
                cell = self.earliest(rank, task)
                while cell in self.cells[rank]:
                    cell += 1
                self.cells[rank][cell], self.when[rank][task] = task, cell
