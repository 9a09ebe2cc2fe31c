"""Carries the factor of a measured shape to one that was not measured: the nearest of its kind under the same engine."""

from __future__ import annotations

from math import log

from primus_mcp.measurement.artefact import Artefact, Residual
from primus_mcp.measurement.factors import Factor, Group
from primus_mcp.version import engine_version


def sizes_of(key: str) -> dict[str, int]:
    """The sizes in a unit's key."""
    pairs = (part.partition("=") for part in key.partition(":")[2].split(","))
    return {name: int(value) for name, _, value in pairs if value.isdigit()}


def distance(first: str, second: str) -> float:
    """How far two shapes are apart: the sum of |ln| of the ratios of their sizes, a flag that differs counting as one."""
    ours, theirs = sizes_of(first), sizes_of(second)
    total = 0.0
    for name in ours.keys() | theirs.keys():
        a, b = ours.get(name, 0), theirs.get(name, 0)
        total += abs(log(a / b)) if a and b else float(a != b)
    return total


def carried(group: Group, key: str, artefact: Artefact) -> tuple[Factor, str] | None:
    """(factor, the measured shape it comes from) for a shape that was not measured; None where no shape of its kind was."""
    engine = engine_version()
    found = [residual for residual in artefact.residuals if residual.kind == group and residual.engine == engine]
    if not found:
        return None
    near: Residual = min(found, key=lambda residual: (distance(key, residual.key), residual.key))
    return Factor(near.forward, near.backward or near.forward), near.key
