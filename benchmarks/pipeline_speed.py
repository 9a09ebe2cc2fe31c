"""How fast the pipeline simulator is: first call, warm call, answered from the cache, and against simulating every micro-batch.

Run with `python benchmarks/pipeline_speed.py`. Ratios carry over between machines, milliseconds do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from time import perf_counter

from primus_mcp.projection.pipeline import simulate
from primus_mcp.projection.pipeline.graph import end_times, named_graph
from primus_mcp.projection.pipeline.rules import PAIRED_SCHEDULES, VEE_SCHEDULES
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
        start = perf_counter()
        action(index)
        times.append(perf_counter() - start)
    return 1e3 * min(times)


def full_ms(case: Case) -> float:
    """All micro-batches, with the graph built already."""
    stages = case.pp * case.vpp
    graph = named_graph(case.schedule, case.pp, case.vpp, case.micro_batches, None, None, False)
    even = (1.0 / case.vpp,) * stages
    values = stage_times(stages, even, even, even, case.hop_s).values(
        case.pp, paired=case.schedule in PAIRED_SCHEDULES, vee=case.schedule in VEE_SCHEDULES
    )
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
    if find_spec("highspy") is None:
        return
    for case in SOLVED:
        sizes = f"{case.schedule:24}{case.pp:4}{case.vpp:4}{case.micro_batches:6}"
        print(f"{sizes}{best_ms(lambda _, case=case: case.run(1.0), 1):10.2f}  solved once, kept for the same times")  # type: ignore[misc]


if __name__ == "__main__":
    main()
