"""How far the numbers were off where they could be checked: shown beside every answer, null while nothing was checked."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from primus_mcp.evaluation.result import Fidelity


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
TEXTS: dict[Fidelity, Accuracy] = {
    "synthetic": Accuracy(throughput_error=None, memory_error=None, text="synthetic numbers have no accuracy"),
    "heuristic": Accuracy(
        throughput_error=None, memory_error=None, text="memory: not validated against measured runs; throughput: a rule of thumb"
    ),
    "simulate": NOT_VALIDATED,
}


def accuracy_of(fidelity: Fidelity) -> Accuracy:
    """What is known of a class of numbers."""
    return TEXTS.get(fidelity, NOT_VALIDATED)
