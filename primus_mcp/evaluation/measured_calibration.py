"""Applies a calibration to a result, when somebody asked for it: the answer says by how much, and on what evidence."""

from __future__ import annotations

from primus_mcp.errors import InputError
from primus_mcp.evaluation.nearest import BAND_OF_ALL, UNLIKE
from primus_mcp.evaluation.result import EvaluationResult, ResultWarning
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.measurement.calibration import Calibration, apply_calibration, term_of
from primus_mcp.version import engine_version


def require_applicable(calibration: Calibration, cluster: Cluster) -> None:
    """Raises InputError for another GPU, software profile or engine: its multipliers correct that one's errors."""
    own = {"GPU": cluster.gpu.name, "profile": cluster.profile.name, "engine": engine_version()}
    fitted = {"GPU": calibration.gpu, "profile": calibration.profile, "engine": calibration.engine}
    other = [f"{name} {fitted[name]} instead of {value}" for name, value in own.items() if fitted[name] != value]
    if other:
        raise InputError(f"was fitted for {', '.join(other)}", where="calibration", remedy="fit it again with `primus-mcp calibrate`")


def with_calibration(result: EvaluationResult, calibration: Calibration, cluster: Cluster) -> EvaluationResult:
    """The result with every component of its time multiplied; unchanged where no time was computed. Raises InputError."""
    require_applicable(calibration, cluster)
    if result.time_breakdown is None or result.iteration_ms is None or result.tokens_per_s_per_gpu is None:
        return result
    parts = {name: ms * calibration.multipliers[term_of(name)] for name, ms in result.time_breakdown.items()}
    iteration_ms = sum(parts.values())
    faster = result.iteration_ms / iteration_ms
    corrected = apply_calibration(result.time_breakdown, calibration)
    band = "" if corrected.low_s is None or corrected.high_s is None else f", {corrected.low_s:,.1f} to {corrected.high_s:,.1f} ms"
    text = f"{corrected.text}; {result.iteration_ms:,.1f} ms before, {iteration_ms:,.1f} ms corrected{band}"
    return result.model_copy(
        update={
            "iteration_ms": iteration_ms,
            "time_breakdown": parts,
            "tokens_per_s_per_gpu": result.tokens_per_s_per_gpu * faster,
            "tflops_per_s_per_gpu": None if result.tflops_per_s_per_gpu is None else result.tflops_per_s_per_gpu * faster,
            "mfu": None if result.mfu is None else result.mfu * faster,
            "throughput_band": None,
            "confidence": corrected.text,
            "warnings": [
                ResultWarning(code="calibrated", text=text),
                *(found for found in result.warnings if found.code not in (UNLIKE, BAND_OF_ALL)),
            ],
        }
    )
