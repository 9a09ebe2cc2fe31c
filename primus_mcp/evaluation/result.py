"""EvaluationResult: what every evaluation returns, at every border (JSON, MCP, trial log). A number that was not computed is null."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from primus_mcp.projection.memory.verdict import Fit, Word, word

Source = Literal["memory_only", "simulate", "benchmark", "both"]
Fidelity = Literal["synthetic", "heuristic", "simulate", "benchmark", "primus"]
OUTSIDE_POLICY = "policy"
"""Code of the warning that searches leave out what was priced."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ResultWarning(_Record):
    """Something the numbers cannot show: `code` is stable and machine-readable, `text` is for people."""

    code: str
    text: str


class EvaluationResult(_Record):
    """One evaluated configuration. Memory in GB of 2**30 bytes, times in ms."""

    trial_id: int | None = Field(default=None, description="number of the trial in the log, from 0")
    legal: bool = Field(description="false: the trainer or the search policy refuses it; reason says why with the numbers")
    reason: str | None = Field(default=None, description="why it is illegal, or that it does not fit, with the numbers; else null")
    refused_by: list[str] = Field(default_factory=list, description="ids of the rules that refuse it; empty when legal")
    memory_per_gpu_gb: float | None = Field(default=None, description="device memory of the worst rank, which must fit")
    param_optimizer_gb: float | None = Field(default=None, description="weights, gradients and optimizer states of that rank")
    activation_gb: float | None = Field(default=None, description="saved activations and transients at the peak of that rank")
    iteration_ms: float | None = Field(default=None, description="one optimizer step; null when it does not fit or was not computed")
    tokens_per_s_per_gpu: float | None = Field(default=None, description="GBS * sequence length / iteration / GPUs: what is maximised")
    throughput_band: list[float] | None = Field(
        default=None, description="lowest and highest tokens/s/GPU that the errors of the most similar published runs allow; null: none is"
    )
    tflops_per_s_per_gpu: float | None = Field(default=None, description="model FLOPs (no recompute) per second and GPU, in TFLOP/s")
    bubble_ratio: float | None = Field(
        default=None, description="share of the pipeline step that its ranks idle, averaged over all of them; 0 at PP 1"
    )
    comm_breakdown: dict[str, float] | None = Field(default=None, description="ms of communication by collective, and their total")
    source: Source = Field(default="memory_only", description="what produced the numbers")
    resolved: dict[str, Any] | None = Field(default=None, description="the full configuration that was priced")
    settings_changed: int | None = Field(default=None, description="entries of `resolved` that are not the workload's own; null: unknown")
    fidelity: Fidelity = Field(default="simulate", description="class of the numbers; classes are never ranked together")
    backend: str | None = Field(default=None, description="GEMM backend: roofline or origami")
    profile: str | None = Field(default=None, description="dated software profile whose rates were used")
    engine_version: str = Field(description="version of the projection engine")
    mfu: float | None = Field(default=None, description="model FLOPs over dense peak of the GEMM precision")
    dp: int | None = Field(default=None, description="data-parallel size that splits the batch: world / (TP PP CP)")
    expert_dp: int | None = Field(default=None, description="replicas of a routed expert: world / (ETP PP EP)")
    micro_batches: int | None = Field(default=None, description="micro-batches of an iteration: GBS / (MBS dp)")
    comm_exposed_ms: float | None = Field(default=None, description="communication that nothing hides")
    time_breakdown: dict[str, float] | None = Field(
        default=None, description="ms by component of the busiest pipeline rank, `bubble` being its idle time alone; sums to iteration_ms"
    )
    memory_breakdown: dict[str, float] | None = Field(
        default=None, description="GB by component on the worst rank; sums to memory_per_gpu_gb"
    )
    per_rank_memory_gb: list[float] | None = Field(default=None, description="device memory of each pipeline rank")
    memory_upper_gb: float | None = Field(default=None, description="upper bound of the estimate")
    memory_at_expert_load_gb: dict[str, float] | None = Field(
        default=None,
        description="memory_per_gpu_gb if the hottest expert rank had 1.5 or 2 times the mean load; null: no experts",
    )
    fits_physically: Fit | None = Field(default=None, description="estimate and upper bound against usable HBM, margin 0")
    within_margin: bool | None = Field(default=None, description="estimate <= HBM * (1 - margin): the constraint of the search")
    confidence: str | None = Field(default=None, description="error band of the numbers and where it comes from")
    warnings: list[ResultWarning] = Field(default_factory=list)

    @property
    def verdict(self) -> Word | Literal["illegal"] | None:
        """What became of it in one word; None: its memory is not known."""
        return word(self.fits_physically, within_cap=self.within_margin) if self.legal else "illegal"
