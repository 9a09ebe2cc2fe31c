"""The texts of a row (flags, precision, recompute) to trainer arguments, by the vocabulary of catalog/measured/vocabulary.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from primus_mcp.inputs.catalogue import catalogue_yaml
from primus_mcp.units import GB_PER_S
from primus_mcp.validation.errors import NotScoredError

BITS_PER_BYTE = 8


@cache
def vocabulary() -> Mapping[str, Any]:
    """The vocabulary file."""
    return catalogue_yaml("measured/vocabulary.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a text switches on."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


def _filled(values: Mapping[str, Any], match: re.Match[str]) -> dict[str, Any]:
    filled: dict[str, Any] = {}
    for key, value in values.items():
        if value == "{1}":
            captured = match[1]
            value = int(captured) if captured.isdigit() else captured
        filled[key] = value
    return filled


def read_flags(flags: str) -> Meaning:
    """All words of the vocabulary that occur. Raises NotScoredError for what the engine does not price."""
    text = flags.lower()
    arguments: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for word in vocabulary()["words"]:
        match = re.search(word["pattern"], text)
        if match is None:
            continue
        if "unpriced" in word:
            raise NotScoredError(f"{word['unpriced']}: not priced")
        arguments |= _filled(word.get("arguments", {}), match)
        config |= word.get("config", {})
    return Meaning(arguments=arguments, config=config)


def node_bytes_per_s(flags: str | None) -> float | None:
    """Network of a node, where the flags state it (`800 Gb/s`), in bytes per second."""
    match = re.search(vocabulary()["node_network"], (flags or "").lower())
    return float(match[1]) * GB_PER_S / BITS_PER_BYTE if match else None


def number_after(name: str, flags: str | None) -> int | None:
    """The number of a counting word (`micro_batches`, `local_batch`, `virtual_stages`), or None."""
    match = re.search(vocabulary()[name], (flags or "").lower())
    return next((int(group) for group in match.groups() if group), None) if match else None


def runs_interleaved(flags: str | None) -> bool:
    """The flags name an interleaved schedule without its number of virtual stages."""
    return re.search(vocabulary()["interleaved"], (flags or "").lower()) is not None


def is_ladder(flags: str | None) -> bool:
    """A rung of a ladder of features: it starts from the unoptimised configuration."""
    return re.search(vocabulary()["ladder_base"], (flags or "").lower()) is not None


def inherits(flags: str | None) -> bool:
    """A rung that keeps the features of the rungs before it."""
    return re.search(vocabulary()["ladder_inherits"], (flags or "").lower()) is not None


def read_precision(text: str | None, known: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the precision column. A bare `FP8` keeps the recipe of the framework's settings (`known`), else hybrid delayed."""
    if text is None:
        return {}
    for word in vocabulary()["precisions"]:
        if re.search(word["pattern"], text.lower()):
            changes = dict(word["arguments"])
            if word.get("at_least_fp8") and known.get("fp8") is None:
                changes["fp8"] = "hybrid"
            return changes
    raise NotScoredError(f"precision {text!r} is not in the vocabulary")


def _ids(text: str) -> list[int]:
    """`full, 15 layer ids 0,1,2..`: the ids as written; a run of consecutive ids that ends in dots goes on to the count."""
    head, _, tail = text.partition("ids")
    ids = [int(number) for number in re.findall(r"\d+", tail)]
    count = re.search(r"(\d+)\s*layer", head)
    if count and ".." in tail and ids == list(range(ids[0], ids[0] + len(ids))):
        return list(range(ids[0], ids[0] + int(count[1])))
    return ids


_CLEARED: Mapping[str, Any] = {
    "recompute_granularity": None,
    "recompute_method": None,
    "recompute_num_layers": None,
    "recompute_layer_ids": None,
    "recompute_modules": None,
    "recompute_activations": False,
}


def read_recompute(text: str) -> dict[str, Any]:
    """`none`, `full`, `full uniform N`, `full block N layers`, `full, N layer ids 0,1,..`, `selective core_attn, ...`, or modules alone.

    Full without a method is uniform, one layer at a time; selective without modules is core attention (Megatron's default).
    """
    lowered = text.lower()
    if lowered.startswith("none"):
        return dict(_CLEARED)
    if "full" in lowered or "block" in lowered or "uniform" in lowered:
        if "ids" in lowered:
            return {**_CLEARED, "recompute_granularity": "full", "recompute_layer_ids": _ids(lowered)}
        method = "block" if "block" in lowered else "uniform"
        number = re.search(rf"{method},?\s*(\d+)", lowered)
        return {
            **_CLEARED,
            "recompute_granularity": "full",
            "recompute_method": method,
            "recompute_num_layers": int(number[1]) if number else 1,
        }
    modules = [entry["module"] for entry in vocabulary()["modules"] if re.search(entry["pattern"], lowered)]
    if not modules and "selective" not in lowered:
        raise NotScoredError(f"recompute {text!r} is not in the vocabulary")
    return {**_CLEARED, "recompute_granularity": "selective", "recompute_modules": modules or ["core_attn"]}
