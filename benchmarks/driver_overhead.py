"""What the driver itself costs a round: CPU time of the real loop with DSPy, sandbox and journal, less language model and evaluations.

A round is four questions and seven tool calls. Replies are instant: a script stands in for the provider behind DSPy's `LM`, so prompts are
formatted and answers parsed as ever. Evaluating (the trials that the model prices, and the neighbours of the incumbent that a briefing and
each `explain_trial` list, check and price) is measured apart; all other CPU time of this process is the driver's: DSPy, the journal with
its fsyncs, canonical keys, prices that answers quote beside a trial's own (a hot expert rank), and the thread that starts the next sandbox.
Deno is a process of its own and not counted; its start is hidden while a model thinks. Rounds whose incumbent is new explain it anew, the
others have its explanation already: `worst` is such a round or a disturbed one. CPU time grows by half where other programs share the
cores, so `--repeat` runs all of it several times, and the least of a quiet machine is nearest to what the work costs. No assertions.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

from primus_mcp.driver.settings import LanguageModel
from primus_mcp.driver.stage import run_llm_stage
from primus_mcp.evaluation.evaluators import FullEvaluator, Rules
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.inputs.cluster import parse_cluster
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.search.seeds import Seed
from primus_mcp.session import TuningSession
from primus_mcp.space.adapted import adapt_baseline
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.tools import explain
from primus_mcp.trials.journal import LlmCall, Round

MODEL, GPU, NODES = "mixtral_8x22B_v0.1", "mi355x", 4
STEPS = (
    "best = get_best()\nprint(best['tokens_per_s_per_gpu'], explain_trial(trial_id=best['trial_id'])['bottlenecks'])",
    "for mbs in (1, 2, 4):\n    print(evaluate_simulate(config_json={'mbs': mbs, 'pp': 4, 'vpp': ROUND})['verdict'])",
    "note_to_scratchpad(note='round ROUND')\nprint(get_history(limit=5)['trials'][0]['trial_id'])",
    "SUBMIT(summary='round ROUND')",
)


class Meter(FullEvaluator):
    """An evaluator that adds up what its outermost calls take."""

    cpu_s, _depth = 0.0, 0

    def metered(self, work: Callable[[], Any]) -> Any:
        began_s, self._depth = time.thread_time(), self._depth + 1
        try:
            return work()
        finally:
            self._depth -= 1
            self.cpu_s += (time.thread_time() - began_s) if self._depth == 0 else 0.0

    def evaluate(self, trial: TrialConfig, **how: Any) -> EvaluationResult:
        """Metered."""
        found: EvaluationResult = self.metered(lambda: super(Meter, self).evaluate(trial, **how))
        return found

    def fits(self, trial: TrialConfig) -> bool:
        """Metered."""
        return bool(self.metered(lambda: super(Meter, self).fits(trial)))


class Provider:
    """Answers as a model would, without time."""

    def __init__(self) -> None:
        self.asked, self.characters = 0, list[int]()

    def __call__(self, _: Any, prompt: Any = None, messages: Any = None, **__: Any) -> list[str]:  # noqa: ARG002
        """The next answer."""
        self.characters.append(sum(len(str(message["content"])) for message in messages or []))
        self.asked += 1
        if self.asked == 1:
            return ["[[ ## reasoning ## ]]\nmemory binds\n\n[[ ## plan ## ]]\n1. recompute\n\n[[ ## completed ## ]]"]
        number, step = divmod(self.asked - 2, len(STEPS))
        source = STEPS[step].replace("ROUND", str(number + 1))
        return [f"[[ ## reasoning ## ]]\nnext\n\n[[ ## code ## ]]\n```python\n{source}\n```\n\n[[ ## completed ## ]]"]


class Watch:
    """CPU time at every end of a round."""

    def __init__(self, meter: Meter) -> None:
        self._meter, self._at = meter, (0.0, 0.0)
        self.rounds: list[tuple[float, float]] = []

    def planned(self, plan: str) -> None:  # noqa: ARG002
        """Rounds begin here."""
        self._at = (time.process_time(), self._meter.cpu_s)

    def round_started(self, index: int) -> None:
        """Nothing."""

    def trial(self, outcome: Any) -> None:
        """Nothing."""

    def round_ended(self, ended: Round, note: str) -> None:  # noqa: ARG002
        """CPU seconds of the round and of its evaluations."""
        now = (time.process_time(), self._meter.cpu_s)
        self.rounds.append((now[0] - self._at[0], now[1] - self._at[1]))
        self._at = now


def session_with(folder: str, trials: int, rounds: int) -> tuple[TuningSession, Meter]:
    """A session whose log holds that many trials already."""
    target = parse_cluster({"target_cluster": {"num_nodes": NODES, "gpu_arch": GPU}, "agent": {"patience": 1000}}, where="benchmark")
    workload = adapt_baseline(workload_from_model(MODEL), target.cluster).workload
    meter = Meter(Rules(workload=workload, cluster=target.cluster, axes=target.axes.model_dump(), pins={}), gemm_backend="roofline")
    limits = {"seed_budget": min(12, trials // 2), "max_rounds": rounds, "max_proposals": 10_000, "max_perf_calls": 10_000}
    session = TuningSession.open(workload, target, meter, Path(folder), limits=limits)
    session.run_seeds()
    batches = [Seed(trial=TrialConfig(pp=2, mbs=1, recompute_granularity="full", recompute_num_layers=n), label="") for n in range(1, 29)]
    batches += [Seed(trial=TrialConfig(pp=pp, mbs=mbs, vpp=vpp), label="") for pp in (2, 4) for mbs in (1, 2, 4, 8) for vpp in (1, 2, 7)]
    batches += [Seed(trial=TrialConfig(tp=tp, ep=ep, mbs=mbs), label="") for tp in (1, 2, 4, 8) for ep in (1, 2, 4, 8) for mbs in (1, 2, 4)]
    for seed in batches:
        if len(session.history()) >= trials:
            break
        session.evaluate(seed.trial, origin="user", label=seed.label)
    return session, meter


def measure(trials: int, rounds: int) -> list[float]:
    """Prints a line; the driver's own milliseconds of each round but the first."""
    import dspy

    provider, priced = Provider(), explain._priced  # noqa: SLF001
    model = LanguageModel(model="openai/script", base_url=None, api_key="none", engine="auto", sources={"model": "", "api_key": ""})
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(dspy.LM, "__call__", lambda *a, **k: provider(*a, **k)):
        session, meter = session_with(folder, trials, rounds)
        began = len(session.history())
        watch = Watch(meter)
        with mock.patch.object(explain, "_priced", lambda *given: meter.metered(lambda: priced(*given))):
            stage = run_llm_stage(session, model, observer=watch)
        calls = [event for event in session.journal.events() if isinstance(event, LlmCall)]
        size = (Path(folder) / "journal.jsonl").stat().st_size
    if not watch.rounds:
        print(f"{began:4} trials: {stage.end.reason}")
        return []
    steady = watch.rounds[1:] or watch.rounds
    total, evaluating = (1e3 * median(column) for column in zip(*steady, strict=True))
    own = sorted(1e3 * (whole - evaluated) for whole, evaluated in steady)
    print(
        f"{began:4} trials, {len(watch.rounds)} rounds, {len(calls)} requests: a round {total:6.1f} ms CPU, {evaluating:6.1f} evaluating, "
        f"{median(own):5.1f} the driver (least {own[0]:.1f}, worst {own[-1]:.1f}); first question {provider.characters[1] // 1000} k "
        f"characters, plan {provider.characters[0] // 1000} k, journal {size // 1000} kB"
    )
    return own


def main() -> None:
    """A line for each size of the log."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="runs of each size")
    parser.add_argument("--trials", type=int, nargs="*", default=[5, 30, 100], help="sizes of the log before the first round")
    arguments = parser.parse_args()
    if importlib.util.find_spec("dspy") is None:
        print("dspy is not installed (primus-mcp[agent]): nothing to measure")
        return
    for trials in arguments.trials:
        own = [one for _ in range(arguments.repeat) for one in measure(trials, arguments.rounds)]
        if arguments.repeat > 1 and own:
            print(f"{'':4} {len(own)} rounds: median {median(own):.1f} ms the driver, least {min(own):.1f}")


if __name__ == "__main__":
    main()
