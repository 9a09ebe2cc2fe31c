"""A trial as the user's own workload file with the trial's keys, and as shell exports."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import yaml

from primus_mcp.inputs.findings import IN_FILES
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.knobs import TrialConfig, knob_text
from primus_mcp.space.trainer_keys import resolve, trainer_keys

_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_EXPORTED: dict[str, str] = {
    "tensor_model_parallel_size": "PRIMUS_TP",
    "pipeline_model_parallel_size": "PRIMUS_PP",
    "expert_model_parallel_size": "PRIMUS_EP",
}
"""Keys that Primus's example workloads take from the environment (reference guide: exports of the best configuration)."""
_ALWAYS_FLAGS = ("micro_batch_size", "global_batch_size")
FROZEN_KEYS = (*_EXPORTED, *_ALWAYS_FLAGS, "context_parallel_size", "seq_length")
"""Keys that an overlay always states, so that no environment variable changes it later."""
_MXFP8_ENVIRONMENT = {"NVTE_ROCM_ENABLE_MXFP8": "1"}
_FSDP2_ENVIRONMENT = {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}


def _is_placeholder(value: object) -> bool:
    return isinstance(value, str) and "${" in value


def overlay_document(workload: Workload, trial: TrialConfig) -> dict[str, Any]:
    """The user's document with the trial's keys in the overrides of its trainer module; everything else is kept as it is written.

    Read again, it resolves to exactly the trial: the keys are those that priced it. Numbers and switches that the file takes from the
    environment are written out; texts such as data paths stay placeholders. The workload's corrections, without which the trainer would
    refuse the file, are written too. `target_ep_size` has no key and is left out.
    """
    document = deepcopy(dict(workload.document))
    module = document.setdefault("modules", {}).setdefault(workload.module, {})
    overrides = module.get("overrides") or {}
    keys = trainer_keys(trial, workload)
    arguments = {**workload.arguments, **keys}
    frozen = {key: arguments[key] for key in FROZEN_KEYS}
    for key, value in overrides.items():
        if _is_placeholder(value) and not isinstance(arguments.get(key), str):
            frozen[key] = arguments[key]
    module["overrides"] = {**overrides, **workload.corrections, **frozen, **keys}
    return document


def overlay_yaml(workload: Workload, trial: TrialConfig) -> str:
    """The overlay as YAML text, keys in the file's own order; the trial, and what of the model it does not say, in comments above."""
    header = f"# {workload.name} with {trial.model_dump_json(exclude_none=True)}\n"
    header += "".join(f"# {finding.text}\n" for finding in workload.findings if finding.code in IN_FILES)
    body: str = yaml.dump(overlay_document(workload, trial), Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=4096)
    return header + body


def environment(config: TrainingConfig) -> dict[str, str]:
    """Environment variables without which the trainer refuses a configuration: mxfp8 (F10), FSDP2 (O3)."""
    needed: dict[str, str] = {}
    if config.fp8 is not None and config.fp8_recipe == "mxfp8":
        needed |= _MXFP8_ENVIRONMENT
    if config.use_torch_fsdp2:
        needed |= _FSDP2_ENVIRONMENT
    return needed


def exports(workload: Workload, trial: TrialConfig) -> tuple[str, ...]:
    """Shell lines for primus-cli: PRIMUS_* and further needed variables, then the remaining keys as flags in one comment line."""
    keys = trainer_keys(trial, workload)
    arguments: Mapping[str, Any] = {**workload.arguments, **keys}
    variables = {name: str(arguments[key]) for key, name in _EXPORTED.items()} | environment(resolve(workload, trial))
    flags = {key: arguments[key] for key in _ALWAYS_FLAGS} | {key: value for key, value in keys.items() if key not in _EXPORTED}
    lines = [f"export {name}={value}" for name, value in variables.items()]
    return (*lines, "# then pass " + " ".join(f"--{key.replace('_', '-')} {shlex.quote(knob_text(value))}" for key, value in flags.items()))
