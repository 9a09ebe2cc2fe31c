"""What the published runs most like a configuration came out at: a band around its throughput, and a warning where they were far off."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from primus_mcp.evaluation.result import ResultWarning
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.catalogue import catalogue_text
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.performance.warnings import UNVALIDATED

RESIDUALS = "residuals.jsonl"
MIN_RUNS, MIN_FAMILIES = 3, 2
"""Fewer runs, or runs of one family of models, say too little of another model: the next kind of likeness is asked."""
FAR_OFF = 0.10
UNLIKE = "unlike_validated_runs"
"""Code of the warning that the most similar published runs were off by more."""
BAND_OF_ALL = "band_of_all_runs"
"""Code of the warning that the band is that of all published runs of the vendor, because none validates a part of the configuration."""
_TAILS = 0.05
_MANY = 20
_LIKENESS = (
    ("moe", "nodes", "pipeline", "latent", "adapters", "low_precision", "gpu"),
    ("moe", "nodes", "latent", "adapters", "gpu"),
    ("moe", "nodes", "adapters", "gpu"),
    ("moe", "nodes", "adapters"),
    ("moe", "nodes"),
    ("moe",),
    (),
)
"""Fields that the runs must share with the configuration, closest first; the vendor always."""


class Traits(BaseModel):
    """What decides which published runs a configuration is like."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    vendor: str
    gpu: str
    moe: bool
    nodes: bool = Field(description="several nodes")
    pipeline: bool = Field(description="several pipeline stages")
    latent: bool = Field(description="multi-head latent attention")
    adapters: bool = Field(description="trains adapters alone")
    low_precision: bool = Field(description="FP8 or FP4")


class Residual(BaseModel):
    """One distinct published run: `error` is projected / measured - 1 of tokens/s/GPU."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    family: str
    traits: Traits
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """`low`, `high`: factors on the projected throughput that the errors of the nearest runs allow; they include 1."""

    low: float
    high: float
    runs: int
    mean_error: float
    text: str


def traits_of(arch: Architecture, config: TrainingConfig, cluster: Cluster) -> Traits:
    """Of a configuration, published or asked for."""
    return _traits(
        cluster.gpu.vendor,
        cluster.gpu.name,
        arch.is_moe,
        cluster.num_nodes > 1,
        config.pp > 1,
        arch.latent_attention is not None,
        config.finetune == "lora",
        config.fp8 is not None or bool(config.fp4),
    )


@lru_cache(maxsize=4096)
def _traits(vendor: str, gpu: str, moe: bool, nodes: bool, pipeline: bool, latent: bool, adapters: bool, low_precision: bool) -> Traits:
    return Traits(
        vendor=vendor, gpu=gpu, moe=moe, nodes=nodes, pipeline=pipeline, latent=latent, adapters=adapters, low_precision=low_precision
    )


@cache
def residuals() -> tuple[Residual, ...]:
    """Errors of the published runs that come with the package (catalog/measured/residuals.jsonl, written with docs/accuracy.md)."""
    return tuple(Residual.model_validate_json(line) for line in catalogue_text(f"measured/{RESIDUALS}").splitlines())


def _words(traits: Traits, shared: tuple[str, ...]) -> str:
    told = {
        "gpu": traits.gpu,
        "moe": "mixture of experts" if traits.moe else "dense",
        "nodes": "several nodes" if traits.nodes else "one node",
        "pipeline": "pipelined" if traits.pipeline else "no pipeline",
        "latent": "latent attention" if traits.latent else None,
        "adapters": "adapters" if traits.adapters else None,
        "low_precision": "FP8" if traits.low_precision else "BF16",
    }
    found = [told[name] for name in ("gpu", *(name for name in shared if name != "gpu")) if name in shared and told[name]]
    return ", ".join(str(word) for word in found) or traits.vendor.upper()


def _ends(errors: list[float]) -> tuple[float, float]:
    """Smallest and largest error; of many runs without their outer 5%."""
    ordered = sorted(errors)
    cut = int(_TAILS * len(ordered)) if len(ordered) >= _MANY else 0
    return ordered[cut], ordered[-1 - cut]


@lru_cache(maxsize=4096)
def nearest(traits: Traits) -> Nearest | None:
    """The runs that share most with the configuration, at least three of two families; None: the vendor has none.

    A run that was projected e too fast would have come out at 1 / (1 + e) of its projection: the band spans those factors and 1.
    """
    own = [found for found in residuals() if found.traits.vendor == traits.vendor]
    for shared in _LIKENESS:
        like = [run for run in own if all(getattr(run.traits, name) == getattr(traits, name) for name in shared)]
        if len(like) >= MIN_RUNS and len({run.family for run in like}) >= MIN_FAMILIES:
            return _summary(traits, shared, like)
    return None


@lru_cache(maxsize=8)
def of_all(vendor: str) -> Nearest | None:
    """Every run of the vendor, none cut off: what a part that no run validates may cost. None: the vendor has none.

    Known error: the constants saw these runs; left out of the fit, a family is off by 10% on average on AMD, which lies within.
    """
    own = [found for found in residuals() if found.traits.vendor == vendor]
    errors = [run.error for run in own]
    return _nearest_of(own, min(errors), max(errors), f"all {len(own)} published {vendor.upper()} runs") if own else None


def _summary(traits: Traits, shared: tuple[str, ...], like: list[Residual]) -> Nearest:
    return _nearest_of(like, *_ends([run.error for run in like]), f"the {len(like)} published runs most like it ({_words(traits, shared)})")


def _nearest_of(runs: list[Residual], smallest: float, largest: float, name: str) -> Nearest:
    low, high = min(1.0, 1 / (1 + largest)), max(1.0, 1 / (1 + smallest))
    text = f"{name} came out at {1 / (1 + largest):.0%} to {1 / (1 + smallest):.0%} of their projection"
    return Nearest(low=low, high=high, runs=len(runs), mean_error=sum(run.error for run in runs) / len(runs), text=text)


def band_words(codes: Iterable[str]) -> str:
    """Which runs a band rests on, by the codes of the answer's warnings."""
    whose = "all published runs, as none validates a part of it" if BAND_OF_ALL in codes else "the most similar published runs"
    return f"by the errors of {whose}"


def _unvalidated(vendor: str, codes: Iterable[str], tokens_per_s_per_gpu: float) -> dict[str, Any] | None:
    """The band where the answer says that no published run validates a part of it; those codes speak of AMD runs."""
    reasons = sorted(UNVALIDATED.intersection(codes))
    found = of_all(vendor) if reasons and vendor == "amd" else None
    if found is None:
        return None
    band = [tokens_per_s_per_gpu * found.low, tokens_per_s_per_gpu * found.high]
    text = (
        f"no published run validates a part of this ({', '.join(reasons)}), so the band is the widest: {found.text}: expect {band[0]:,.0f} "
        f"to {band[1]:,.0f} tokens/s/GPU, or outside; check with a short run"
    )
    return {"throughput_band": band, "warnings": [ResultWarning(code=BAND_OF_ALL, text=text)]}


def band_fields(
    arch: Architecture, config: TrainingConfig, cluster: Cluster, tokens_per_s_per_gpu: float, codes: Iterable[str] = ()
) -> dict[str, Any]:
    """`throughput_band`, and a warning where the nearest runs were off by more than 10%. `codes`: of the answer's warnings; where one says
    that no run validates a part, no few similar runs narrow the band.
    """
    if (widest := _unvalidated(cluster.gpu.vendor, codes, tokens_per_s_per_gpu)) is not None:
        return widest
    found = nearest(traits_of(arch, config, cluster))
    if found is None:
        return {"throughput_band": None, "warnings": []}
    band = [tokens_per_s_per_gpu * found.low, tokens_per_s_per_gpu * found.high]
    if max(1 - found.low, found.high - 1) <= FAR_OFF:
        return {"throughput_band": band, "warnings": []}
    text = f"{found.text}: expect {band[0]:,.0f} to {band[1]:,.0f} tokens/s/GPU, and check the choice with a short run"
    return {"throughput_band": band, "warnings": [ResultWarning(code=UNLIKE, text=text)]}
