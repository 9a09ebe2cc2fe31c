"""What a sweep has found and what it must still look at. Both are independent of the order in which configurations come."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from primus_mcp.evaluation.rank import AT_RISK_TOLERANCE, format_order, price_order
from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.search.sweep_choices import Knobs
from primus_mcp.search.sweep_result import SweptTrial
from primus_mcp.space.knobs import TrialConfig, set_knobs
from primus_mcp.units import GIB

Index = NDArray[np.intp]
Rates = NDArray[np.float64]
Place = tuple[tuple[float, float, int], str, int, str]
"""Smaller is better: price and settings that differ from the workload, the rest but for the FP8 format (so that formats stand together),
the format in the order of preference, key."""
_FORMAT_FIELDS = ("fp8", "fp8_recipe")
TIE = 1e-9
"""Throughputs nearer than this are equal: a bound may differ from the projection in its last digits."""
SPARED = 200_000
"""Rates of configurations over the cap that are held before those that no longer matter are let go."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Limits:
    """What a configuration must reach to matter, in tokens/s/GPU: the last of the best, and the best within each memory level."""

    last: float
    levels: tuple[float, ...]

    def matter(self, rate: Rates, level: Index) -> NDArray[np.bool_]:
        """Whether bounds may be among the best, or the best of those that need no more memory than a level."""
        may: NDArray[np.bool_] = rate >= self.last * (1 - TIE)
        return may | (rate >= np.array(self.levels)[level] * (1 - TIE)) if self.levels else may

    @property
    def floor(self) -> float:
        """Below this nothing matters."""
        return min(self.last, *self.levels) * (1 - TIE) if self.levels else self.last * (1 - TIE)


def _place(key: str, result: EvaluationResult) -> Place:
    rest = {name: value for name, value in (result.resolved or {}).items() if name not in _FORMAT_FIELDS}
    return price_order(result), json.dumps(rest, sort_keys=True, default=str), format_order(result), key


@dataclass
class Found:
    """Priced configurations, each resolved one once. `levels_bytes`: memory levels under each of which the fastest is wanted, if any.
    `least_rate`: tokens/s/GPU that is asked of every one.
    """

    wanted: int
    levels_bytes: tuple[float, ...] = ()
    least_rate: float = 0.0
    by_key: dict[str, SweptTrial] = field(default_factory=dict)
    best: float = 0.0
    _spelled: dict[str, tuple[bool, bool, str]] = field(default_factory=dict)
    _places: dict[str, Place] = field(default_factory=dict)
    _fastest: list[Place] = field(default_factory=list)
    _safe: Place | None = None

    def __post_init__(self) -> None:
        """Nothing fits any level yet."""
        self._level_best = [self.least_rate] * len(self.levels_bytes)

    def add(self, key: str, trial: TrialConfig, result: EvaluationResult, *, enumerated: bool) -> None:
        """Take in a candidate. One that the enumeration names is shown as the enumeration spells it, whoever found it first; hybrid that
        scales as the workload does anyway is not spelled `delayed`.
        """
        rate = result.tokens_per_s_per_gpu
        if rate is None:
            return
        spelling = (not enumerated, trial.fp8 == "delayed", trial.model_dump_json(exclude_none=True))
        if key in self.by_key:
            if spelling < self._spelled[key]:
                self._spelled[key], self.by_key[key] = spelling, SweptTrial(trial=set_knobs(trial), result=result)
            return
        self._spelled[key], self.by_key[key] = spelling, SweptTrial(trial=set_knobs(trial), result=result)
        self.best = max(self.best, rate)
        place = self._places[key] = _place(key, result)
        self._fastest = sorted([*self._fastest, place])[: self.wanted]
        if result.fits_physically != "at_risk" and (self._safe is None or place < self._safe):
            self._safe = place
        for index, level in enumerate(self.levels_bytes):
            if (result.memory_per_gpu_gb or 0.0) * GIB <= level:
                self._level_best[index] = max(self._level_best[index], rate)

    @property
    def limits(self) -> Limits:
        """The last of the best; while those are all at risk, also the fastest safe one within the tolerance. Limits only ever rise."""
        last = -self._fastest[-1][0][0] if len(self._fastest) >= self.wanted else 0.0
        if self._fastest and self._at_risk(self._fastest[0][-1]):
            safe = -self._safe[0][0] if self._safe is not None else 0.0
            last = min(last, max(safe, self.best * (1 - AT_RISK_TOLERANCE)))
        return Limits(last=max(last, self.least_rate), levels=tuple(self._level_best))

    def _at_risk(self, key: str) -> bool:
        return self.by_key[key].result.fits_physically == "at_risk"

    def sorted(self) -> list[SweptTrial]:
        """The best, fastest first; equal speed: less memory, then nearer to the workload, then hybrid before e4m3.

        Where all are at risk, the fastest safe one within the tolerance too.
        """
        chosen = list(self._fastest)
        if chosen and self._safe is not None and all(self._at_risk(place[-1]) for place in chosen):
            chosen += [self._safe] if -self._safe[0][0] >= self.best * (1 - AT_RISK_TOLERANCE) else []
        trials = [self.by_key[place[-1]] for place in chosen]
        return [one.model_copy(update={"result": one.result.model_copy(update={"trial_id": place})}) for place, one in enumerate(trials)]

    def by_memory(self) -> list[SweptTrial]:
        """The fastest configuration under each memory level, without repeats."""
        found: dict[str, SweptTrial] = {}
        for level in self.levels_bytes:
            fitting = [key for key, one in self.by_key.items() if (one.result.memory_per_gpu_gb or 0.0) * GIB <= level]
            if fitting:
                key = min(fitting, key=self._places.__getitem__)
                found.setdefault(key, self.by_key[key])
        return list(found.values())

    @property
    def ties(self) -> int:
        """Distinct configurations as fast as the best, itself included."""
        return sum((one.result.tokens_per_s_per_gpu or 0.0) >= self.best * (1 - TIE) for one in self.by_key.values())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Configurations to look at again, as arrays: upper bound of tokens/s/GPU, memory level, which of `knobs`, flat lever, recompute."""

    knobs: tuple[Knobs, ...]
    rate: Rates
    level: Index
    block: Index
    lever: Index
    choice: Index

    def take(self, chosen: Index) -> Candidates:
        """Some of them."""
        return Candidates(
            knobs=self.knobs,
            rate=self.rate[chosen],
            level=self.level[chosen],
            block=self.block[chosen],
            lever=self.lever[chosen],
            choice=self.choice[chosen],
        )

    def __len__(self) -> int:
        """How many there are."""
        return len(self.rate)


def joined(parts: Sequence[Candidates]) -> Candidates:
    """All of them, fastest bound first, without blocks that none is in; equal bounds in the order of their knobs."""
    offsets = np.cumsum([0, *(len(part.knobs) for part in parts)])
    knobs = tuple(one for part in parts for one in part.knobs)
    none, empty = np.zeros(0, dtype=np.intp), np.zeros(0)
    rate = np.concatenate([empty, *(part.rate for part in parts)])
    block = np.concatenate([none, *(part.block + offset for part, offset in zip(parts, offsets, strict=False))])
    order = np.argsort(-rate, kind="stable")
    used, renumbered = np.unique(block, return_inverse=True)
    level, lever, choice = (np.concatenate([none, *(getattr(part, name) for part in parts)]) for name in ("level", "lever", "choice"))
    return Candidates(
        knobs=tuple(knobs[i] for i in used),
        rate=rate[order],
        level=level[order],
        block=renumbered[order],
        lever=lever[order],
        choice=choice[order],
    )


@dataclass
class Tally:
    """Counts by what is known at the end, so that they do not depend on the order of the work: bounds over the cap and priced ones are
    held as rates until no more is found.
    """

    slower: int = 0
    _over: list[Rates] = field(default_factory=list)
    _held: int = 0
    _priced: list[tuple[float, int, bool]] = field(default_factory=list)

    def over(self, rates: Rates, last: float) -> None:
        """Bounds of configurations that need more memory than the cap."""
        self._over.append(rates)
        self._held += len(rates)
        if self._held > SPARED:
            whole = np.concatenate(self._over)
            kept = whole[whole >= last * (1 - TIE)]
            self.slower += len(whole) - len(kept)
            self._over, self._held = [kept], 0

    def priced(self, rate: float, level: int, *, fits: bool) -> None:
        """One configuration that the evaluator priced, by its bound."""
        self._priced.append((rate, level, fits))

    def settle(self, limits: Limits) -> tuple[int, int, int]:
        """(slower, over the memory cap, priced), each configuration once."""
        over = np.concatenate([np.zeros(0), *self._over])
        matters = int((over >= limits.last * (1 - TIE)).sum())
        rate, level = np.array([one[0] for one in self._priced]), np.array([one[1] for one in self._priced], dtype=np.intp)
        fits = np.array([one[2] for one in self._priced], dtype=bool)
        mine = limits.matter(rate, level)
        return (
            self.slower + len(over) - matters + int((~mine).sum()),
            matters + int((mine & ~fits).sum()),
            int((mine & fits).sum()),
        )
