"""Legality of a trial on a cluster: every rule it breaks, hard and policy apart, each with its numbers and source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from primus_mcp.errors import InputError
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.knobs import KNOBS, KnobValue, TrialConfig, knob_text, knob_values
from primus_mcp.space.rules import CONFIG_RULES, REQUEST_RULES, Case, Kind, Rule
from primus_mcp.space.trainer_keys import read_trial, trainer_keys

PINNED_SOURCE = "optimization.axes of the cluster file, or --pin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken rule: `message` is one line with the numbers, `source` the trainer's line or the policy."""

    rule: str
    kind: Kind
    message: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Legality:
    """The verdict. `config` is what the trial resolves to, None where it does not resolve."""

    legal: bool
    violations: tuple[Violation, ...]
    config: TrainingConfig | None

    @property
    def reason(self) -> str | None:
        """One line for a result; None when legal. Policy refusals say that they are one."""
        if self.legal:
            return None
        parts = [
            f"policy: {violation.message} (--allow-policy lifts it)" if violation.kind == "policy" else violation.message
            for violation in self.violations
        ]
        return "; ".join(dict.fromkeys(parts))


def _violations(rules: tuple[Rule, ...], case: Case, *, allow_policy: bool) -> list[Violation]:
    found = []
    for rule in rules:
        if allow_policy and rule.kind == "policy":
            continue
        if (message := rule.check(case)) is not None:
            found.append(Violation(rule=rule.id, kind=rule.kind, message=message, source=rule.source))
    return found


def _pinned(trial: TrialConfig, baseline: TrainingConfig, axes: Mapping[str, bool], pins: Mapping[str, KnobValue]) -> list[Violation]:
    """Knobs that a trial moves although their axis is off or they are pinned. An axis that is off pins to the baseline."""
    found = []
    values: dict[str, KnobValue] | None = None
    for name, knob in KNOBS.items():
        wanted = getattr(trial, name)
        if wanted is None:
            continue
        axis_off = knob.axis is not None and not axes.get(knob.axis, True)
        if name in pins:
            held, why = pins[name], "--pin"
        elif axis_off:
            values = values if values is not None else knob_values(baseline)
            held, why = (
                values[name],
                f"axes.{knob.axis} false; `optimization: {{axes: {{{knob.axis}: true}}}}` in the cluster file frees it",
            )
        else:
            continue
        if wanted != held:
            message = f"{name} is pinned to {knob_text(held)} ({why}), the trial sets {knob_text(wanted)}"
            found.append(Violation(rule="pinned", kind="hard", message=message, source=PINNED_SOURCE))
    return found


def check_legality(
    workload: Workload,
    trial: TrialConfig,
    cluster: Cluster,
    *,
    allow_policy: bool = False,
    axes: Mapping[str, bool] | None = None,
    pins: Mapping[str, KnobValue] | None = None,
) -> Legality:
    """Whether a trial may run on the cluster, with every reason why not. Never raises for a TrialConfig.

    `axes` are the toggles of `optimization.axes` (absent: on), `pins` knobs that are held (`--pin`). `allow_policy` judges by the
    trainer's own rules only, as baselines, `validate` and single evaluations are judged.
    """
    baseline, world = workload.baseline, cluster.world_size
    found = _pinned(trial, baseline, axes or {}, pins or {})
    arch = workload.architecture
    request = Case(
        workload=workload,
        arch=arch,
        trial=trial,
        config=baseline,
        arguments=workload.arguments,
        cluster=cluster,
        world=world,
        dp=0,
        micro_batches=0,
    )
    found += _violations(REQUEST_RULES, request, allow_policy=allow_policy)
    keys = trainer_keys(trial, workload)
    arguments: Mapping[str, object] = {**workload.arguments, **keys} if keys else workload.arguments
    try:
        config = read_trial(workload, trial, keys)
    except InputError as error:
        if not found:
            found.append(Violation(rule="unreadable", kind="hard", message=str(error), source="the trainer's argument parsing"))
        return Legality(legal=False, violations=tuple(found), config=None)
    dp, rest = divmod(world, config.tp * config.pp * config.cp)
    dp = 0 if rest else dp
    case = Case(
        workload=workload,
        arch=arch,
        trial=trial,
        config=config,
        arguments=arguments,
        cluster=cluster,
        world=world,
        dp=dp,
        micro_batches=config.gbs // (config.mbs * dp) if dp else 0,
    )
    found += _violations(CONFIG_RULES, case, allow_policy=allow_policy)
    return Legality(legal=not found, violations=tuple(found), config=config)
