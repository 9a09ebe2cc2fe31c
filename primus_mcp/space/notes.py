"""What a legal trial's numbers cannot show: batches that train differently, switches that do less than they say."""

from __future__ import annotations

from functools import lru_cache

from primus_mcp.inputs.findings import Finding
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.inputs.training_findings import training_findings
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.knobs import TrialConfig, set_knobs
from primus_mcp.space.trainer_keys import trainer_keys

GBS_DIFFERS = "gbs-differs"
"""Code of the finding that a trial trains with another global batch size than the workload."""
WHAT_IF = "what-if"
"""Code of the finding that a trial is priced as something else than what its overlay runs."""
PRECISION_DIFFERS = "precision-differs"
"""Code of the finding that a trial computes in another precision than the workload."""


def _precision(config: TrainingConfig) -> str:
    if config.fp4:
        return "FP4"
    return "BF16" if config.fp8 is None else "MXFP8" if config.fp8_recipe == "mxfp8" else "FP8"


@lru_cache(maxsize=64)
def _about_the_model(findings: tuple[Finding, ...], of_the_baseline: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if finding not in set(of_the_baseline))


def trial_findings(workload: Workload, trial: TrialConfig, config: TrainingConfig) -> tuple[Finding, ...]:
    """Findings that hold for a trial: those about the model and the data, those about the settings that the trial resolves to (not the
    baseline's, where it changes them), and a batch or a precision that is not comparable for convergence.
    """
    if not set_knobs(trial):
        return workload.findings
    of_the_baseline = training_findings(workload.arguments, workload.architecture, workload.baseline)
    arguments = {**workload.arguments, **trainer_keys(trial, workload)}
    found = [*_about_the_model(workload.findings, of_the_baseline), *training_findings(arguments, workload.architecture, config)]
    if config.gbs != workload.baseline.gbs:
        text = f"GBS {config.gbs} instead of the workload's {workload.baseline.gbs}: convergence is not comparable"
        found.append(Finding(code=GBS_DIFFERS, text=text))
    own, other = _precision(workload.baseline), _precision(config)
    if own != other:
        pin = ": `--pin fp8=none` holds BF16" if own == "BF16" else ""
        found.append(Finding(code=PRECISION_DIFFERS, text=f"computes in {other}, the workload in {own}{pin}"))
    if config.a2a_ep_size not in (None, config.ep):
        text = (
            f"target_ep_size {config.a2a_ep_size}: priced with the all-to-all of another EP than the {config.ep} that runs; never the best"
        )
        found.append(Finding(code=WHAT_IF, text=text))
    return tuple(found)
