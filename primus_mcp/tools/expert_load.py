"""What an answer says about the balance of a mixture of experts: one sentence, with what a hotter rank does to memory and to time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from primus_mcp.evaluation.convert import AT_EXPERT_LOAD, FITS_ONLY_BALANCED
from primus_mcp.evaluation.evaluators import FullEvaluator
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.memory import MemoryProjection, memory_by_load
from primus_mcp.projection.performance import project_performance
from primus_mcp.session import TuningSession
from primus_mcp.tools.configuration import config_of
from primus_mcp.units import bytes_to_gb

MERGED = frozenset({AT_EXPERT_LOAD, FITS_ONLY_BALANCED, "expert_load_assumed", "forced_balance", "balance_assumed", "imbalance_priced"})
"""Warnings of memory and time about the same thing, which the sentence replaces."""


def told_warnings(session: TuningSession, result: EvaluationResult) -> list[str]:
    """The texts of a result's warnings, those about expert load in one sentence. Warnings of the workload itself are told when it is
    opened, not here.
    """
    known = {finding.code for finding in session.workload.findings}
    warnings = [warning for warning in result.warnings if warning.code not in known]
    sentence = load_sentence(session, result) if any(warning.code in MERGED for warning in warnings) else None
    if sentence is None:
        return [warning.text for warning in warnings]
    return [sentence, *(warning.text for warning in warnings if warning.code not in MERGED)]


def load_sentence(session: TuningSession, result: EvaluationResult) -> str | None:
    """The load that was priced, why, and what 1.5 and 2 times the mean do to the worst rank's memory and to throughput.

    None where the figures are not our projection's: a measured one is not repeated at another load.
    """
    evaluator = session.evaluator
    if not isinstance(evaluator, FullEvaluator) or result.fidelity != "simulate" or result.resolved is None:
        return None
    config, cluster = config_of(result.resolved), evaluator.cluster
    loads = memory_by_load(evaluator.workload.architecture, config, cluster)
    if not loads:
        return None
    why = "balance is forced, as no real router does" if config.forced_balance else "real routing was seen at about 2"
    where = " and ".join(f"{load:g}" for load in loads)
    parts = [f"memory {_memory_text(loads, evaluator)}"]
    if (today := result.tokens_per_s_per_gpu) is not None:
        parts.append(_time_text(evaluator, config, loads, today))
    return f"expert load is priced at {config.expert_load_imbalance:g} x the mean ({why}); a hot rank at {where} x: {', '.join(parts)}"


def _memory_text(loads: Mapping[float, MemoryProjection], evaluator: FullEvaluator) -> str:
    fits = [found.fits(evaluator.cluster.hbm_bytes).replace("_", " ") for found in loads.values()]
    sizes = [f"{bytes_to_gb(found.device_bytes):.1f}" for found in loads.values()]
    if len(set(fits)) == 1:
        return f"{' and '.join(sizes)} GB ({fits[0]})"
    return " and ".join(f"{size} GB ({fit})" for size, fit in zip(sizes, fits, strict=True))


def _time_text(evaluator: FullEvaluator, config: TrainingConfig, loads: Mapping[float, MemoryProjection], today: float) -> str:
    rates = [
        project_performance(
            evaluator.workload.architecture,
            replace(config, expert_load_imbalance=load),
            evaluator.cluster,
            gemm_backend=evaluator.gemm_backend,
        ).tokens_per_s_per_gpu
        for load in loads
    ]
    return f"throughput {' and '.join(f'{rate:,.0f} ({rate / today - 1:+.0%})' for rate in rates)} tokens/s/GPU"
