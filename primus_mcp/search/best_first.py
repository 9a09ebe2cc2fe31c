"""The points of the grid that fit, in the order of their estimates, found with few looks at memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.workload import Workload
from primus_mcp.search.estimate import Estimate
from primus_mcp.search.topologies import GridPoint, Topology, grid_knobs

Knobs = dict[str, Any]
_HOPE = 0.7
"""Share of the recompute that is guessed from memory by which a point waits: the guess is off by tens of percent."""
_PLAIN, _RECOMPUTING, _READY = range(3)


class Fitting(Protocol):
    """What is asked of the plan."""

    workload: Workload
    cluster: Cluster
    gbs: int
    """Of every trial of the grid."""

    def fits(self, knobs: Mapping[str, Any]) -> bool:
        """Whether these knobs are legal and fit."""

    def least_recompute(self, knobs: Mapping[str, Any]) -> Knobs | None:
        """With as little recompute as fits."""

    def recomputed(self, knobs: Mapping[str, Any]) -> float:
        """Share of the layers."""

    def legal(self, knobs: Mapping[str, Any]) -> bool:
        """Whatever they need of memory."""

    def points(self) -> list[GridPoint]:
        """Of the grid, those that axes and pins leave."""

    def least(self, points: Iterable[GridPoint]) -> list[GridPoint]:
        """Those of one topology that may need the least memory."""


class BestFirst:
    """Iterates over (point, knobs) that fit, with as little recompute as fits, best estimate first.

    A point waits at its estimate with most of the recompute that it should need, at last with what it needs. So memory is asked only of
    points that are about to be the best. Levers come in the order of `levers`, and without FP8 where the point with it needs recompute:
    its copies of the weights may be what keeps a better topology out.
    """

    def __init__(self, plan: Fitting, levers: Sequence[Knobs]) -> None:
        self._plan, self._levers = plan, list(levers)
        self._estimate = Estimate(plan.workload, plan.cluster, gbs=plan.gbs)
        self._points = plan.points()
        self._of_topology: dict[Topology, list[GridPoint]] = {}
        for point in self._points:
            self._of_topology.setdefault(point.topology, []).append(point)
        self._closed: dict[Topology, bool] = {}
        self._too_large: dict[tuple[int, int, int, int, int, bool], float] = {}
        self._needed: dict[tuple[int, int, int, int, int, bool], tuple[float, float]] = {}
        self._queue: list[tuple[float, int, int, bool, int, Knobs]] = []
        for place in range(len(self._points)):
            for which in range(len(self._levers)):
                guess = self._expected(place, which, False)
                self._queue.append((self._time_s(place, which, False, guess), place, which, False, _PLAIN, {}))
        heapify(self._queue)

    def close(self, topology: Topology) -> None:
        """Nothing more of these degrees."""
        self._closed[topology] = True

    def _with(self, which: int, bf16: bool) -> Knobs:
        return {name: value for name, value in self._levers[which].items() if not (bf16 and name == "fp8")}

    def _time_s(self, place: int, which: int, bf16: bool, recomputed: float) -> float:
        fp8 = "fp8" in self._with(which, bf16) or self._plan.workload.baseline.fp8 is not None
        return self._estimate.time_s(self._points[place], recomputed=recomputed, fp8=fp8)

    def _hopeless(self, topology: Topology) -> bool:
        """Closed, or the smallest point (full recompute, smallest MBS and VPP, no FP8) does not fit: memory grows from there."""
        if topology not in self._closed:
            least = (
                grid_knobs(point, self._plan.workload, self._plan.cluster, self._with(which, True)) | {"recompute_granularity": "full"}
                for point in self._plan.least(self._of_topology[topology])
                for which in range(len(self._levers))
            )
            self._closed[topology] = not any(map(self._plan.fits, least))
        return self._closed[topology]

    def __iter__(self) -> Iterator[tuple[GridPoint, Knobs]]:
        """Until every point is closed, too large or handed out."""
        while self._queue:
            _, place, which, bf16, state, knobs = heappop(self._queue)
            point = self._points[place]
            if self._hopeless(point.topology):
                continue
            if state == _READY:
                yield point, knobs
            elif state == _PLAIN:
                self._ask_plain(place, which, bf16)
            else:
                self._ask_recompute(place, which, bf16)

    def _push(self, place: int, which: int, bf16: bool, state: int, recomputed: float, knobs: Knobs) -> None:
        heappush(self._queue, (self._time_s(place, which, bf16, recomputed), place, which, bf16, state, knobs))

    def _ask_plain(self, place: int, which: int, bf16: bool) -> None:
        point = self._points[place]
        if point.mbs / point.cp >= self._too_large.get(self._like(place, which, bf16), point.mbs + 1):
            return
        knobs = grid_knobs(self._points[place], self._plan.workload, self._plan.cluster, self._with(which, bf16)) | {
            "recompute_granularity": "none"
        }
        if self._plan.fits(knobs):
            self._push(place, which, bf16, _READY, 0.0, knobs)
            return
        self._push(place, which, bf16, _RECOMPUTING, self._expected(place, which, bf16), {})
        if not bf16 and "fp8" in self._levers[which]:
            self._push(place, which, True, _PLAIN, self._expected(place, which, True), {})

    def _like(self, place: int, which: int, bf16: bool) -> tuple[int, int, int, int, int, bool]:
        """Points that keep as much of a token on as many tokens: those of one MBS / CP."""
        point = self._points[place]
        return point.tp, point.pp, point.ep, point.vpp, which, bf16

    def _expected(self, place: int, which: int, bf16: bool) -> float:
        """Share of the layers: from the same point with other micro-batches (what is kept of one falls with its size), or guessed."""
        point = self._points[place]
        known = self._needed.get(self._like(place, which, bf16))
        if known is None:
            fp8 = "fp8" in self._with(which, bf16)
            return _HOPE * self._estimate.recompute_needed(point, fp8=fp8)
        size, recomputed = known
        return _HOPE * min(1.0, max(0.0, 1 - (1 - recomputed) * size * point.cp / point.mbs))

    def _ask_recompute(self, place: int, which: int, bf16: bool) -> None:
        point, like = self._points[place], self._like(place, which, bf16)
        size = point.mbs / point.cp
        if size >= self._too_large.get(like, size + 1):
            return
        knobs = self._plan.least_recompute(grid_knobs(point, self._plan.workload, self._plan.cluster, self._with(which, bf16)))
        if knobs is None and self._plan.legal(grid_knobs(point, self._plan.workload, self._plan.cluster, self._with(which, bf16))):
            self._too_large[like] = size
        elif knobs is not None:
            self._needed[like] = size, self._plan.recomputed(knobs)
            self._push(place, which, bf16, _READY, self._plan.recomputed(knobs), knobs)
