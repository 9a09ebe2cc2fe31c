"""What the time projection loses on model families that its constants have not seen.

A constant that whole runs set names their families (`fitted_on`). To score a family blind, every constant that saw it forgets its value:
it starts from the middle of its credible range (from its source, not from the runs) and is fitted to the other families of the vendor,
inside that range. Equations, and constants that runs did not set, stay as they are: the choice of equations has seen every family.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import mean

import numpy as np
import numpy.typing as npt

from primus_mcp.errors import InputError, PrimusMcpError
from primus_mcp.projection.ops.backend import GemmBackend
from primus_mcp.validation.constants import MEMORY_FILE, Fitted, audit
from primus_mcp.validation.models import bare_name, find_architecture
from primus_mcp.validation.resolve import BY_OPERATOR, Case, Ladders, resolve
from primus_mcp.validation.rows import Row
from primus_mcp.validation.trial_constants import Changes, Pricer

SUITES = ("amd-headline", "nv-headline", "legacy-bulk")
"""Suites whose runs constants were set on."""
MIN_ROWS = 3
_PROBE = 0.05
_GRID = 41
_SWEEPS = 8
_RIDGE = 0.002
"""Mean |log error| that moving a constant by e is worth: constants that the rows cannot tell apart stay in the middle."""
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One distinct configuration with its measured tokens/s/GPU."""

    row: Row
    family: str
    case: Case
    measured: float

    @property
    def vendor(self) -> str:
        """Of its GPU."""
        return self.case.cluster.gpu.vendor


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Mean |error| and bias of families that were left out: with the shipped constants, and with those that saw them refitted."""

    families: tuple[str, ...]
    vendor: str
    configurations: int
    fitted_on: int
    shipped: float
    shipped_bias: float
    refitted: float
    refitted_bias: float
    constants: tuple[tuple[str, float], ...]


def family_of(name: str) -> str:
    """A catalogue name without its sizes: llama3.1_70B -> llama3.1, qwen3_30B_A3B -> qwen3."""
    return re.split(r"[_ -]\d+(?:\.\d+)?[BbTt](?=[_ -]|$)|_\d+x", name)[0].lower()


def _name(row: Row, case: Case) -> str:
    return find_architecture(row, row.seq or case.arch.seq_length).name or bare_name(row.model)


def _states_what_ran(row: Row) -> bool:
    """Recompute alone moves a step by a third, so a row that leaves it and more open teaches nothing."""
    return row.config_completeness == "A" or (row.config_completeness == "B" and row.recompute is not None)


def collect(rows: Sequence[Row], suites: Sequence[str], backend: GemmBackend) -> list[Sample]:
    """Distinct configurations of the suites that the engine prices and that state what runs: completeness A, or B with the recompute."""
    ladders, seen, samples = Ladders(), set(), []
    pricer = Pricer(backend)
    for row in rows:
        flags = ladders.flags(row)
        measured = row.tokens_per_s_per_gpu
        if measured is None or not _states_what_ran(row) or not set(suites) & set(row.suite):
            continue
        try:
            case = resolve(row, flags)
            pricer.tokens_per_s(case)
            name = _name(row, case)
        except PrimusMcpError:
            continue
        key = (case.arch, case.config, row.gpu, row.n_gpus, row.framework) if row.task == "pretrain" else (row.task, row.gpu, row.n_gpus)
        if key not in seen and not case.other_part and case.config.recompute != BY_OPERATOR:
            seen.add(key)
            samples.append(Sample(row=row, family=family_of(name), case=case, measured=measured))
    return samples


def _errors(pricer: Pricer, samples: Sequence[Sample], changes: Changes) -> Numbers:
    """log(predicted / measured)."""
    return np.array(
        [log(speed / sample.measured) for speed, sample in zip(pricer.speeds([s.case for s in samples], changes), samples, strict=True)]
    )


class Study:
    """Sensitivities of the samples of one vendor to the constants that runs set: d log(speed) / d log(constant), by a probe each."""

    def __init__(self, samples: Sequence[Sample], backend: GemmBackend) -> None:
        self.samples, self._pricer = samples, Pricer(backend)
        self._shipped = _errors(self._pricer, samples, {})
        known: list[Fitted] = []
        columns: list[Numbers] = []
        for constant in audit().fitted:
            if constant.file == MEMORY_FILE or constant.low <= 0 < constant.high:
                continue
            up = constant.value * (1 + _PROBE)
            column = (_errors(self._pricer, samples, {(constant.file, constant.path): up}) - self._shipped) / log(1 + _PROBE)
            if np.any(column):
                known.append(constant)
                columns.append(column)
        self.constants = tuple(known)
        self._slopes = np.stack(columns, axis=1) if columns else np.zeros((len(samples), 0))

    def _fit(self, open_: Sequence[int], rows: Sequence[int]) -> Numbers:
        """log(value / shipped) of each constant: the open ones fitted, from the middle of their ranges, to rows weighted by family."""
        move = np.zeros(len(self.constants))
        lows = np.array([log(c.low / c.value) for c in self.constants])
        highs = np.array([log(c.high / c.value) for c in self.constants])
        middle = (lows + highs) / 2
        move[list(open_)] = middle[list(open_)]
        families = [self.samples[i].family for i in rows]
        weights = np.array([1 / families.count(family) for family in families])
        weights /= weights.sum()
        errors, slopes = self._shipped[list(rows)], self._slopes[list(rows)]
        for _ in range(_SWEEPS):
            for j in open_:
                rest = errors + slopes @ move - slopes[:, j] * move[j]
                grid = np.linspace(lows[j], highs[j], _GRID)
                loss = weights @ np.abs(rest[:, None] + np.outer(slopes[:, j], grid)) + _RIDGE * np.abs(grid - middle[j])
                move[j] = grid[int(np.argmin(loss))]
        return move

    def without(self, families: Sequence[str]) -> LeftOut | None:
        """Scores the families with every constant that saw one of them refitted to the others; None where too few others remain."""
        out = [i for i, sample in enumerate(self.samples) if sample.family in families]
        rows = [i for i in range(len(self.samples)) if i not in set(out)]
        if not out or len(rows) < MIN_ROWS:
            return None
        saw = [j for j, constant in enumerate(self.constants) if set(constant.families) & set(families)]
        move = self._fit(saw, rows)
        values = {(self.constants[j].file, self.constants[j].path): self.constants[j].value * exp(move[j]) for j in saw}
        fresh = np.exp(_errors(self._pricer, [self.samples[i] for i in out], values)) - 1
        shipped = np.exp(self._shipped[out]) - 1
        return LeftOut(
            families=tuple(families),
            vendor=self.samples[0].vendor,
            configurations=len(out),
            fitted_on=len(rows),
            shipped=float(np.abs(shipped).mean()),
            shipped_bias=float(shipped.mean()),
            refitted=float(np.abs(fresh).mean()),
            refitted_bias=float(fresh.mean()),
            constants=tuple((self.constants[j].name, values[self.constants[j].file, self.constants[j].path]) for j in saw),
        )


def halves(samples: Sequence[Sample]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The families dealt in turn to two halves, largest first, so that both hold about as many configurations."""
    families = sorted({s.family for s in samples}, key=lambda family: (-sum(s.family == family for s in samples), family))
    return tuple(families[0::2]), tuple(families[1::2])


def _studies(rows: Sequence[Row], suites: Sequence[str], backend: GemmBackend) -> list[Study]:
    samples = collect(rows, suites, backend)
    return [Study([s for s in samples if s.vendor == vendor], backend) for vendor in sorted({s.vendor for s in samples})]


def leave_out(rows: Sequence[Row], family: str, *, suites: Sequence[str], backend: GemmBackend = "auto") -> list[LeftOut]:
    """Scores each family that begins with `family` (`each`: every family in turn, and the two halves of the families of each vendor).

    Raises InputError where no row is of that family.
    """
    found: list[LeftOut | None] = []
    studies = _studies(rows, suites, backend)
    families = sorted({s.family for study in studies for s in study.samples})
    wanted = families if family == "each" else [name for name in families if name.startswith(family.lower())]
    if not wanted:
        raise InputError(f"no scored row is of family {family!r}", where="--leave-out", remedy=f"known: each, {', '.join(families)}")
    for study in studies:
        found += [study.without((name,)) for name in wanted]
        if family == "each":
            found += [study.without(half) for half in halves(study.samples)]
    return [item for item in found if item is not None]


def mean_of(found: Sequence[LeftOut], figure: str) -> float:
    """A figure, weighted by configurations."""
    return float(mean(getattr(item, figure) for item in found for _ in range(item.configurations)))
