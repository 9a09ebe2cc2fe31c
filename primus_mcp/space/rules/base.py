"""What a rule is, and the case that it judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.knobs import TrialConfig

Kind = Literal["hard", "policy"]
"""hard: the trainer refuses it, or runs something else than it says. policy: a bound of the search, which --allow-policy lifts."""

POLICY_SOURCE = "policy of the search"


def megatron(where: str) -> str:
    """A line of the Megatron-LM commit that Primus pins."""
    return f"NVIDIA/Megatron-LM@d3528a21:megatron/{where}"


def primus(where: str) -> str:
    """A line of Primus's Megatron backend."""
    return f"AMD-AGI/Primus@fd1eeabb:primus/{where}"


def turbo(where: str) -> str:
    """A line of Primus-Turbo."""
    return f"AMD-AGI/Primus-Turbo@a6a16cdc:primus_turbo/pytorch/{where}"


def engine(where: str) -> str:
    """A line of TransformerEngine."""
    return f"NVIDIA/TransformerEngine@d0067d0d:transformer_engine/pytorch/{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One configuration on one cluster: `arguments` are the trainer's after the trial, `dp` and `micro_batches` are 0 where undefined."""

    workload: Workload
    arch: Architecture
    trial: TrialConfig
    config: TrainingConfig
    arguments: Mapping[str, Any]
    cluster: Cluster
    world: int
    dp: int
    micro_batches: int

    @property
    def patched(self) -> bool:
        """Whether Primus's own pipeline runs the schedule (`patch_primus_pipeline`)."""
        return bool(self.arguments.get("patch_primus_pipeline"))

    @property
    def zero_bubble_runtime(self) -> bool:
        """Whether the zero-bubble runtime runs the schedule (`patch_zero_bubble`)."""
        return bool(self.arguments.get("patch_zero_bubble"))

    @property
    def sync_free(self) -> int:
        """turbo_sync_free_moe_stage as Primus's own check of the arguments reads it: also without Primus-Turbo, and on a dense model."""
        return int(self.arguments.get("turbo_sync_free_moe_stage") or 0)

    @property
    def turbo_deepep(self) -> bool:
        """Whether Primus's check of the arguments sees DeepEP: asked for, or turned on by a sync-free stage (E16)."""
        return bool(self.arguments.get("use_turbo_deepep")) or self.sync_free >= 2


def whole_numbers(value: object) -> list[int] | None:
    """A list of whole numbers, also where they are written as texts, as argparse takes them; None: the value is no such list."""
    if not isinstance(value, list) or not all(type(item) is int or (isinstance(item, str) and item.isdecimal()) for item in value):
        return None
    return [int(item) for item in value]


Check = Callable[[Case], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule: `check` returns None, or one line with the numbers that break it and what would be legal."""

    id: str
    kind: Kind
    source: str
    title: str
    check: Check


class RuleBook:
    """Collects the rules of one module in the order they are written."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []

    def hard(self, rule_id: str, source: str, title: str) -> Callable[[Check], Check]:
        """Register a rule that the trainer enforces, with the line that does."""
        return self._add(rule_id, "hard", source, title)

    def policy(self, rule_id: str, title: str, source: str = POLICY_SOURCE) -> Callable[[Check], Check]:
        """Register a bound of the search."""
        return self._add(rule_id, "policy", source, title)

    def _add(self, rule_id: str, kind: Kind, source: str, title: str) -> Callable[[Check], Check]:
        def register(check: Check) -> Check:
            self.rules.append(Rule(id=rule_id, kind=kind, source=source, title=title, check=check))
            return check

        return register
