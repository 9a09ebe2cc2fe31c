"""The automatic scheduler of the zero-bubble paper: list scheduling under a memory cap, eight variants, the best kept.

Qi et al. 2023, arXiv:2401.10241, appendix; one chunk a rank. It is the only schedule whose order depends on times: those that its
planner is given, not those that the tasks take when they run.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Literal

from primus_mcp.errors import InputError
from primus_mcp.projection.pipeline.order import Row, Task

Objective = Literal["makespan", "span"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerCosts:
    """What the planner assumes, in any one unit of time, per rank; `hop` = one transfer.

    caps: most live micro-batches of each rank, from F to W (Primus's `pp_max_mem`); None: no limit, up to m stay alive.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    weight: tuple[float, ...]
    hop: float
    caps: tuple[float, ...] | None = None


def default_costs(pp: int) -> PlannerCosts:
    """What Primus plans with unless `pp_cost_f/b/w` are set: 1000 for every task, 1 for a transfer, no cap.

    Source: AMD-AGI/Primus core/pipeline_parallel/scheduler/algorithms/zerobubble_heuristic.py and modules/megatron/primus_pipeline.yaml.
    """
    even = (1000.0,) * pp
    return PlannerCosts(forward=even, backward=even, weight=even, hop=1.0)


def plan_heuristic(micro_batches: int, costs: PlannerCosts, *, objective: Objective = "span") -> tuple[Row, ...]:
    """Rows of the best variant.

    A heuristic: at the memory of 1F1B it was slower than 1F1B in 5 of 25,000 random uneven cases, by up to 9%.
    objective: "span" = longest rank from its first task to its last, as Primus chooses; "makespan" = latest end. Raises
    InputError where nothing fits the cap.
    """
    if costs.caps is not None and min(costs.caps) < 1:
        raise InputError(f"a cap of {min(costs.caps):g} live micro-batches holds none", where="pp_max_mem", remedy="use at least 1")
    best: _Plan | None = None
    best_cost = inf
    tried: list[_Plan] = []
    for early, prefer_backward, fill in product((True, False), repeat=3):
        plan = _Plan(micro_batches, costs, early=early, prefer_backward=prefer_backward, fill=fill)
        if any(plan.repeats(other) for other in tried):
            continue
        tried.append(plan)
        if plan.run():
            cost = plan.span() if objective == "span" else max(plan.clock)
            if cost < best_cost - 1e-12 * cost:
                best, best_cost = plan, cost
    if best is None:
        raise InputError(f"no order keeps {costs.caps} live micro-batches a rank", where="pp_max_mem", remedy="raise the cap")
    return tuple(map(tuple, best.rows))


class _Plan:
    """One variant. Per rank: clock, idle since its first task, number of F, B and W done, and the rows.

    `decided`: the switches without which its order would have been another.
    """

    def __init__(self, micro_batches: int, costs: PlannerCosts, *, early: bool, prefer_backward: bool, fill: bool) -> None:
        self.m, self.costs, self.pp = micro_batches, costs, len(costs.forward)
        self.caps = costs.caps or (inf,) * self.pp
        self.early, self.prefer_backward, self.fill = early, prefer_backward, fill
        self.decided: set[str] = set()
        self.clock = [0.0] * self.pp
        self.begin: list[float | None] = [None] * self.pp
        self.idle = [0.0] * self.pp
        self.forwards, self.backwards, self.weights = [0] * self.pp, [0] * self.pp, [0] * self.pp
        self.forward_end: list[list[float]] = [[] for _ in range(self.pp)]
        self.backward_end: list[list[float]] = [[] for _ in range(self.pp)]
        self.rows: list[list[Task]] = [[] for _ in range(self.pp)]

    def repeats(self, other: _Plan) -> bool:
        """Whether another variant, which has run, differs only in switches that decided nothing there: the same order then."""
        return all(getattr(self, switch) == getattr(other, switch) for switch in other.decided)

    def span(self) -> float:
        return max(end - (begin or 0.0) for begin, end in zip(self.begin, self.clock, strict=True))

    def live(self, rank: int) -> int:
        """Micro-batches whose F is done and whose W is not."""
        return self.forwards[rank] - self.weights[rank]

    def forward_ready(self, rank: int) -> float:
        return self.forward_end[rank - 1][self.forwards[rank]] + self.costs.hop if rank else 0.0

    def backward_ready(self, rank: int) -> float:
        return self.backward_end[rank + 1][self.backwards[rank]] + self.costs.hop if rank + 1 < self.pp else 0.0

    def _advance(self, rank: int, ready: float, cost: float) -> float:
        start = max(self.clock[rank], ready)
        if self.begin[rank] is None:
            self.begin[rank] = start
        else:
            self.idle[rank] += start - self.clock[rank]
        self.clock[rank] = start + cost
        return self.clock[rank]

    def put_forward(self, rank: int) -> None:
        self.forward_end[rank].append(self._advance(rank, self.forward_ready(rank), self.costs.forward[rank]))
        self.rows[rank].append(Task("F", self.forwards[rank], 0))
        self.forwards[rank] += 1

    def put_backward(self, rank: int) -> None:
        self.backward_end[rank].append(self._advance(rank, self.backward_ready(rank), self.costs.backward[rank]))
        self.rows[rank].append(Task("B", self.backwards[rank], 0))
        self.backwards[rank] += 1

    def put_weight(self, rank: int) -> None:
        self._advance(rank, self.clock[rank], self.costs.weight[rank])
        self.rows[rank].append(Task("W", self.weights[rank], 0))
        self.weights[rank] += 1

    def has_weight(self, rank: int) -> bool:
        return self.weights[rank] < self.backwards[rank]

    def allowance(self, rank: int) -> float:
        """How much longer this rank may idle before it becomes the worst."""
        return max(self.idle) - self.idle[rank]

    def fill_gap(self, rank: int, ready: float) -> None:
        """W that ends before the input arrives is free; one that does not is taken where the wait is worth it."""
        while self.has_weight(rank) and self.clock[rank] + self.costs.weight[rank] <= ready:
            self.put_weight(rank)
        wait = ready - self.clock[rank]
        if wait > 0 and self.has_weight(rank):
            if wait > self.allowance(rank):
                self.put_weight(rank)
                return
            self.decided.add("fill")
            if self.fill:
                self.put_weight(rank)

    def warm_up(self) -> None:
        """As many forwards as fit before the first backward comes back, never more on a rank than on the one before it."""
        for rank in range(self.pp):
            self.put_forward(rank)
        extra = [0] * self.pp
        back = self.forward_end[-1][0] + self.costs.backward[-1]
        for rank in range(self.pp - 2, -1, -1):
            time, cost = self.clock[rank], self.costs.forward[rank]
            arrival = back + self.costs.hop
            while 1 + extra[rank] < self.m and 2 + extra[rank] <= self.caps[rank]:
                early, late = time + cost <= arrival, time < arrival
                if early != late:
                    self.decided.add("early")
                if not (early if self.early else late):
                    break
                time, extra[rank] = time + cost, extra[rank] + 1
            back = max(time, arrival) + self.costs.backward[rank]
        for rank in range(1, self.pp):
            extra[rank] = min(extra[rank], extra[rank - 1])  # its inputs come from the rank before
            while extra[rank] > 0 and extra[rank] >= extra[rank - 1] and 1 + extra[rank] < self.m:
                extra[rank] -= 1
        for rank in range(self.pp):
            for _ in range(extra[rank]):
                self.put_forward(rank)
        for rank in range(self.pp - 1, -1, -1):
            self.put_backward(rank)

    def wants_forward(self, rank: int) -> bool:
        """Whether a forward comes before the next backward on this rank."""
        if self.forwards[rank] >= self.m:
            return False
        if rank + 1 == self.pp or self.forwards[rank] < self.forwards[rank + 1] + 2 or self._forward_is_free(rank):
            return True
        self.decided.add("prefer_backward")
        return not self.prefer_backward

    def _forward_is_free(self, rank: int) -> bool:
        """Whether the forward ends before the next backward can come, or waiting for that would make this rank the worst."""
        costs, clock = self.costs, self.clock[rank]
        following = self.clock[rank + 1] + costs.forward[rank + 1] + costs.backward[rank + 1] + costs.hop
        if clock >= following:
            return False
        needed = min(max(0.0, self.live(rank) + 1 - self.caps[rank]), self.backwards[rank] - self.weights[rank])
        late = clock + costs.forward[rank] + needed * costs.weight[rank] > following
        return not (late and following - clock <= self.allowance(rank))

    def run(self) -> bool:
        """Whether the variant fits the cap."""
        self.warm_up()
        return all(self.round(i) for i in range(1, self.m)) and self.finish()

    def round(self, i: int) -> bool:
        """At most one forward a rank, downstream first to refuse, then backward i from the last rank to the first."""
        want = [self.wants_forward(rank) for rank in range(self.pp)]
        for rank in range(self.pp - 2, -1, -1):
            want[rank] = want[rank] and want[rank + 1]
        for rank in range(self.pp):
            if want[rank] and not self.forward_in_round(rank):
                return False
        for rank in range(self.pp - 1, -1, -1):
            if self.forwards[rank] <= i:
                return False
            if rank + 1 < self.pp:
                self.fill_gap(rank, self.backward_ready(rank))
            if rank == 0 and self.forwards[0] == self.m:
                while self.has_weight(0):
                    self.put_weight(0)
            self.put_backward(rank)
        return True

    def forward_in_round(self, rank: int) -> bool:
        while self.live(rank) + 1 > self.caps[rank]:
            if not self.has_weight(rank):
                return False
            self.put_weight(rank)
        if rank:
            self.fill_gap(rank, self.forward_ready(rank))
        self.put_forward(rank)
        return True

    def finish(self) -> bool:
        for rank in range(self.pp):
            while self.weights[rank] < self.m:
                self.put_weight(rank)
        return True
