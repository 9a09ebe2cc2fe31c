"""What a session asks of an evaluator."""

from __future__ import annotations

from typing import Protocol

from primus_mcp.evaluation.result import EvaluationResult, Fidelity
from primus_mcp.space.knobs import TrialConfig


class Evaluator(Protocol):
    """Prices one trial. Illegal is a value; bad input and unknown figures are exceptions of the error family."""

    @property
    def mode(self) -> str:
        """`dry`, `memory-real` or `full`."""

    @property
    def identity(self) -> str:
        """Equal text: equal trials give equal numbers (on the same engine, workload and cluster)."""

    @property
    def fidelity(self) -> Fidelity:
        """Class of the numbers."""

    @property
    def measures(self) -> bool:
        """Whether an evaluation occupies a GPU, and counts against max_benchmark_calls."""

    def key(self, trial: TrialConfig) -> str:
        """Digest of what would be priced: trials that resolve to the same configuration have the same key."""

    def evaluate(self, trial: TrialConfig) -> EvaluationResult:
        """Price it."""
