"""What the time projection loses on a model family when four scales are fitted without it.

The scales (GEMM rates, memory-bound passes, host time of a launch, expert exchange) stand on top of the shipped rates and are fitted to the
other families of the vendor: least mean |log(predicted / measured)|, by coordinates, from 1. This is not a blind test: the shipped rates
they start from, the engine's own constants and the formulas were set with every shipped family in view.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import mean

from primus_mcp.errors import InputError, PrimusMcpError
from primus_mcp.inputs.hardware import Cluster, SoftwareProfile
from primus_mcp.projection.ops.backend import GemmBackend
from primus_mcp.projection.performance import project_performance
from primus_mcp.validation.models import bare_name, find_architecture
from primus_mcp.validation.resolve import Case, Ladders, resolve
from primus_mcp.validation.rows import Row

SCALES = ("gemm", "memory passes", "host", "exchange")
_STEPS = (1.3, 1.1, 1.03)
_LOWEST, _HIGHEST = 0.5, 2.0
MIN_ROWS = 6
Scales = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One distinct configuration with its measured tokens/s/GPU."""

    row: Row
    family: str
    case: Case
    measured: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Mean |error| of one family: with the shipped rates, and with the scales fitted to the others (`fitted_on` configurations)."""

    family: str
    vendor: str
    configurations: int
    fitted_on: int
    shipped: float
    refitted: float
    scales: Scales


def family_of(name: str) -> str:
    """A catalogue name without its sizes: llama3.1_70B -> llama3.1, qwen3_30B_A3B -> qwen3."""
    return re.split(r"[_ -]\d+(?:\.\d+)?[BbTt](?=[_ -]|$)|_\d+x", name)[0].lower()


def scaled_profile(profile: SoftwareProfile, scales: Scales) -> SoftwareProfile:
    """The profile with its rates times the scales; an efficiency stays at most 1."""
    traffic, exchange = scales["memory passes"], scales["exchange"]
    return replace(
        profile,
        sustained_flops={precision: rate * scales["gemm"] for precision, rate in profile.sustained_flops.items()},
        attention_forward_flops=profile.attention_forward_flops * scales["gemm"],
        attention_backward_flops=profile.attention_backward_flops * scales["gemm"],
        elementwise_hbm_efficiency=min(1.0, profile.elementwise_hbm_efficiency * traffic),
        launch_s=profile.launch_s * scales["host"],
        all_to_all_link_efficiency=min(1.0, profile.all_to_all_link_efficiency * exchange),
        deepep_link_efficiency=min(1.0, profile.deepep_link_efficiency * exchange),
    )


class _Predictor:
    """Predictions under scales; clusters are built once for all rows that share one."""

    def __init__(self, backend: GemmBackend) -> None:
        self._backend = backend
        self._scaled: dict[tuple[tuple[float, ...], str, int, int, str], Cluster] = {}

    def _cluster(self, cluster: Cluster, scales: Scales) -> Cluster:
        key = (tuple(scales.values()), cluster.gpu.name, cluster.num_nodes, cluster.gpus_per_node, cluster.profile.name)
        if key not in self._scaled:
            self._scaled[key] = replace(cluster, profile=scaled_profile(cluster.profile, scales))
        return self._scaled[key]

    def tokens_per_s(self, case: Case, scales: Scales) -> float:
        """Tokens/s/GPU."""
        cluster = self._cluster(case.cluster, scales)
        return project_performance(case.arch, case.config, cluster, gemm_backend=self._backend).tokens_per_s_per_gpu

    def loss(self, samples: Sequence[Sample], scales: Scales) -> float:
        """Mean |log(predicted / measured)|."""
        return mean(abs(log(self.tokens_per_s(sample.case, scales) / sample.measured)) for sample in samples)

    def error(self, samples: Sequence[Sample], scales: Scales) -> float:
        """Mean |predicted / measured - 1|."""
        return mean(abs(self.tokens_per_s(sample.case, scales) / sample.measured - 1) for sample in samples)


def fit(predictor: _Predictor, samples: Sequence[Sample]) -> Scales:
    """Scales of least loss by coordinates: each is multiplied and divided by ever smaller steps while that helps."""
    scales = dict.fromkeys(SCALES, 1.0)
    best = predictor.loss(samples, scales)
    for step in _STEPS:
        for name in SCALES:
            for factor in (step, 1 / step):
                while _LOWEST <= scales[name] * factor <= _HIGHEST:
                    trial = {**scales, name: scales[name] * factor}
                    loss = predictor.loss(samples, trial)
                    if loss >= best:
                        break
                    scales, best = trial, loss
    return scales


def collect(rows: Sequence[Row], suites: Sequence[str], backend: GemmBackend) -> list[Sample]:
    """Distinct configurations of the suites with a stated configuration (completeness A or B) that the engine prices."""
    ladders, seen, samples = Ladders(), set(), []
    predictor = _Predictor(backend)
    for row in rows:
        flags = ladders.flags(row)
        measured = row.tokens_per_s_per_gpu
        if measured is None or row.config_completeness == "C" or not set(suites) & set(row.suite):
            continue
        try:
            case = resolve(row, flags)
            predictor.tokens_per_s(case, dict.fromkeys(SCALES, 1.0))
            name = find_architecture(row, row.seq or case.arch.seq_length).name or bare_name(row.model)
        except PrimusMcpError:
            continue
        key = (case.arch, case.config, row.gpu, row.n_gpus, row.framework) if row.task == "pretrain" else (row.task, row.gpu, row.n_gpus)
        if key not in seen and not case.other_part:
            seen.add(key)
            samples.append(Sample(row=row, family=family_of(name), case=case, measured=measured))
    return samples


def leave_out(rows: Sequence[Row], family: str, *, suites: Sequence[str], backend: GemmBackend = "auto") -> list[LeftOut]:
    """Scores each family that begins with `family` (`each`: every family in turn) with scales fitted to the other families of its vendor.

    Raises InputError where no row is of that family.
    """
    samples = collect(rows, suites, backend)
    families = sorted({sample.family for sample in samples})
    wanted = families if family == "each" else [name for name in families if name.startswith(family.lower())]
    if not wanted:
        raise InputError(f"no scored row is of family {family!r}", where="--leave-out", remedy=f"known: each, {', '.join(families)}")
    found, predictor, ones = [], _Predictor(backend), dict.fromkeys(SCALES, 1.0)
    for vendor in sorted({sample.case.cluster.gpu.vendor for sample in samples}):
        own = [sample for sample in samples if sample.case.cluster.gpu.vendor == vendor]
        for name in wanted:
            out, others = [s for s in own if s.family == name], [s for s in own if s.family != name]
            if not out or len(others) < MIN_ROWS:
                continue
            scales = fit(predictor, others)
            found.append(
                LeftOut(
                    family=name,
                    vendor=vendor,
                    configurations=len(out),
                    fitted_on=len(others),
                    shipped=predictor.error(out, ones),
                    refitted=predictor.error(out, scales),
                    scales=scales,
                )
            )
    return found
