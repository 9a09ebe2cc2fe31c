"""A small correction fitted to measured runs: ridge regression on few physical terms, with a band from runs that the fit did not see.

measured = sum over terms of (1 + b) x modelled share. With x = shares / measured and y = 1 - sum(shares) / measured this is linear in b:
minimise |y - x b|^2 + r |b|^2. The prior b = 0 means: as modelled. Applied on request only, never silently.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, ValidationError

from primus_mcp.errors import InputError
from primus_mcp.inputs.regular_file import read_regular
from primus_mcp.measurement.artefact import MAX_BYTES, write_whole
from primus_mcp.measurement.job import Record

Source = Literal["runs", "layers", "trace"]
Term = Literal["gemm", "attention", "memory_bound", "communication", "host_and_bubble"]
TERMS: tuple[Term, ...] = ("gemm", "attention", "memory_bound", "communication", "host_and_bubble")
_GEMM = frozenset({"attention_linear", "mlp", "experts", "shared_expert", "output_layer", "mtp_projection", "router", "mixer_linear"})
_ATTENTION = frozenset({"attention_core", "mixer_core"})
_COMMUNICATION = frozenset({"tp", "cp", "a2a", "pipeline_p2p", "gradient_exchange", "parameter_exchange"})
_REST = frozenset({"host", "bubble"})
RIDGE = 0.01
"""Weight of the prior, in squared relative error: with one point whose terms are equal, most of its error stays uncorrected."""
COVERAGE = 0.9
MIN_POINTS = 3


def term_of(component: str) -> Term:
    """The physical term of a component of the time breakdown; `recompute` goes with the GEMMs that it repeats."""
    if component in _GEMM or component == "recompute":
        return "gemm"
    if component in _ATTENTION:
        return "attention"
    if component in _COMMUNICATION:
        return "communication"
    return "host_and_bubble" if component in _REST else "memory_bound"


def terms_of(breakdown_s: Mapping[str, float]) -> dict[Term, float]:
    """Seconds by term; their sum is the breakdown's."""
    sums = dict.fromkeys(TERMS, 0.0)
    for component, seconds in breakdown_s.items():
        sums[term_of(component)] += seconds
    return sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured run: its seconds an iteration, and what the projection says, by term."""

    name: str
    measured_s: float
    terms_s: Mapping[Term, float]

    @property
    def projected_s(self) -> float:
        """Without a correction."""
        return sum(self.terms_s.values())


class Calibration(Record):
    """Multipliers by term for one GPU and software profile; `names`: the runs behind them.

    Band (jackknife-minmax, which covers at least `coverage` of exchangeable runs): from the least to the largest answer of the fits that
    leave out one run each (`left_out`, in the order of TERMS), widened by `log_band`, the quantile of their errors on the run left out.
    Null with fewer than three points.
    """

    format: Literal["primus-mcp-calibration"] = "primus-mcp-calibration"
    version: Literal[1] = 1
    gpu: str
    profile: str
    engine: str
    multipliers: dict[Term, float]
    source: Source = Field(default="runs", description="whole runs; layers, which say nothing about traffic and host time; one trace")
    points: int = Field(ge=1)
    names: tuple[str, ...]
    error_before: float
    error_after: float
    coverage: float = COVERAGE
    log_band: float | None
    left_out: tuple[tuple[float, ...], ...] = ()


def _fit(points: Sequence[Point], ridge: float) -> dict[Term, float]:
    measured = np.array([point.measured_s for point in points])
    shares = np.array([[point.terms_s[term] for term in TERMS] for point in points]) / measured[:, None]
    lacking = 1.0 - shares.sum(axis=1)
    # the prior is the same for any number of points, so its weight fades as they come
    normal = shares.T @ shares + ridge * np.eye(len(TERMS))
    changes = np.linalg.solve(normal, shares.T @ lacking)
    return {term: 1.0 + float(change) for term, change in zip(TERMS, changes, strict=True)}


def corrected_s(terms_s: Mapping[Term, float], multipliers: Mapping[Term, float]) -> float:
    """Seconds with the multipliers."""
    return sum(seconds * multipliers[term] for term, seconds in terms_s.items())


def _log_error(point: Point, multipliers: Mapping[Term, float]) -> float:
    corrected = corrected_s(point.terms_s, multipliers)
    return abs(math.log(point.measured_s / corrected)) if corrected > 0 else math.inf


def _band(points: Sequence[Point], ridge: float) -> tuple[float | None, tuple[tuple[float, ...], ...]]:
    """The ceil((n + 1) coverage)-th smallest error of runs left out in turn (the largest where n is small), and the fits without them."""
    if len(points) < MIN_POINTS:
        return None, ()
    fits = [_fit([point for point in points if point is not left], ridge) for left in points]
    errors = sorted(_log_error(left, fit) for left, fit in zip(points, fits, strict=True))
    error = errors[min(len(errors), math.ceil((len(errors) + 1) * COVERAGE)) - 1]
    if not math.isfinite(error):
        return None, ()
    return error, tuple(tuple(fit[term] for term in TERMS) for fit in fits)


def calibrate(
    points: Sequence[Point], *, gpu: str, profile: str, engine: str, source: Source = "runs", ridge: float = RIDGE
) -> Calibration:
    """Fit the correction. Raises InputError where there is nothing to fit, or where the fit makes a term negative."""
    if not points:
        raise InputError("no run to calibrate from", where="--rows", remedy="give runs that this GPU and engine can be compared with")
    for point in points:
        if not math.isfinite(point.measured_s) or point.measured_s <= 0 or not point.projected_s > 0:
            raise InputError(f"run {point.name} has no positive time", where="--rows", remedy="correct it, or leave the run out")
    multipliers = _fit(points, ridge)
    negative = [term for term, value in multipliers.items() if value <= 0]
    if negative:
        problem = f"the runs would need negative time for {', '.join(negative)}: they do not fit the model"
        raise InputError(problem, where="--rows", remedy="leave out runs of other software or hardware")
    ones = dict.fromkeys(TERMS, 1.0)
    log_band, left_out = _band(points, ridge)
    return Calibration(
        gpu=gpu,
        profile=profile,
        engine=engine,
        source=source,
        multipliers=multipliers,
        points=len(points),
        names=tuple(point.name for point in points),
        error_before=float(np.median([math.expm1(_log_error(point, ones)) for point in points])),
        error_after=float(np.median([math.expm1(_log_error(point, multipliers)) for point in points])),
        log_band=log_band,
        left_out=left_out,
    )


def calibration_of_trace(
    measured_s: Mapping[Term, float], projected_s: Mapping[Term, float], *, name: str, gpu: str, profile: str, engine: str
) -> Calibration:
    """Measured over projected of each term of one traced run; 1 where either is nothing. One run supports no band. Raises InputError."""
    whole, model = sum(measured_s.values()), sum(projected_s.values())
    if not (whole > 0 and model > 0):
        raise InputError("has no time to compare", where="trace", remedy="trace whole iterations of the named configuration")
    known = {term: measured_s[term] > 0 and projected_s[term] > 0 for term in TERMS}
    multipliers = {term: measured_s[term] / projected_s[term] if known[term] else 1.0 for term in TERMS}
    return Calibration(
        gpu=gpu,
        profile=profile,
        engine=engine,
        source="trace",
        multipliers=multipliers,
        points=1,
        names=(name,),
        error_before=abs(model / whole - 1),
        error_after=abs(corrected_s(projected_s, multipliers) / whole - 1),
        log_band=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """A corrected iteration with its band (None where too few points support one)."""

    iteration_s: float
    low_s: float | None
    high_s: float | None
    text: str


def apply_calibration(breakdown_s: Mapping[str, float], calibration: Calibration) -> Corrected:
    """The corrected iteration of a projection whose breakdown is given."""
    terms_s = terms_of(breakdown_s)
    seconds = corrected_s(terms_s, calibration.multipliers)
    band = calibration.log_band
    told = f"corrected by {calibration.points} measured {calibration.source} on {calibration.gpu} ({calibration.profile})"
    if calibration.source == "layers":
        told += ", traffic and host time as modelled"
    if band is None:
        return Corrected(iteration_s=seconds, low_s=None, high_s=None, text=f"{told}: too few for a confidence band")
    answers = [corrected_s(terms_s, dict(zip(TERMS, fit, strict=True))) for fit in calibration.left_out]
    low, high = min(answers) * math.exp(-band), max(answers) * math.exp(band)
    text = (
        f"{told}: {calibration.coverage:.0%} of {calibration.source} like them within {low / seconds - 1:+.1%} to {high / seconds - 1:+.1%}"
    )
    return Corrected(iteration_s=seconds, low_s=low, high_s=high, text=text)


def save_calibration(calibration: Calibration, path: Path) -> None:
    """The whole file or the old one. Raises InputError."""
    write_whole(path, calibration.model_dump_json(indent=1))


def load_calibration(path: Path) -> Calibration:
    """A file of `calibrate --save`. Raises InputError for anything else."""
    try:
        return Calibration.model_validate_json(read_regular(path, MAX_BYTES))
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror or error}", where=str(path), remedy="name a file of `calibrate --save`"
        ) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problem = f"is no calibration: {'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
        raise InputError(problem, where=str(path), remedy="make one with `primus-mcp calibrate --save`") from None
