"""Files of the package's catalogue, by their path below `primus_mcp/catalog`."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from primus_mcp.inputs.yaml_loader import parse_text


def catalogue_text(path: str) -> str:
    """The file as it is."""
    return (files("primus_mcp.catalog") / path).read_text(encoding="utf-8")


def catalogue_yaml(path: str) -> dict[str, Any]:
    """The file as plain data."""
    return parse_text(catalogue_text(path), f"catalog/{path}")


def catalogue_names(folder: str) -> list[str]:
    """The YAML files of a folder without their ending, sorted."""
    entries = (files("primus_mcp.catalog") / folder).iterdir()
    return sorted(entry.name.removesuffix(".yaml") for entry in entries if entry.name.endswith(".yaml"))
