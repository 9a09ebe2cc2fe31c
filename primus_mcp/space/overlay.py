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
from primus_mcp.space.knobs import TrialConfig
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
TRAINER_FLAGS = "# primus-cli train reads its keys with underscores: "
"""Before the flags that carry a whole trial."""
_MXFP8_ENVIRONMENT = {"NVTE_ROCM_ENABLE_MXFP8": "1"}
_FSDP2_ENVIRONMENT = {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}


def _is_placeholder(value: object) -> bool:
    return isinstance(value, str) and "${" in value


def _precision(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Format and recipe of a run in FP8, which are stated together: the format alone leaves scaling to whatever default the trainer has."""
    return {key: arguments[key] for key in ("fp8", "fp8_recipe")} if arguments.get("fp8") else {}


def overlay_document(workload: Workload, trial: TrialConfig) -> dict[str, Any]:
    """The user's document with the trial's keys in the overrides of its trainer module; everything else is kept as it is written.

    Read again, it resolves to exactly the trial: the keys are those that priced it. Numbers and switches that the file takes from the
    environment are written out; texts such as data paths stay placeholders. The workload's corrections, without which the trainer would
    refuse the file, are written too, and of a run in FP8 the recipe beside the format. `target_ep_size` has no key and is left out.
    """
    document = deepcopy(dict(workload.document))
    module = document.setdefault("modules", {}).setdefault(workload.module, {})
    overrides = module.get("overrides") or {}
    keys = trainer_keys(trial, workload)
    arguments = {**workload.arguments, **keys}
    frozen = {key: arguments[key] for key in FROZEN_KEYS} | _precision(arguments)
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
    """Shell lines for primus-cli: PRIMUS_* and further needed variables, then in comments the batch as the guide spells it, and everything
    as `primus-cli train` reads it.

    The trainer takes a key literally: with dashes it is another one, which nobody reads; of its values only Python's True, False and None
    are read as such by every version (AMD-AGI/Primus primus/core/utils/arg_utils.py, primus/core/launcher/parser.py).
    """
    keys = trainer_keys(trial, workload)
    arguments: Mapping[str, Any] = {**workload.arguments, **keys}
    variables = {name: str(arguments[key]) for key, name in _EXPORTED.items()} | environment(resolve(workload, trial))
    batch = {key: arguments[key] for key in _ALWAYS_FLAGS}
    written = {key for key in _EXPORTED if not _taken_from_environment(workload, key)}
    flags = batch | {key: value for key, value in keys.items() if key not in _EXPORTED or key in written} | _precision(arguments)
    return (
        *(f"export {name}={value}" for name, value in variables.items()),
        "# then pass " + " ".join(f"--{key.replace('_', '-')} {value}" for key, value in batch.items()),
        TRAINER_FLAGS + " ".join(f"--{key} {shlex.quote(str(value))}" for key, value in flags.items()),
    )


def _taken_from_environment(workload: Workload, key: str) -> bool:
    """Whether the workload file takes this size from its PRIMUS_* variable."""
    overrides = workload.document.get("modules", {}).get(workload.module, {}).get("overrides") or {}
    return f"${{{_EXPORTED[key]}" in str(overrides.get(key))
