"""`primus-mcp evaluate`: price one configuration."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primus_mcp.cli.common import add_cluster_arguments, add_engine_arguments, add_workload_arguments, knob_values
from primus_mcp.cli.evaluator_options import add_evaluator_arguments
from primus_mcp.cli.projected import expert_replicas
from primus_mcp.errors import InputError
from primus_mcp.units import GIB

if TYPE_CHECKING:
    from primus_mcp.evaluation.evaluators import Evaluator
    from primus_mcp.evaluation.result import EvaluationResult
    from primus_mcp.inputs.hardware import Cluster
    from primus_mcp.space.knobs import TrialConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Workload, cluster, knobs, --json."""
    add_workload_arguments(parser)
    add_cluster_arguments(parser)
    add_engine_arguments(parser)
    add_evaluator_arguments(parser)
    parser.add_argument("--config", metavar="JSON", help='the knobs as one JSON object, for example \'{"tp": 8, "mbs": 2}\'')
    parser.add_argument("--set", action="append", metavar="KNOB=VALUE", help="one knob (repeatable); what is not set is the workload's own")
    parser.add_argument("--memory-only", action="store_true", help="rules and memory, no time")
    parser.add_argument("--calibration", type=Path, metavar="JSON", help="correct the time by your own runs (see `primus-mcp calibrate`)")
    parser.add_argument("--json", action="store_true", help="the whole result as one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Print the result; the exit code is its verdict's."""
    from primus_mcp.cli.codes import verdict_code
    from primus_mcp.cli.setup import resolve_problem, tell_notes
    from primus_mcp.evaluation.evaluators import FullEvaluator, with_policy_warnings
    from primus_mcp.space.parsing import parse_trial

    problem = resolve_problem(arguments, profiling_mode=arguments.profiling_mode, single=True)
    base = {} if arguments.config is None else _configuration(arguments.config)
    trial = parse_trial({**base, **knob_values(arguments.set, "--set")})
    evaluator = problem.evaluator
    if arguments.memory_only:
        if not isinstance(evaluator, FullEvaluator):
            raise InputError("goes with the projection only", where="--memory-only", remedy="leave out --evaluator")
        result = evaluator.evaluate_memory_only(trial)
    else:
        result = evaluator.evaluate(trial)
    if not arguments.allow_policy:
        result = with_policy_warnings(result, problem.rules, trial)
    result = _with_nodes(result, evaluator, trial)
    if arguments.calibration is not None:
        from primus_mcp.evaluation.measured_calibration import with_calibration
        from primus_mcp.measurement.calibration import load_calibration

        result = with_calibration(result, load_calibration(arguments.calibration), problem.target.cluster)
    if arguments.json:
        print(result.model_dump_json(indent=2))
    else:
        tell_notes(problem)
        _print(result, problem.target.cluster, moe=problem.workload.architecture.is_moe)
    return verdict_code([result.verdict])


def _configuration(text: str) -> dict[str, Any]:
    """The knobs of --config. Raises InputError under that flag."""
    from primus_mcp.space.parsing import parse_trial

    try:
        return parse_trial(text).model_dump(exclude_none=True)
    except InputError as error:
        raise InputError(error.problem, where="--config" if error.where == "trial" else error.where, remedy=error.remedy) from None


def _with_nodes(result: EvaluationResult, evaluator: Evaluator, trial: TrialConfig) -> EvaluationResult:
    """A result that cannot run here also says how many nodes are enough."""
    from primus_mcp.cli.codes import RUNNABLE
    from primus_mcp.evaluation.result import ResultWarning
    from primus_mcp.search.enough_nodes import nodes_text_for

    text = None if result.verdict in RUNNABLE else nodes_text_for(evaluator, trial)
    more = [] if text is None else [ResultWarning(code="more_nodes", text=text)]
    return result.model_copy(update={"warnings": [*result.warnings, *more]})


def _print(result: EvaluationResult, cluster: Cluster, *, moe: bool) -> None:
    from primus_mcp.evaluation.nearest import band_words
    from primus_mcp.space.knobs import schedule_text

    if not result.legal:
        print("\n".join([f"illegal: {result.reason}", *(f"- {warning.code}: {warning.text}" for warning in result.warnings)]))
        return
    resolved = result.resolved or {}
    degrees = " ".join(f"{name.upper()} {resolved[name]}" for name in ("tp", "pp", "ep", "cp", "vpp", "mbs", "gbs"))
    print(f"configuration   {degrees}, schedule {schedule_text(resolved['schedule'])}, recompute {resolved['recompute_granularity']}")
    print(f"replicas        dp {result.dp}{expert_replicas(result.expert_dp, moe=moe)}, {result.micro_batches} micro-batches")
    print(f"memory          {_verdict(result, cluster)} (worst rank)")
    _breakdown(result.memory_breakdown, "GB")
    if result.tokens_per_s_per_gpu is not None:
        print(f"throughput      {result.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, {result.iteration_ms:,.0f} ms an iteration")
        if result.throughput_band:
            low, high = result.throughput_band
            print(f"band            {low:,.0f} to {high:,.0f} tokens/s/GPU {band_words(warning.code for warning in result.warnings)}")
        print(
            f"efficiency      {result.tflops_per_s_per_gpu:,.0f} TFLOP/s/GPU, MFU {result.mfu:.1%},"
            f" bubble {result.bubble_ratio:.1%} over all ranks"
        )
        _breakdown(result.time_breakdown, "ms")
    elif result.reason:
        print(f"throughput      not computed: {result.reason}")
    print(f"priced by       {result.backend or 'no GEMM model'}, profile {result.profile}")
    if result.confidence:
        print(f"confidence      {result.confidence}")
    for warning in result.warnings:
        print(f"- {warning.code}: {warning.text}")


def _verdict(result: EvaluationResult, cluster: Cluster) -> str:
    """What is compared with what; the reason alone where a run, not an estimate, decided."""
    from primus_mcp.projection.memory import verdict_text

    if result.memory_per_gpu_gb is None:
        return f"{result.verdict or 'unknown'}: {result.reason or 'no figure'}"
    estimate = result.memory_per_gpu_gb * GIB
    if result.within_margin is False and estimate <= cluster.memory_cap_bytes:
        return f"{result.verdict}: {result.reason}"
    upper = None if result.memory_upper_gb is None else result.memory_upper_gb * GIB
    return verdict_text(result.fits_physically, estimate, upper, cluster.memory_cap_bytes, cluster.hbm_bytes)


def _breakdown(parts: Mapping[str, float] | None, unit: str) -> None:
    from primus_mcp.reports.part_words import part_text

    for name, value in sorted((parts or {}).items(), key=lambda item: -item[1]):
        if value >= 0.05:
            print(f"                {part_text(name):32} {value:10,.1f} {unit}")
