"""How far the numbers were off where they could be checked: shown beside every answer, null where nothing was checked."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from primus_mcp.evaluation.result import Fidelity
from primus_mcp.inputs.catalogue import catalogue_yaml
from primus_mcp.inputs.hardware import Vendor


class Accuracy(BaseModel):
    """Validated error of the projection. Null: not validated."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    throughput_error: float | None = Field(description="median |projected / measured - 1| of tokens/s; null: not validated")
    memory_error: float | None = Field(description="median |projected / measured - 1| of peak memory; null: not validated")
    text: str = Field(description="the same for people, one line")


NOT_VALIDATED = Accuracy(
    throughput_error=None,
    memory_error=None,
    text="not validated against measured runs: use the order of configurations, check the first one with a short run",
)


@cache
def _figures() -> Mapping[str, Any]:
    return catalogue_yaml("measured/accuracy.yaml")


def _told(what: str, vendor: Vendor, found: Mapping[str, Any]) -> str:
    blind = found["blind_mean_error"]
    left_out = f"; {blind:.1%} with the model's family left out of every fit" if blind is not None else ""
    everywhere = f"the {found['runs']} {vendor.upper()} configurations that were published in full"
    return f"{what} was off by {found['mean_error']:.1%} on average over {everywhere}{left_out}"


def _unchecked(gpu: str, vendor: Vendor, own: Mapping[str, Any]) -> Accuracy:
    others = ", ".join(own["time"]["gpus"])
    text = (
        f"no published run on {gpu} was checked; on {others} {_told('time', vendor, own['time'])}; check the first choice with a short run"
    )
    return Accuracy(throughput_error=None, memory_error=None, text=text)


def accuracy_of(fidelity: Fidelity, vendor: Vendor, gpu: str | None = None) -> Accuracy:
    """What is known of a class of numbers on GPUs of a vendor (docs/accuracy.md). A measured run states its own anchor.

    On a `gpu` that no published run was made on, errors are null and the text says so.
    """
    own = _figures()[vendor]
    memory = _told("memory", vendor, own["memory"])
    if fidelity in ("simulate", "heuristic") and gpu is not None and gpu not in own["time"]["gpus"] + own["memory"]["gpus"]:
        return _unchecked(gpu, vendor, own)
    if fidelity == "simulate":
        return Accuracy(
            throughput_error=own["time"]["median_error"],
            memory_error=own["memory"]["median_error"],
            text=f"{_told('time', vendor, own['time'])}; {memory}; check the first choice with a short run",
        )
    if fidelity == "heuristic":
        return Accuracy(throughput_error=None, memory_error=own["memory"]["median_error"], text=f"{memory}; throughput is a rule of thumb")
    if fidelity == "synthetic":
        return Accuracy(throughput_error=None, memory_error=None, text="synthetic numbers have no accuracy")
    return NOT_VALIDATED
