"""The shortest order that a solver finds under a memory cap: solved for few micro-batches, grown by its steady state to any number.

Few: the integer program itself, proven or with its gap. Many: the solved order and the planner's are cut at every place where one more F, B
and W a rank may be repeated for ever, the best is kept, and ZB-H1 and ZB-H2 compete under the same cap. So the answer holds the cap, is
complete (checked when its graph is built) and never longer than the best of the heuristics that it began with; its gap is the distance to a
bound that no order beats.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from primus_mcp.errors import InputError
from primus_mcp.projection.pipeline.graph import value_table
from primus_mcp.projection.pipeline.heuristic import PlannerCosts, plan_heuristic
from primus_mcp.projection.pipeline.ilp_growth import Grown, best_growth, caps_of, run_step_s, words_of
from primus_mcp.projection.pipeline.ilp_model import binaries_of, lower_bound_s
from primus_mcp.projection.pipeline.ilp_solver import GAP, require_solver, shorter_order
from primus_mcp.projection.pipeline.live import states_of_row
from primus_mcp.projection.pipeline.order import Order, Row
from primus_mcp.projection.pipeline.schedules import build_order
from primus_mcp.projection.pipeline.steady import Family, NamedFamily, extended_run

MAX_BINARIES = 700
"""Larger programs are not tried: within the limit of nodes they stay unproven (measured: seconds at 700, minutes at 3,000)."""
_PLANNED_WHOLE = 8  # micro-batches a rank up to which the planner's own order competes uncut
_SAME = 1e-9  # relative difference of steps that sums of doubles may cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """`step_s` of the orders in `family` with the times that they were planned for; no order under the cap is shorter than `bound_s`.

    source: what found the order. solved_micro_batches: size of the program that was solved, 0 where it would have been too large.
    """

    family: Family
    micro_batches: int
    step_s: float
    bound_s: float
    source: str
    solved_micro_batches: int
    nodes: int

    @property
    def gap(self) -> float:
        """How much longer than the bound the order is, as a share of the bound; at most GAP = proven."""
        return self.step_s / self.bound_s - 1.0 if self.bound_s else 0.0

    @property
    def proven(self) -> bool:
        """Whether nothing under the cap is shorter, within the solver's tolerance."""
        return self.gap <= GAP

    def order(self) -> Order:
        """The tasks of every rank."""
        return self.family.graph(self.micro_batches).order


def within(rows: tuple[Row, ...], caps: tuple[float, ...]) -> bool:
    """Whether no rank ever holds more live micro-batches than its cap, from the start of F to the end of W."""
    return all(
        max(state.forward_live[0] + state.weight_pending[0] + (state.kind == "F") for state in states_of_row(row, 1)) <= cap
        for row, cap in zip(rows, caps, strict=True)
    )


def _step_s(family: Family, micro_batches: int, costs: PlannerCosts) -> float:
    values = value_table(costs.forward, costs.backward, costs.weight, (costs.hop,) * (len(costs.forward) - 1))
    graph, end, more_s = extended_run(family, micro_batches, values)
    return max(end[node] for node in graph.tails) + more_s


def _named(micro_batches: int, costs: PlannerCosts) -> Iterator[tuple[str, Family]]:
    """ZB-H1 and ZB-H2 where they keep the caps; the peak of a small order is that of any (their closed forms: pp, 2 pp - 1)."""
    pp, caps = len(costs.forward), caps_of(micro_batches, costs)
    for name in ("zero-bubble", "zb-h2"):
        if within(build_order(name, pp, 1, min(micro_batches, 4 * pp)).ranks, caps):
            yield name, NamedFamily(schedule=name, pp=pp, vpp=1, group_size=None, planner=None, blocking=False)


def _planned(micro_batches: int, costs: PlannerCosts) -> Iterator[tuple[str, tuple[Row, ...]]]:
    """The planner's order for this size, where it keeps the caps."""
    try:
        yield "zero-bubble-heuristic", plan_heuristic(micro_batches, costs, objective="makespan")
    except InputError:
        return


def _solved_size(pp: int, micro_batches: int) -> int:
    """The largest program within MAX_BINARIES; 0 where that has fewer micro-batches than ranks, so no steady state to grow from."""
    size = micro_batches
    while size and binaries_of(pp, size) > MAX_BINARIES:
        size -= 1
    return size if size == micro_batches or size >= pp else 0


def _direct(micro_batches: int, costs: PlannerCosts, best: tuple[str, Family, float]) -> Solution:
    """The program of all micro-batches."""
    source, family, step_s = best
    found = shorter_order(micro_batches, costs, step_s)
    if found.rows is not None:
        grown = Grown(pp=len(costs.forward), base=micro_batches, rows=words_of(found.rows))
        solved_s = run_step_s(grown, micro_batches, costs)  # run again: the solver's own times carry its tolerances
        if solved_s is not None and solved_s < step_s and within(found.rows, caps_of(micro_batches, costs)):
            source, family, step_s = "solver", grown, solved_s
    return Solution(
        family=family,
        micro_batches=micro_batches,
        step_s=step_s,
        bound_s=min(step_s, max(found.bound_s, lower_bound_s(micro_batches, costs))),
        source=source,
        solved_micro_batches=micro_batches,
        nodes=found.nodes,
    )


def _shortest(candidates: list[tuple[str, Family]], micro_batches: int, costs: PlannerCosts) -> tuple[str, Family, float] | None:
    """(source, orders, step) of the shortest candidate, the first among equals."""
    best: tuple[str, Family, float] | None = None
    for name, family in candidates:
        step_s = _step_s(family, micro_batches, costs)
        if best is None or step_s < best[2] * (1 - _SAME):
            best = name, family, step_s
    return best


def _exact(size: int, costs: PlannerCosts) -> list[tuple[str, Family]]:
    """The heuristics for one size."""
    planned = [(name, Grown(pp=len(costs.forward), base=size, rows=words_of(rows))) for name, rows in _planned(size, costs)]
    return [*_named(size, costs), *planned]


def _grown(micro_batches: int, size: int, costs: PlannerCosts) -> Solution:
    """The program of `size` micro-batches (0: none) and the planner's order for 2 pp, grown; the heuristics compete."""
    pp = len(costs.forward)
    candidates = _exact(micro_batches, costs) if micro_batches <= _PLANNED_WHOLE * pp else list(_named(micro_batches, costs))
    bases = [(name, rows, 2 * pp) for name, rows in _planned(2 * pp, costs)]
    seed, nodes = _shortest(_exact(size, costs), size, costs) if size else None, 0
    if seed is not None:
        part = _direct(size, costs, seed)
        nodes = part.nodes
        bases.append((part.source, part.order().ranks, size))
    for name, rows, base in bases:
        grown = best_growth(base, rows, micro_batches, costs)
        if grown is not None:
            candidates.append((name, grown))
    best = _shortest(candidates, micro_batches, costs)
    if best is None:
        raise _no_order(costs)
    source, family, step_s = best
    return Solution(
        family=family,
        micro_batches=micro_batches,
        step_s=step_s,
        bound_s=min(step_s, lower_bound_s(micro_batches, costs)),
        source=source,
        solved_micro_batches=size,
        nodes=nodes,
    )


@lru_cache(maxsize=64)
def solve(micro_batches: int, costs: PlannerCosts) -> Solution:
    """The shortest order of one F, B and W a micro-batch and rank under the caps (None: no cap), times as `costs` has them.

    Deterministic: limits are nodes and gap, not seconds. Takes up to about 10 s where the program is solved. Raises InputError where no
    order fits the caps, or HiGHS is not installed.
    """
    require_solver()
    size = _solved_size(len(costs.forward), micro_batches)
    if size < micro_batches:
        return _grown(micro_batches, size, costs)
    best = _shortest(_exact(micro_batches, costs), micro_batches, costs)
    if best is None:
        raise _no_order(costs)
    return _direct(micro_batches, costs, best)


def _no_order(costs: PlannerCosts) -> InputError:
    return InputError(f"no order was found that keeps {costs.caps} live micro-batches a rank", where="pp_max_mem", remedy="raise the cap")
