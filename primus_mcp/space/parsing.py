"""Proposals as text or mappings to TrialConfig, with one-line errors that name the knob, the value and what would be legal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from primus_mcp.errors import InputError
from primus_mcp.space.knobs import KNOB_OF_SCHEDULE, KNOBS, KnobValue, TrialConfig

MAX_PROPOSAL_CHARACTERS = 20_000
_SHOWN_CHARACTERS = 60
_BY_TRAINER_KEY = {knob.trainer_keys[0]: name for name, knob in reversed(KNOBS.items()) if knob.trainer_keys}


def _shown(value: object) -> str:
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def suggest_knob(name: str) -> str:
    """Remedy for an unknown knob: the knob that owns this trainer key, a close name, or the whole list."""
    owner = _BY_TRAINER_KEY.get(name)
    close = [owner] if owner else get_close_matches(name.lower(), KNOBS, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"knobs are {', '.join(KNOBS)}"


def _no_constant(text: str) -> None:
    raise InputError(f"{text} is not a number", where="trial", remedy="use null to inherit")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name} is given {names.count(name)} times", where="trial", remedy="give each knob once")
    return dict(pairs)


def _decode(text: str) -> Any:
    if len(text) > MAX_PROPOSAL_CHARACTERS:
        raise InputError(f"is {len(text)} characters long", where="trial", remedy=f"a trial takes at most {MAX_PROPOSAL_CHARACTERS}")
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
    except json.JSONDecodeError as error:
        problem = f"is not JSON ({error.msg} at character {error.pos})"
        raise InputError(problem, where="trial", remedy='write an object such as {"tp": 8, "mbs": 2}') from error
    except (RecursionError, ValueError) as error:
        raise InputError("is not JSON that can be read", where="trial", remedy='write an object such as {"tp": 8}') from error


def parse_trial(proposal: str | Mapping[str, Any] | TrialConfig) -> TrialConfig:
    """A JSON object or mapping of knobs to TrialConfig. Raises InputError naming the knob, its value and the legal values."""
    if isinstance(proposal, TrialConfig):
        return proposal
    data = _decode(proposal) if isinstance(proposal, str) else proposal
    if not isinstance(data, Mapping):
        raise InputError(f"is {_shown(data)}, not an object of knobs", where="trial", remedy='write an object such as {"tp": 8, "mbs": 2}')
    for name in data:
        if name not in KNOBS:
            raise InputError("unknown knob", where=str(name)[:_SHOWN_CHARACTERS], remedy=suggest_knob(str(name)))
    try:
        return TrialConfig.model_validate(dict(data))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        problem = f"{_shown(data[name])} is not legal"
        same = KNOB_OF_SCHEDULE.get(str(data[name])) if name == "pp_schedule" else None
        remedy = f"write {same}, which is pp_algorithm {data[name]}" if same else f"use {KNOBS[name].values_text}, or null to inherit"
        if first["type"] == "less_than_equal" and "<=" not in remedy:
            remedy = f"use at most {first['ctx']['le']:,}"
        raise InputError(problem, where=name, remedy=remedy) from error


def parse_pins(assignments: Iterable[str]) -> dict[str, KnobValue]:
    """`tp=8`, `fp8=none` (as `--pin` gives them) to knob values. Raises InputError as `parse_trial` does, and for a missing `=`."""
    pins: dict[str, Any] = {}
    for text in assignments:
        name, equals, raw = text.partition("=")
        name = name.strip()
        if not equals or not raw.strip() or not name:
            raise InputError(f"{_shown(text)} is not KNOB=VALUE", where="--pin", remedy="write for example tp=8")
        if name in pins:
            raise InputError(f"{name} is given twice", where="--pin", remedy="give each knob once")
        if name in KNOBS and KNOBS[name].kind == "choice":
            pins[name] = raw.strip()
            continue
        try:
            pins[name] = json.loads(raw.strip().lower())
        except (ValueError, RecursionError):
            pins[name] = raw.strip()
    trial = parse_trial(pins)
    return {name: getattr(trial, name) for name in pins}
