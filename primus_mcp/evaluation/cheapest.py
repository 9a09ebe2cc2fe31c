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
from primus_mcp.space.knobs import KnobValue, TrialConfig, knob_text

Change = dict[str, KnobValue]
MOST_TIMES = 8
"""A degree is raised to this many times its value at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """`change` on top of the trial that was asked about, and the result of both together."""

    change: Change
    result: EvaluationResult

    @property
    def text(self) -> str:
        """`mbs=1 recompute_granularity=full`."""
        return " ".join(f"{name}={knob_text(value)}" for name, value in self.change.items())


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


def _doubling(value: int, most: int) -> Iterator[int]:
    while (value := 2 * value) <= most:
        yield value


def _ladders(config: TrainingConfig, *, moe: bool, layers: int) -> list[list[Change]]:
    """For each knob the changes that lower memory, least first. Recomputation goes layer by layer of a (virtual) stage, then whole."""
    ladders: list[list[Change]] = [[{"mbs": config.mbs >> step} for step in range(1, config.mbs.bit_length())]]
    recompute = config.recompute
    if recompute.method != "uniform" and recompute.layer_ids is None:
        stage = -(-layers // (config.pp * config.vpp))
        held = (recompute.num_layers or 0) if recompute.granularity == "full" else 0
        ladders.append([{"recompute_granularity": "full", "recompute_num_layers": count} for count in range(held + 1, stage + 1)])
    elif recompute.granularity != "full":
        ladders.append([{"recompute_granularity": "full"}])
    if not config.use_distributed_optimizer and not config.use_torch_fsdp2:
        ladders.append([{"use_distributed_optimizer": True}])
    if not config.cross_entropy_loss_fusion:
        ladders.append([{"cross_entropy_loss_fusion": True}])
    degrees = ("tp", "pp", "cp", "ep") if moe else ("tp", "pp", "cp")
    ladders += [[{name: value} for value in _doubling(getattr(config, name), MOST_TIMES * getattr(config, name))] for name in degrees]
    return ladders


def _first_fitting(evaluator: Evaluator, trial: TrialConfig, ladder: list[Change]) -> Fitting | None:
    """The least change of one knob that fits; what the rules refuse is passed over."""
    for change in ladder:
        changed = trial.model_copy(update=change)
        try:
            if not evaluator.fits(changed):
                continue
            result = evaluator.evaluate(changed)
        except (InputError, UnknownFigureError):
            continue
        if is_candidate(result):
            return Fitting(change=change, result=result)
    return None


def fitting_changes(evaluator: Evaluator, trial: TrialConfig) -> list[Fitting]:
    """For each knob the least change that makes a legal trial fit, fastest first; empty where no single knob does."""
    config = evaluator.rules.check(trial).config
    if config is None:
        return []
    arch = evaluator.workload.architecture
    ladders = _ladders(config, moe=arch.is_moe, layers=arch.num_layers)
    found = [fitting for ladder in ladders if (fitting := _first_fitting(evaluator, trial, ladder)) is not None]
    return sorted(found, key=lambda fitting: -(fitting.result.tokens_per_s_per_gpu or 0.0))


def cheapest_fitting_change(evaluator: Evaluator, trial: TrialConfig) -> Fitting | None:
    """The fastest of the single changes that make a legal trial fit, else of pairs of next steps; None when none does."""
    config = evaluator.rules.check(trial).config
    if config is None:
        return None
    if singles := fitting_changes(evaluator, trial):
        return singles[0]
    steps = memory_changes(config, moe=evaluator.workload.architecture.is_moe)
    pairs = [one | other for one, other in combinations(steps, 2) if not set(one) & set(other)]
    found = [fitting for pair in pairs if (fitting := _first_fitting(evaluator, trial, [pair])) is not None]
    return max(found, key=lambda fitting: fitting.result.tokens_per_s_per_gpu or 0.0, default=None)
