"""`config_json`: what models send as a configuration, and resolved configurations as knobs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any

from pydantic import WithJsonSchema

from primus_mcp.errors import InputError
from primus_mcp.inputs.training import Recompute, TrainingConfig
from primus_mcp.session import TuningSession
from primus_mcp.space.axes import with_pins
from primus_mcp.space.knobs import MOE_KNOBS, KnobValue, TrialConfig, knob_values
from primus_mcp.space.parsing import parse_trial

ConfigJson = Annotated[
    dict[str, Any] | str | None,
    WithJsonSchema({"type": "object", "description": 'knobs to change, e.g. {"tp":8,"mbs":2}; unset or null: inherited'}),
]
INHERIT = "inherit"
_FENCE = re.compile(r"^\s*```[a-zA-Z0-9_-]*\s*\n?(.*?)\n?\s*```\s*$", re.DOTALL)


def read_config(config_json: object) -> TrialConfig:
    """An object of knobs, the same as JSON text (code fences tolerated), or nothing: absent, null and "inherit" inherit everything.

    A value of "inherit" inherits that knob. Raises InputError that names the knob, its value and the legal values.
    """
    if config_json is None or isinstance(config_json, TrialConfig):
        return config_json or TrialConfig()
    if isinstance(config_json, str):
        text = found[1] if (found := _FENCE.match(config_json)) else config_json
        if text.strip().strip('"').lower() in {"", "null", "none", INHERIT}:
            return TrialConfig()
        return _parsed(text)
    if not isinstance(config_json, Mapping):
        raise InputError(f"is a {type(config_json).__name__}", where="config_json", remedy='write an object such as {"tp": 8, "mbs": 2}')
    return _parsed(config_json)


def _parsed(proposal: str | Mapping[str, Any]) -> TrialConfig:
    if isinstance(proposal, str):
        return parse_trial(proposal) if INHERIT not in proposal else parse_trial(_without_inherit(proposal))
    return parse_trial({name: value for name, value in proposal.items() if value != INHERIT})


def _without_inherit(text: str) -> str:
    return re.sub(r':\s*"inherit"', ": null", text)


def trial_of(session: TuningSession, config_json: object) -> TrialConfig:
    """A proposal with the session's pinned knobs where it leaves them unset."""
    return with_pins(read_config(config_json), session.pins)


def config_of(resolved: Mapping[str, Any]) -> TrainingConfig:
    """The flat mapping of a result back to the configuration that was priced."""
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in resolved.items()}
    names = {field.name for field in fields(TrainingConfig)} - {"recompute"}
    recompute = Recompute(**{field.name: values[f"recompute_{field.name}"] for field in fields(Recompute)})
    return TrainingConfig(recompute=recompute, **{name: values[name] for name in names})


def shown_knobs(config: TrainingConfig, *, moe: bool) -> dict[str, KnobValue]:
    """Every knob that has a value and a meaning: MoE knobs only where there are experts."""
    return {name: value for name, value in knob_values(config).items() if value is not None and (moe or name not in MOE_KNOBS)}


def knobs_of(session: TuningSession, resolved: Mapping[str, Any] | None) -> dict[str, KnobValue] | None:
    """Every knob of a resolved configuration; None where nothing was resolved."""
    if resolved is None:
        return None
    return shown_knobs(config_of(resolved), moe=session.workload.architecture.is_moe)


def baseline_knobs(session: TuningSession) -> dict[str, KnobValue]:
    """Every knob of the baseline."""
    return shown_knobs(session.workload.baseline, moe=session.workload.architecture.is_moe)
