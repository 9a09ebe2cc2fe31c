"""One example of a rule: what breaks it, and what mends it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Example:
    """A model with some trainer arguments, a trial that breaks `rule`, and the knobs or arguments that mend it."""

    rule: str
    told: tuple[str, ...]
    model: str = "dense"
    arguments: dict[str, Any] = field(default_factory=dict)
    trial: dict[str, Any] = field(default_factory=dict)
    mended_arguments: dict[str, Any] = field(default_factory=dict)
    mended_trial: dict[str, Any] = field(default_factory=dict)
    gpu: str = "mi355x"
    nodes: int = 4
    mended_gpu: str | None = None
    architecture: dict[str, Any] = field(default_factory=dict)
