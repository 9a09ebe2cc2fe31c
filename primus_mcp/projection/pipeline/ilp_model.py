"""The shortest order of F, B and W as a mixed-integer linear program: one chunk a rank, a cap of live micro-batches on each.

After Qi et al. 2023, arXiv:2401.10241, appendix on the integer program, with two additions that change no optimum and let the solver prove
more: tasks of one kind run in micro-batch order, and every task ends after all that precedes it on its rank (load rows).

Variables: the end of every task, the step C, and for each rank and i > j a 0/1 `i before j` of (F_i, B_j), (F_i, W_j) and (B_i, W_j);
all other pairs are ordered already. Rows, all of the form sum >= bound:
  chains     e(k, i) >= e(k, i-1) + t_k;  W after B after F;  F after F of the rank before + hop, B after B of the rank behind + hop
  pairs      y = 1: e_later >= e_sooner + t;  y = 0 the other way round (big M = step of a known order)
  monotone   y grows with j and shrinks with i; F_i before B_j implies F_i before W_j, B_i before W_j too
  load       e >= head + everything before it on its rank;  C >= e + everything behind it;  C >= end of B + its way to rank 0
  memory     when F_i runs, i + 1 - (W that precede it) <= cap
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from primus_mcp.projection.pipeline.heuristic import PlannerCosts
from primus_mcp.projection.pipeline.order import Kind

Terms = list[tuple[int, float]]
KINDS: tuple[Kind, ...] = ("F", "B", "W")
_PAIRS = ("FB", "FW", "BW")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """Rows in compressed form: minimise `objective` with matrix x >= row_lower, x within the bounds, the last `binaries` columns 0 or 1.

    `ends[kind, rank, micro_batch]`: column of a task's end.
    """

    objective: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    row_lower: NDArray[np.float64]
    starts: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]
    binaries: int
    ends: dict[tuple[str, int, int], int]


def binaries_of(pp: int, micro_batches: int) -> int:
    """Pairs to decide: three kinds, every i > j, every rank."""
    return 3 * pp * micro_batches * (micro_batches - 1) // 2


def lower_bound_s(micro_batches: int, costs: PlannerCosts) -> float:
    """No order is shorter, whatever its memory: rank r starts after its head and does all its work, and its last B, which follows all its F
    and B, still travels to rank 0, where a W follows.
    """
    heads = [0.0, *accumulate(time + costs.hop for time in costs.forward[:-1])]
    tails = [0.0, *accumulate(time + costs.hop for time in costs.backward[:-1])]
    found = 0.0
    for rank, (forward, backward, weight) in enumerate(zip(costs.forward, costs.backward, costs.weight, strict=True)):
        last_weight = costs.weight[0] if rank else weight
        found = max(
            found,
            heads[rank] + micro_batches * (forward + backward + weight),
            heads[rank] + micro_batches * (forward + backward) + tails[rank] + last_weight,
        )
    return found


class _Rows:
    """Collects rows and columns."""

    def __init__(self, micro_batches: int, costs: PlannerCosts, step_s: float) -> None:
        self.m, self.costs, self.pp, self.big = micro_batches, costs, len(costs.forward), step_s
        self.time = {"F": costs.forward, "B": costs.backward, "W": costs.weight}
        tasks = [(kind, rank, i) for rank in range(self.pp) for kind in KINDS for i in range(micro_batches)]
        self.end: dict[tuple[str, int, int], int] = {task: column for column, task in enumerate(tasks)}
        self.step = len(tasks)
        pairs = [(pair, rank, i, j) for pair in _PAIRS for rank in range(self.pp) for i in range(micro_batches) for j in range(i)]
        self.sooner = {pair: self.step + 1 + column for column, pair in enumerate(pairs)}
        self.starts, self.columns, self.values, self.bounds = [0], list[int](), list[float](), list[float]()

    def add(self, terms: Terms, bound: float) -> None:
        for column, value in terms:
            self.columns.append(column)
            self.values.append(value)
        self.starts.append(len(self.columns))
        self.bounds.append(bound)

    def after(self, later: tuple[str, int, int], sooner: tuple[str, int, int], hop: float = 0.0) -> None:
        """The later task ends at least its own time (and a hop) after the sooner one."""
        self.add([(self.end[later], 1), (self.end[sooner], -1)], self.time[later[0]][later[1]] + hop)

    def chains(self, rank: int) -> None:
        for kind in KINDS:
            for i in range(1, self.m):
                self.after((kind, rank, i), (kind, rank, i - 1))
        hop = self.costs.hop
        for i in range(self.m):
            self.after(("W", rank, i), ("B", rank, i))
            if rank:
                self.after(("F", rank, i), ("F", rank - 1, i), hop)
            if rank + 1 < self.pp:
                self.after(("B", rank, i), ("B", rank + 1, i), hop)
            else:
                self.after(("B", rank, i), ("F", rank, i))

    def pair(self, pair: str, rank: int, i: int, j: int) -> None:
        """For y = 1 the first kind's i comes before the second kind's j."""
        sooner, first, second = self.sooner[pair, rank, i, j], self.end[pair[0], rank, i], self.end[pair[1], rank, j]
        self.add([(second, 1), (first, -1), (sooner, -self.big)], self.time[pair[1]][rank] - self.big)
        self.add([(first, 1), (second, -1), (sooner, self.big)], self.time[pair[0]][rank])
        if i + 1 < self.m:
            self.add([(sooner, 1), (self.sooner[pair, rank, i + 1, j], -1)], 0)
        if j + 1 < i:
            self.add([(self.sooner[pair, rank, i, j + 1], 1), (sooner, -1)], 0)

    def implied(self, rank: int, i: int, j: int) -> None:
        fb, fw, bw = (self.sooner[pair, rank, i, j] for pair in _PAIRS)
        self.add([(fw, 1), (fb, -1)], 0)
        self.add([(fw, 1), (bw, -1)], 0)

    def load(self, rank: int, i: int, head_s: float, tail_s: float) -> None:
        """Everything before and behind the three tasks of micro-batch i: own kind by number, other kinds by the pairs.

        Of kind K before task i of an earlier kind: sum over j < i of (1 - y), and none from i on; of an earlier kind k before task i of a
        later kind: i + 1, and each q > i with y.
        """
        forward, backward, weight = (self.time[kind][rank] for kind in KINDS)
        whole = forward + backward + weight
        m, end = self.m, self.end

        def before(pair: str, time: float) -> Terms:
            return [(self.sooner[pair, rank, i, j], time) for j in range(i)]

        def behind(pair: str, time: float) -> Terms:
            return [(self.sooner[pair, rank, q, i], time) for q in range(i + 1, m)]

        f, b, w = ((end[kind, rank, i], 1.0) for kind in KINDS)
        self.add([f, *before("FB", backward), *before("FW", weight)], head_s + (i + 1) * forward + i * (backward + weight))
        self.add([b, *behind("FB", -forward), *before("BW", weight)], head_s + (i + 1) * (forward + backward) + i * weight)
        self.add([w, *behind("FW", -forward), *behind("BW", -backward)], head_s + (i + 1) * whole)
        left = m - 1 - i
        minus = [(column, -1.0) for column, _ in (f, b, w)]
        step = (self.step, 1.0)
        self.add([step, minus[0], *before("FB", -backward), *before("FW", -weight)], left * forward + (m - i) * (backward + weight))
        self.add([step, minus[1], *behind("FB", forward), *before("BW", -weight)], left * (forward + backward) + (m - i) * weight)
        self.add([step, minus[2], *behind("FW", forward), *behind("BW", backward)], left * whole)
        self.add([step, minus[1]], tail_s + (self.costs.weight[0] if rank else 0.0))

    def memory(self, rank: int, i: int, cap: float) -> None:
        """1 + the W that do not precede F_i, of the j < i, stay within the cap."""
        self.add([(self.sooner["FW", rank, i, j], -1) for j in range(i)], 1 - cap)


def build_program(micro_batches: int, costs: PlannerCosts, step_s: float) -> Program:
    """The program for orders no longer than `step_s`, the step of a known order."""
    rows = _Rows(micro_batches, costs, step_s)
    caps = costs.caps or (float(micro_batches),) * rows.pp
    head_s = tail_s = 0.0
    for rank in range(rows.pp):
        rows.chains(rank)
        for i in range(micro_batches):
            rows.load(rank, i, head_s, tail_s)
            rows.memory(rank, i, caps[rank])
            for j in range(i):
                for pair in _PAIRS:
                    rows.pair(pair, rank, i, j)
                rows.implied(rank, i, j)
        head_s += costs.forward[rank] + costs.hop
        tail_s += costs.backward[rank] + costs.hop
    width = rows.step + 1 + len(rows.sooner)
    objective, lower, upper = np.zeros(width), np.zeros(width), np.full(width, step_s)
    objective[rows.step], lower[rows.step] = 1.0, min(step_s, lower_bound_s(micro_batches, costs))
    upper[rows.step + 1 :] = 1.0
    return Program(
        objective=objective,
        lower=lower,
        upper=upper,
        row_lower=np.array(rows.bounds),
        starts=np.array(rows.starts, dtype=np.int32),
        columns=np.array(rows.columns, dtype=np.int32),
        values=np.array(rows.values),
        binaries=len(rows.sooner),
        ends=rows.end,
    )
