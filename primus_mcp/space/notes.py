"""What a legal trial's numbers cannot show: switches that do less than they say."""

from __future__ import annotations

from primus_mcp.inputs.findings import Finding
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.inputs.training_findings import training_findings
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.trainer_keys import trainer_keys


def trial_findings(workload: Workload, trial: TrialConfig, config: TrainingConfig) -> tuple[Finding, ...]:
    """Findings of a trial that its workload does not have already, such as FP8 that does not reach the experts."""
    arguments = {**workload.arguments, **trainer_keys(trial, workload)}
    known = set(workload.findings)
    return tuple(finding for finding in training_findings(arguments, workload.architecture, config) if finding not in known)
