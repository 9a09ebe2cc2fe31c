"""Pins that no configuration can have: told at once, from the rules alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from primus_mcp.evaluation.evaluators import Rules
from primus_mcp.search.sweep_choices import choices_of
from primus_mcp.search.sweep_masks import Masks
from primus_mcp.space.knobs import KnobValue, TrialConfig, knob_text
from primus_mcp.space.legality import Violation, check_legality


def impossible_pins(rules: Rules) -> str | None:
    """Which pins cannot be legal, whatever the other knobs are, and why: the first hard rule that every configuration breaks. None where
    some configuration of the search's space is legal, or nothing is pinned.

    Of several pins, one that is impossible alone is named alone.
    """
    pins = {name: value for name, value in rules.pins.items() if value is not None}
    if not pins or rules.check(TrialConfig.model_validate(pins)).legal or (found := _refusal(rules, pins)) is None:
        return None
    for name, value in pins.items() if len(pins) > 1 else []:
        alone = {name: value}
        if (why := _refusal(rules, alone)) is not None:
            return f"{_told(alone)} cannot be legal: {why}"
    return f"{_told(pins)} cannot be legal{' together' if len(pins) > 1 else ''}: {found}"


def _told(pins: Mapping[str, KnobValue]) -> str:
    return " ".join(f"--pin {name}={knob_text(value)}" for name, value in pins.items())


def _refusal(rules: Rules, pins: Mapping[str, KnobValue]) -> str | None:
    """Why no configuration with these pins is legal; None where one is."""
    narrowed = replace(rules, pins=pins)
    masks = Masks(narrowed, choices_of(rules.workload, rules.cluster, axes=rules.axes, pins=pins))
    if masks.any_legal():
        return None
    everywhere, nearest = masks.least_broken()
    alone = [found for found in _broken(rules, pins) if found.rule in everywhere]
    if alone:
        return _message(alone[0])
    least = [found for found in _broken(rules, nearest) if found.rule in masks.violations(nearest)[0]]
    return f"the nearest configuration breaks a rule: {_message(least[0])}" if least else "every configuration breaks one rule or another"


def _broken(rules: Rules, knobs: Mapping[str, KnobValue]) -> list[Violation]:
    """Hard rules first."""
    trial = TrialConfig.model_validate(knobs)
    found = check_legality(rules.workload, trial, rules.cluster, allow_policy=rules.allow_policy).violations
    return sorted(found, key=lambda violation: violation.kind != "hard")


def _message(violation: Violation) -> str:
    return violation.message if violation.kind == "hard" else f"policy: {violation.message} (--allow-policy lifts it)"
