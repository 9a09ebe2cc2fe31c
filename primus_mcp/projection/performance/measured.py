"""Measured figures that replace modelled ones; the projection stays the same otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from primus_mcp.projection.layers.rates import Traffic
from primus_mcp.projection.layers.record import PartCost

PartName = Literal["dense", "dense_windowed", "moe", "moe_windowed", "embedding", "head"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredParts:
    """What a measured run says about one configuration. Compared by identity, so that it can key the cache of stage costs.

    `parts` replace layers and ends of the model whole. `traffic` (see `Rates.measured`) is measured over modelled seconds,
    applied to whatever size the target has. `update_s_per_element` replaces the optimizer's model; None: it stays.
    """

    parts: Mapping[PartName, PartCost] = field(default_factory=dict)
    traffic: Mapping[Traffic, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    update_s_per_element: float | None = None


UNMEASURED = MeasuredParts()


def decoder_part(*, moe: bool, windowed: bool) -> PartName:
    """The name of a decoder layer's kind."""
    if moe:
        return "moe_windowed" if windowed else "moe"
    return "dense_windowed" if windowed else "dense"
