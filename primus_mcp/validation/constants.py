"""How many figures of the engine were set against end-to-end runs: what a small error has to be read against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from primus_mcp.inputs.yaml_loader import parse_text

FITTED = ("fit", "single-node", "rows", "residual", "intercept")
"""Words of a source that say that the figure was set against whole training runs."""
_GROUPS = ("time", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeConstants:
    """Names of the constants that were fitted: of the engine, and rates of GPUs."""

    engine: tuple[str, ...]
    hardware: tuple[str, ...]


def is_fitted(source: str) -> bool:
    """Whether a source says that its figure was set against runs."""
    return any(word in source.lower() for word in FITTED)


def _entries(node: Any, path: str) -> list[tuple[str, str]]:
    """(path, source) of every figure below a node."""
    if not isinstance(node, Mapping):
        return []
    if "source" in node and ("value" in node or "derived_from" in node):
        return [(path, str(node["source"]))] if "value" in node else []
    return [entry for key, value in node.items() for entry in _entries(value, f"{path}.{key}" if path else str(key))]


def _fitted(folder: str, name: str) -> list[str]:
    text = (files("primus_mcp.catalog") / folder / f"{name}.yaml").read_text(encoding="utf-8")
    document = parse_text(text, f"catalog/{folder}/{name}.yaml")
    return [f"{name}: {path}" for path, source in _entries(document, "") if is_fitted(source)]


def free_constants() -> FreeConstants:
    """Fitted constants of catalog/engine and fitted rates of catalog/hardware."""
    hardware = sorted(
        entry.name.removesuffix(".yaml") for entry in (files("primus_mcp.catalog") / "hardware").iterdir() if entry.name.endswith(".yaml")
    )
    return FreeConstants(
        engine=tuple(found for group in _GROUPS for found in _fitted("engine", group)),
        hardware=tuple(found for name in hardware for found in _fitted("hardware", name)),
    )
