"""summary.json: the outcome of a run in fixed fields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from primus_mcp.evaluation.accuracy import Accuracy, accuracy_of
from primus_mcp.evaluation.rank import is_candidate, rank
from primus_mcp.evaluation.result import EvaluationResult, Fidelity
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.trials.log import OVERLAY_FOLDER, TrialRecord
from primus_mcp.units import bytes_to_gb
from primus_mcp.version import engine_version

StoppedBecause = Literal[
    "seed plan finished",
    "seed budget used",
    "optimum proven",
    "agent finished",
    "budget exhausted",
    "interrupted",
    "cancelled",
    "running",
]
CAVEATS: dict[Fidelity, str] = {
    "synthetic": "invented figures of a dry run: they say nothing about a configuration",
    "heuristic": "memory alone was projected; throughput is a rule of thumb",
    "simulate": "an analytic projection: nothing was run; check the first choice with a short run",
    "benchmark": "projected from layers that were measured on GPUs; the whole run was not measured",
    "primus": "Primus's own projection; nothing was run",
}


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class TrialSummary(_Record):
    """One trial of the log with its overlay file."""

    trial_id: int
    label: str
    origin: str
    trial: dict[str, Any] = Field(description="the knobs as given; absent ones are the workload's")
    overlay: str | None = Field(description="overlay file in the out-dir; null for an illegal trial")
    result: EvaluationResult


class Counts(_Record):
    """Trials by outcome; `candidates` are legal, inside the margin and priced."""

    trials: int
    illegal: int
    over_margin: int
    candidates: int
    by_origin: dict[str, int]


class Engine(_Record):
    """What priced the trials."""

    version: str
    mode: str
    evaluator: str
    backend: str | None
    profile: str | None


class AgentSummary(_Record):
    """What the search after the seeds used, over all runs in the out-dir. Its numbers prove nothing about the winner: the log does."""

    strategy: str = Field(description="llm or coordinate")
    method: str = Field(description="rlm: code in the sandbox; react: one tool at a time; coordinate: no language model")
    model: str | None
    stopped_because: str = Field(description="in words")
    rounds: int
    proposals: int
    perf_calls: int
    llm_requests: int
    input_tokens: int
    output_tokens: int
    usd: float | None = Field(description="sum over the requests whose price is known; null: none is")
    unpriced_requests: int = Field(description="answered requests whose price is unknown")
    uncounted_requests: int = Field(default=0, description="answered requests whose tokens the provider did not count: not in the sums")
    own_summaries: list[str] = Field(description="the model's own words about each round that it summed up; unchecked")

    @property
    def text(self) -> str:
        """One line: `search by llm (rlm, openai/gpt-4o): 3 rounds, 14 proposals, ...; ended: ...`."""
        if not (self.rounds or self.proposals or self.perf_calls or self.llm_requests):
            return f"no search after the seeds: {self.stopped_because}"
        who = ", ".join(part for part in (self.method if self.method != self.strategy else "", self.model or "") if part)
        used = [f"{self.rounds} rounds", f"{self.proposals} proposals", f"{self.perf_calls} priced"]
        if self.llm_requests:
            uncounted = f" ({self.uncounted_requests} requests uncounted)" if self.uncounted_requests else ""
            used.append(f"{self.llm_requests} LLM requests, {self.input_tokens + self.output_tokens:,} tokens{uncounted}")
            used.append("price unknown" if self.usd is None else f"{self.usd:,.4f} US$" + (" and more" if self.unpriced_requests else ""))
        return f"search by {self.strategy}{f' ({who})' if who else ''}: {', '.join(used)}; ended: {self.stopped_because}"


class Summary(_Record):
    """The fixed fields of summary.json. A field that has nothing to say is null."""

    schema_version: Literal[1] = 1
    workload: str
    cluster: str
    world_size: int
    memory_cap_gb: float
    best: TrialSummary | None
    best_note: str | None = Field(description="why a faster trial did not win, or that the winner is at risk")
    runner_up: TrialSummary | None = Field(description="best trial of a lower fidelity class")
    baseline: TrialSummary | None
    best_seed: TrialSummary | None
    times_baseline: float | None = Field(default=None, description="throughput of the best over the baseline's; null: not comparable")
    times_best_seed: float | None = Field(default=None, description="throughput of the best over the best seed's; null: not comparable")
    agent: AgentSummary | None = Field(default=None, description="the search after the seeds; null: there was none")
    stopped_because: StoppedBecause
    counts: Counts
    caveat: str = Field(description="what kind of numbers the best's are")
    accuracy: Accuracy
    engine: Engine
    warnings: list[str]


def overlay_name(trial_id: int) -> str:
    """Where the overlay of a trial lies in the out-dir."""
    return f"{OVERLAY_FOLDER}/trial_{trial_id:04d}.yaml"


def trial_summary(record: TrialRecord | None) -> TrialSummary | None:
    """A trial of the log as the summary shows it."""
    if record is None:
        return None
    return TrialSummary(
        trial_id=record.trial_id,
        label=record.label,
        origin=record.origin,
        trial=record.trial,
        overlay=overlay_name(record.trial_id) if record.result.legal else None,
        result=record.result,
    )


def count(records: Sequence[TrialRecord]) -> Counts:
    """Trials by outcome and origin."""
    results = [record.result for record in records]
    origins = [record.origin for record in records]
    return Counts(
        trials=len(results),
        illegal=sum(not result.legal for result in results),
        over_margin=sum(result.legal and result.within_margin is False for result in results),
        candidates=sum(is_candidate(result) for result in results),
        by_origin={origin: origins.count(origin) for origin in sorted(set(origins))},
    )


def record_of(records: Sequence[TrialRecord], result: EvaluationResult | None) -> TrialRecord | None:
    """The line that a result of the ranking stands in."""
    return next((record for record in records if result is not None and record.trial_id == result.trial_id), None)


def best_seed(records: Sequence[TrialRecord]) -> TrialRecord | None:
    """The best of the seeds alone."""
    seeds = [record for record in records if record.origin == "seed"]
    return record_of(seeds, rank([record.result for record in seeds]).best)


def baseline_of(records: Sequence[TrialRecord], pins: Mapping[str, Any]) -> TrialRecord | None:
    """The workload as it is: the trial that sets nothing but pins, in the class of the best where it was priced more than once."""
    found = [record for record in records if record.trial == pins]
    best = rank([record.result for record in records]).best
    same = [record for record in found if best is not None and record.result.fidelity == best.fidelity]
    return next(reversed(same or found), None)


def times(best: EvaluationResult | None, other: TrialRecord | None) -> float | None:
    """How many times faster the best is than another trial of its class; None where one has no throughput inside the margin."""
    if best is None or other is None or not is_candidate(other.result) or other.result.fidelity != best.fidelity:
        return None
    return (best.tokens_per_s_per_gpu or 0.0) / other.result.tokens_per_s_per_gpu if other.result.tokens_per_s_per_gpu else None


def _engine(records: Sequence[TrialRecord], mode: str, evaluator: str) -> Engine:
    used = [record.result for record in records if record.result.backend is not None]
    last = used[-1] if used else None
    return Engine(
        version=engine_version(),
        mode=mode,
        evaluator=evaluator,
        backend=last.backend if last else None,
        profile=last.profile if last else None,
    )


def summarise(
    records: Sequence[TrialRecord],
    *,
    workload: str,
    cluster: Cluster,
    mode: str,
    evaluator: str,
    fidelity: Fidelity,
    pins: Mapping[str, Any],
    stopped_because: StoppedBecause,
    warnings: Sequence[str],
    agent: AgentSummary | None = None,
) -> Summary:
    """The outcome of a run from its log. `fidelity` names the class whose accuracy is told when nothing was found."""
    ranking = rank([record.result for record in records])
    shown = ranking.best.fidelity if ranking.best else fidelity
    baseline, seed = baseline_of(records, pins), best_seed(records)
    return Summary(
        workload=workload,
        cluster=cluster.name,
        world_size=cluster.world_size,
        memory_cap_gb=bytes_to_gb(cluster.memory_cap_bytes),
        best=trial_summary(record_of(records, ranking.best)),
        best_note=ranking.note,
        runner_up=trial_summary(record_of(records, ranking.runner_up)),
        baseline=trial_summary(baseline),
        best_seed=trial_summary(seed),
        times_baseline=times(ranking.best, baseline),
        times_best_seed=times(ranking.best, seed),
        agent=agent,
        stopped_because=stopped_because,
        counts=count(records),
        caveat=CAVEATS[shown],
        accuracy=accuracy_of(shown, cluster.gpu.vendor, cluster.gpu.name),
        engine=_engine(records, mode, evaluator),
        warnings=list(dict.fromkeys(warnings)),
    )


def summary_json(summary: Summary) -> str:
    """Indented JSON with a newline at the end."""
    return json.dumps(summary.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"
