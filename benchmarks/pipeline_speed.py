"""How fast the pipeline simulator is: first call, warm call, answered from the cache, and against simulating every micro-batch; then the
slowest warm call of every schedule over depths, chunks, uneven stages, hops and thousands of micro-batches.

Run with `python benchmarks/pipeline_speed.py`. CPU time. Ratios carry over between machines, milliseconds do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from random import Random
from time import process_time

from primus_mcp.projection.pipeline import simulate
from primus_mcp.projection.pipeline.graph import end_times, named_graph
from primus_mcp.projection.pipeline.rules import SCHEDULES, order_problem
from primus_mcp.projection.pipeline.times import stage_times

REPEATS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    schedule: str
    pp: int
    vpp: int
    micro_batches: int
    hop_s: float = 0.02

    def run(self, scale: float) -> float:
        stages = self.pp * self.vpp
        even = (scale / self.vpp,) * (stages - 1)
        last = scale * 1.1 / self.vpp
        return simulate(
            self.schedule,
            pp=self.pp,
            vpp=self.vpp,
            micro_batches=self.micro_batches,
            forward_s=(*even, last),
            backward_s=(*even, last),
            weight_s=(*even, last),
            hop_s=self.hop_s * scale,
            asking=True,
        ).step_s


CASES = (
    Case(schedule="1f1b", pp=8, vpp=1, micro_batches=64),
    Case(schedule="1f1b", pp=8, vpp=1, micro_batches=64, hop_s=0.0),
    Case(schedule="1f1b", pp=16, vpp=1, micro_batches=1024),
    Case(schedule="interleaved", pp=8, vpp=4, micro_batches=64),
    Case(schedule="interleaved", pp=16, vpp=2, micro_batches=1024),
    Case(schedule="zero-bubble", pp=8, vpp=1, micro_batches=256),
    Case(schedule="zero-bubble-heuristic", pp=8, vpp=1, micro_batches=64),
    Case(schedule="zbv-formatted", pp=8, vpp=2, micro_batches=256),
    Case(schedule="v-half", pp=8, vpp=2, micro_batches=256),
    Case(schedule="v-min", pp=8, vpp=2, micro_batches=256),
    Case(schedule="dualpipe", pp=16, vpp=2, micro_batches=1024),
    Case(schedule="dualpipe-v", pp=8, vpp=2, micro_batches=256),
)
SOLVED = (
    Case(schedule="seaailab-ilp", pp=4, vpp=1, micro_batches=11),
    Case(schedule="seaailab-ilp", pp=4, vpp=1, micro_batches=256),
    Case(schedule="seaailab-ilp", pp=8, vpp=1, micro_batches=8),
    Case(schedule="seaailab-ilp", pp=8, vpp=1, micro_batches=1024),
    Case(schedule="seaailab-ilp", pp=16, vpp=1, micro_batches=1024),
)


def best_ms(action: Callable[[int], object], repeats: int = REPEATS) -> float:
    """Least milliseconds of several runs; the action gets the number of the run."""
    times = []
    for index in range(repeats):
        start = process_time()
        action(index)
        times.append(process_time() - start)
    return 1e3 * min(times)


def shapes(stages: int) -> dict[str, tuple[float, ...]]:
    """Seconds of every stage's forward, uneven in the ways that stages are: by layers, by their ends, by a thousandth, by chance."""
    chance = Random(stages)
    ends = {0: 1.05, stages - 1: 1.3}
    return {
        "even": (1.0,) * stages,
        "126 layers and the ends": tuple(126 * (i + 1) // stages - 126 * i // stages + ends.get(i, 1.0) - 1.0 for i in range(stages)),
        "ends": tuple(ends.get(i, 1.0) for i in range(stages)),
        "a thousandth": tuple({0: 1.001, stages - 1: 1.0015}.get(i, 1.0) for i in range(stages)),
        "half twice": tuple(2.0 if 2 * i < stages else 1.0 for i in range(stages)),
        "by chance, 20%": tuple(chance.uniform(0.8, 1.2) for _ in range(stages)),
        "by chance, 0.5%": tuple(chance.uniform(0.995, 1.005) for _ in range(stages)),
    }


SPLITS = ((1.0, 1.0), (1.3, 0.7), (2.0, 1.0))  # input and weight gradient over forward
HOPS = (0.0, 0.02, 0.3)  # of a rank's forward
DEEP = ((4, (1, 2, 8)), (8, (1, 2, 8)), (16, (1, 2, 4)), (32, (1, 2)), (64, (1,)))


def worst_ms(schedule: str, pp: int, vpp: int, micro_batches: int) -> tuple[float, str]:
    """The slowest warm call and its stages; the least of three each."""
    worst = 0.0, ""
    for (name, times), (backward, weight), hop in product(shapes(pp * vpp).items(), SPLITS, HOPS):
        mean_s = sum(times) / pp

        def run(
            index: int, times: tuple[float, ...] = times, ratios: tuple[float, float, float] = (backward, weight, hop * mean_s)
        ) -> None:
            scale = 1.0 + index / 64
            simulate(
                schedule,
                pp=pp,
                vpp=vpp,
                micro_batches=micro_batches,
                forward_s=tuple(scale * time for time in times),
                backward_s=tuple(scale * ratios[0] * time for time in times),
                weight_s=tuple(scale * ratios[1] * time for time in times),
                hop_s=scale * ratios[2],
                blocking=schedule in ("1f1b", "interleaved"),
                asking=True,
            )

        worst = max(worst, (best_ms(run, 3), f"{name}, B {backward:g}, W {weight:g}, hop {hop:g}"))
    return worst


def print_worst() -> None:
    """One line a schedule, depth and number of chunks, then the worst of PP 16 and 1,024 micro-batches."""
    slowest: list[tuple[float, str]] = []
    print(f"\n{'slowest warm call':24}{'PP':>4}{'VPP':>4}{'m':>6}{'warm ms':>9}  stages")
    for schedule, (pp, chunks), micro_batches in product(SCHEDULES, DEEP, (1024, 4096)):
        if schedule in ("gpipe", "zero-bubble-heuristic"):
            continue  # simulated in full
        for vpp in chunks:
            if order_problem(schedule, pp, vpp, micro_batches) is not None:
                continue
            time_ms, what = worst_ms(schedule, pp, vpp, micro_batches)
            line = f"{schedule:24}{pp:4}{vpp:4}{micro_batches:6}{time_ms:9.2f}  {what}"
            print(line)
            if pp == 16 and vpp <= 2 and micro_batches == 1024:
                slowest.append((time_ms, line))
    print(f"worst at PP 16, VPP 1 and 2, 1,024 micro-batches: {max(slowest)[1]}")


def full_ms(case: Case) -> float:
    """All micro-batches, with the graph built already."""
    stages = case.pp * case.vpp
    graph = named_graph(case.schedule, case.pp, case.vpp, case.micro_batches, None, None, False, True)
    even = (1.0 / case.vpp,) * stages
    values = stage_times(stages, even, even, even, case.hop_s).values(case.pp, case.schedule)
    return best_ms(lambda _: end_times(graph, values), 5)


def measured(case: Case) -> tuple[float, float, float, float]:
    """Milliseconds of the first call, a call with new times, a call with known times, and a run of all micro-batches."""
    first = best_ms(lambda _: case.run(1.0), 1)
    warm = best_ms(lambda index: case.run(1.0 + (index + 1) / 64))
    cached = best_ms(lambda _: case.run(1.0))
    return first, warm, cached, full_ms(case)


def main() -> None:
    print(f"{'schedule':24}{'PP':>4}{'VPP':>4}{'m':>6}{'first ms':>10}{'warm ms':>9}{'cached ms':>10}{'full ms':>9}{'full/warm':>10}")
    for case in CASES:
        first, warm, cached, full = measured(case)
        sizes = f"{case.schedule:24}{case.pp:4}{case.vpp:4}{case.micro_batches:6}"
        print(f"{sizes}{first:10.2f}{warm:9.3f}{cached:10.4f}{full:9.3f}{full / warm:10.1f}")
    print_worst()
    if find_spec("highspy") is None:
        return
    for case in SOLVED:
        sizes = f"{case.schedule:24}{case.pp:4}{case.vpp:4}{case.micro_batches:6}"
        print(f"{sizes}{best_ms(lambda _, case=case: case.run(1.0), 1):10.2f}  solved once, kept for the same times")  # type: ignore[misc]


if __name__ == "__main__":
    main()
