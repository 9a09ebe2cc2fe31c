"""The change that makes a configuration fit and costs the least speed, from a bounded list of neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from primus_mcp.errors import InputError, UnknownFigureError
from primus_mcp.evaluation.evaluators import Evaluator
from primus_mcp.evaluation.rank import is_candidate
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.space.knobs import KnobValue, TrialConfig

Change = dict[str, KnobValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """`change` on top of the trial that was asked about, and the result of both together."""

    change: Change
    result: EvaluationResult

    @property
    def text(self) -> str:
        """`mbs=1 recompute_granularity=full`."""
        return " ".join(f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in self.change.items())


def memory_changes(config: TrainingConfig, *, moe: bool) -> list[Change]:
    """Single changes that can only lower memory a GPU, at their next step."""
    changes: list[Change] = []
    if config.mbs > 1:
        changes += [{"mbs": config.mbs // 2}, {"mbs": 1}]
    if config.recompute.granularity != "full":
        changes.append({"recompute_granularity": "full"})
    if not config.use_distributed_optimizer and not config.use_torch_fsdp2:
        changes.append({"use_distributed_optimizer": True})
    if not config.cross_entropy_loss_fusion:
        changes.append({"cross_entropy_loss_fusion": True})
    changes += [{name: 2 * getattr(config, name)} for name in ("tp", "pp", "cp")]
    if moe:
        changes.append({"ep": 2 * config.ep})
    return list({tuple(change.items()): change for change in changes}.values())


def _neighbours(changes: list[Change]) -> Iterator[list[Change]]:
    """Singles, then pairs of different knobs."""
    yield changes
    yield [one | other for one, other in combinations(changes, 2) if not set(one) & set(other)]


def cheapest_fitting_change(evaluator: Evaluator, trial: TrialConfig) -> Fitting | None:
    """The fastest of the single changes that make a legal trial fit, else of the pairs; None when none does."""
    config = evaluator.rules.check(trial).config
    if config is None:
        return None
    for level in _neighbours(memory_changes(config, moe=evaluator.workload.architecture.is_moe)):
        found = []
        for change in level:
            try:
                result = evaluator.evaluate(trial.model_copy(update=change))
            except (InputError, UnknownFigureError):
                continue
            if is_candidate(result):
                found.append(Fitting(change=change, result=result))
        if found:
            return max(found, key=lambda fitting: fitting.result.tokens_per_s_per_gpu or 0.0)
    return None
