"""Keys of a workload that the engine does not read: told where they may change an answer, silent where they cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

import yaml

from primus_mcp.inputs.argument_values import Arguments, count, default_arguments, flag, is_one_of, start_arguments
from primus_mcp.inputs.catalogue import catalogue_text, catalogue_yaml
from primus_mcp.inputs.findings import Finding
from primus_mcp.inputs.megatron_arguments import megatron_table

REMOVED = {"use_turbo_parallel_linear": "use_turbo_gemm", "use_turbo_grouped_mlp": "use_turbo_grouped_gemm"}
"""Keys that Primus took out, with the one to write instead."""


@cache
def _told() -> Mapping[str, Mapping[str, Any]]:
    return catalogue_yaml("primus/told.yaml")


@cache
def _refused() -> frozenset[str]:
    return frozenset(catalogue_yaml("primus/unsupported.yaml"))


@cache
def _no_cost_keys() -> frozenset[str]:
    return frozenset(yaml.safe_load(catalogue_text("primus/no_cost.yaml")))


def _value(arguments: Arguments, key: str) -> Any:
    """The value below a dotted key; None where a part of the way is missing."""
    found: Any = arguments
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def told_keys(arguments: Arguments) -> Iterator[tuple[str, str]]:
    """Keys that change time or memory and are left out (catalog/primus/told.yaml), where they have another value than the usual one."""
    for key, rule in _told().items():
        value = _value(arguments, key)
        if value is not None and not is_one_of(value, rule["plain"]):
            yield "key-not-priced", f"{key}: {str(value)[:40]} is not priced: {rule['effect']}"


def unknown_overrides(overrides: Mapping[str, Any], presets: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Overrides that the engine does not read and no catalogue calls free, told or refused: misspelt, or features of tomorrow.

    A key that Primus's presets have as well is spelt right; it is told where its value is not the preset's.
    """
    known = {*presets, *default_arguments(), *start_arguments(), *REMOVED}
    unread = [key for key in overrides if key not in default_arguments() and key not in start_arguments() and key not in REMOVED]
    if unread:
        classed = {flag.key for flag in megatron_table().flags.values()} | _no_cost_keys() | _refused()
        classed |= {key.partition(".")[0] for key in _told()}
        unread = [key for key in unread if key not in classed]
    findings, strange, others = [], [], []
    for key in unread:
        if key in presets:
            others += [] if overrides[key] == presets[key] else [key]
            continue
        close = get_close_matches(key, known, n=1, cutoff=0.85)
        if close:
            text = f"overrides.{key} is no known key and is not used; did you mean {close[0]}?"
            findings.append(Finding(code="unknown-override", text=text))
        else:
            strange.append(key)
    if strange:
        text = f"overrides that are not known here and not priced: {', '.join(strange)}; check their spelling"
        findings.append(Finding(code="unknown-override", text=text))
    if others:
        text = f"keys of Primus that are not known here: {', '.join(others)}: priced as if they changed neither memory nor time"
        findings.append(Finding(code="unknown-override", text=text))
    return tuple(findings)


def removed_keys(arguments: Arguments) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """A file written for a Primus that still had a key: what it says in today's keys, and one finding a key.

    Turbo's expert class stood in for the legacy one then, which sync-free stages 2 and 3 asked for (AMD-AGI/Primus before
    use_turbo_grouped_gemm: "require PrimusTurboGroupedMLP, please set moe_use_legacy_grouped_gemm=True"); today both exclude each other
    (rule E18). Without the legacy switch TransformerEngine's class ran, below stage 2. A file with the old key and the new one is left
    to rule E18.
    """
    changes: dict[str, Any] = {}
    findings = []
    for old, new in REMOVED.items():
        if not arguments.get(old) or flag(arguments, new):
            continue
        changes |= {old: None, new: True}
        if old == "use_turbo_grouped_mlp":
            turbo = flag(arguments, "moe_use_legacy_grouped_gemm") or count(arguments, "turbo_sync_free_moe_stage", 0) >= 2
            changes |= {new: True, "moe_use_legacy_grouped_gemm": False} if turbo else {new: False}
        written = ", ".join(f"{key}: {str(value).lower()}" for key, value in changes.items() if value is not None)
        text = f"{old}: true is of a Primus before {new}; what ran there is priced and exported as {written}"
        findings.append(Finding(code="key-of-old-primus", text=text))
    return changes, tuple(findings)
