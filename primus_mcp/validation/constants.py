"""Which figures of the catalogue were set against whole training runs, of which families of models: their `fitted_on`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from primus_mcp.inputs.catalogue import catalogue_names, catalogue_yaml

TIME_FILE, MEMORY_FILE = "time", "memory"
_NO_RATES = ("device", "network")
"""Parts of a GPU's file that hold data-sheet figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """One constant: its file, the keys that lead to it, its value and credible range, and the families that it was set on."""

    file: str
    path: tuple[str, ...]
    value: float
    low: float
    high: float
    families: tuple[str, ...]

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.file}: {'.'.join(self.path)}"

    @property
    def of_engine(self) -> bool:
        """Of catalog/engine, not of a GPU."""
        return self.file in (TIME_FILE, MEMORY_FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The constants that runs set, and how many the catalogue holds in all (without data sheets)."""

    fitted: tuple[Fitted, ...]
    total: int


def _entries(node: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """(keys, entry) of every figure below a node; one that is derived from a sibling is the sibling's."""
    if not isinstance(node, Mapping):
        return []
    if "source" in node and ("value" in node or "derived_from" in node):
        return [(path, node)] if "value" in node else []
    return [entry for key, value in node.items() for entry in _entries(value, (*path, str(key)))]


def _files() -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, catalogue_yaml(f"{folder}/{name}.yaml")) for folder in ("engine", "hardware") for name in catalogue_names(folder)]


def _fitted(file: str, path: tuple[str, ...], entry: Mapping[str, Any]) -> Fitted:
    value = float(entry["value"])
    low, high = entry.get("range", (value, value))
    return Fitted(file=file, path=path, value=value, low=float(low), high=float(high), families=tuple(entry["fitted_on"]))


def audit() -> Audit:
    """Every constant of catalog/engine and every rate of catalog/hardware, by its `fitted_on`."""
    entries = [
        (file, path, entry) for file, document in _files() for path, entry in _entries(document, ()) if path and path[0] not in _NO_RATES
    ]
    return Audit(fitted=tuple(_fitted(*entry) for entry in entries if entry[2]["fitted_on"]), total=len(entries))
