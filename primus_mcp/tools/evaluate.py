"""Tools that price a configuration."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from primus_mcp.errors import InputError
from primus_mcp.evaluation.evaluators import NO_GPU, NO_GPU_REMEDY, FullEvaluator, make_evaluator
from primus_mcp.evaluation.rank import is_candidate, is_outside_policy
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.reports.tables import verdict
from primus_mcp.session import TuningSession, is_single
from primus_mcp.tools.configuration import ConfigJson, knobs_of, trial_of
from primus_mcp.tools.expert_load import told_warnings
from primus_mcp.tools.registry import ToolContext, tool
from primus_mcp.tools.results import Evaluated, MemoryChecked
from primus_mcp.units import bytes_to_gb

if TYPE_CHECKING:
    from primus_mcp.evaluation.measured import BenchmarkSettings

SHARED_FIELDS = tuple(
    name for name in Evaluated.model_fields if name in EvaluationResult.model_fields and name not in ("resolved", "warnings")
)


def evaluated_fields(session: TuningSession, result: EvaluationResult) -> dict[str, Any]:
    """What every result about one configuration says."""
    best = session.best().best
    return {
        **{name: getattr(result, name) for name in SHARED_FIELDS},
        "cluster": session.target.cluster.name,
        "verdict": verdict(result) or "memory unknown",
        "memory_cap_gb": bytes_to_gb(session.target.cluster.memory_cap_bytes),
        "resolved": knobs_of(session, result.resolved),
        "warnings": told_warnings(session, result),
        "best_trial_id": best.trial_id if best else None,
        "best_tokens_per_s_per_gpu": best.tokens_per_s_per_gpu if best else None,
    }


def _next(result: EvaluationResult, best_trial_id: int | None) -> str:
    if not result.legal:
        return "change what reason names; get_legal_axes lists the legal values"
    if result.within_margin is False:
        return (
            f"explain_trial(trial_id={result.trial_id}) names changes that fit"
            if result.trial_id is not None
            else "lower mbs, recompute more, or shard more (tp, pp, ep)"
        )
    if is_outside_policy(result):
        return "outside the bounds of the search, so it never becomes the best (--allow-policy lifts it)"
    if result.source == "memory_only":
        return "evaluate_simulate prices its throughput"
    if best_trial_id is not None and best_trial_id == result.trial_id:
        return f"best so far; explain_trial(trial_id={result.trial_id}) names its bottlenecks"
    return "try another change, or get_best"


@tool("Check memory only", toolset="evaluate", read_only=True, listed_result=True)
def evaluate_memory_only(context: ToolContext, config_json: ConfigJson = None) -> MemoryChecked:
    """Cheapest check: is it legal, does it fit? Not logged."""
    session = context.session
    trial = trial_of(session, config_json)
    known = session.log.find(session.evaluator.key(trial, single=is_single(context.origin)))
    if known is not None:
        result = known.result
    elif isinstance(session.evaluator, FullEvaluator):
        result = session.evaluator.evaluate_memory_only(trial, single=is_single(context.origin))
    else:
        result = session.evaluator.evaluate(trial, single=is_single(context.origin))
    told = evaluated_fields(session, result)
    told |= {"memory_breakdown": result.memory_breakdown, "per_rank_memory_gb": result.per_rank_memory_gb, "source": "memory_only"}
    fields = {name: value for name, value in told.items() if name in MemoryChecked.model_fields}
    return MemoryChecked(**fields, repeated=known is not None, next=_next(result, told["best_trial_id"]))


def _evaluate(context: ToolContext, session: TuningSession, config_json: object) -> Evaluated:
    trial = trial_of(session, config_json)
    known = session.log.find(session.evaluator.key(trial, single=is_single(context.origin))) is not None
    result = session.evaluate(trial, origin=context.origin)
    told = evaluated_fields(session, result)
    return Evaluated(**told, repeated=known, next=_next(result, told["best_trial_id"]))


@tool("Price a configuration", toolset="evaluate", idempotent=True, listed_result=True)
def evaluate_simulate(context: ToolContext, config_json: ConfigJson = None) -> Evaluated:
    """Price memory and throughput of a configuration by projection; logged as a trial. Repeats are free."""
    return _evaluate(context, context.session, config_json)


def _measured_by(context: ToolContext) -> BenchmarkSettings:
    """The host's GPUs, with progress told and cancellation heard by the one who asked."""
    from primus_mcp.evaluation.measured import BenchmarkSettings
    from primus_mcp.measurement.launch import run_job

    steps = count(1)
    settings = BenchmarkSettings.of_host(
        context.session.target.benchmark_host, progress=lambda text: context.progress(next(steps), 0, text)
    )
    return replace(settings, runner=partial(run_job, should_stop=context.should_stop))


@tool("Measure a configuration", toolset="benchmark", long=True, open_world=True)
def evaluate_with_benchmark(context: ToolContext, config_json: ConfigJson = None) -> Evaluated:
    """Measure a configuration on this host's GPUs: minutes, counted in max_benchmark_calls. Needs has_gpu in the cluster."""
    session = context.session
    if not session.target.benchmark_host.has_gpu:
        raise InputError(NO_GPU, remedy=f"{NO_GPU_REMEDY} (over MCP: evaluate_simulate)")
    evaluator = make_evaluator(session.evaluator.rules, profiling_mode="benchmark", has_gpu=True, benchmark=_measured_by(context))
    measuring = TuningSession(
        session.workload, session.target, evaluator, session.folder.path, limits=session.budget.limits, pins=session.pins
    )
    return _evaluate(context, measuring, config_json)


def better(result: EvaluationResult, than: EvaluationResult | None) -> bool:
    """Whether a candidate is faster than another trial (any candidate is, than one that is none)."""
    if not is_candidate(result):
        return False
    if than is None or not is_candidate(than):
        return True
    return (result.tokens_per_s_per_gpu or 0.0) > (than.tokens_per_s_per_gpu or 0.0)
