"""The target-cluster YAML as frozen records, with the fields and defaults of Primus's tuning agent."""

from __future__ import annotations

import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_serializer, field_validator

from primus_mcp.inputs.hardware_config import Number

MAX_NODES = 1_000_000
MAX_GPUS_PER_NODE = 72
MAX_USD_PER_GPU_HOUR = 100_000
DEFAULT_MARGIN = 0.10
"""Share of the memory that a search leaves free."""
Text = Annotated[str, Field(strict=True, min_length=1, max_length=4096)]
Flag = Annotated[bool, Field(strict=True)]
Limit = Annotated[int, Field(strict=True, ge=0, le=10**12)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class StatedPrice(_Record):
    """What the user pays for one GPU and hour, and since when."""

    usd_per_gpu_hour: Annotated[Number, Field(gt=0, le=MAX_USD_PER_GPU_HOUR)]
    source: Text | None = None
    date: Text | None = None

    @field_validator("source")
    @classmethod
    def _is_one_line(cls, value: str | None) -> str | None:
        if value is not None and not value.isprintable():
            raise ValueError("holds line breaks or control characters; write one line of text")
        return value

    @field_validator("date")
    @classmethod
    def _is_a_day(cls, value: str | None) -> str | None:
        try:
            return None if value is None else datetime.date.fromisoformat(value).isoformat()
        except ValueError:
            raise ValueError(f"{value!r} is no day; write for example '2026-11-01'") from None


class TargetClusterBlock(_Record):
    """Where the workload will run, and what it costs there (absent: the catalogue's dated quotes, if any)."""

    name: Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_ .+-]*$", max_length=120)] | None = None
    num_nodes: Annotated[int, Field(strict=True, ge=1, le=MAX_NODES)] = 1
    gpus_per_node: Annotated[int, Field(strict=True, ge=1, le=MAX_GPUS_PER_NODE)] = 8
    gpu_arch: Text = "mi355x"
    hardware_config: Text | None = None
    gpu_clock_mhz: Annotated[Number, Field(ge=100, le=10_000)] | None = None
    price: StatedPrice | None = None

    @field_validator("gpus_per_node")
    @classmethod
    def _is_a_real_node(cls, value: int) -> int:
        if value & (value - 1) and value != MAX_GPUS_PER_NODE:
            raise ValueError("no such node: process groups need a power of two (1, 2, 4, 8, 16, ...) or an NVL72 rack")
        return value


class BenchmarkHost(_Record):
    """GPUs of this host that a measured run may use."""

    has_gpu: Flag = False
    benchmark_gpus: Annotated[int, Field(strict=True, ge=0, le=1024)] = 0
    benchmark_arch: Text | None = None


class Budget(_Record):
    """Limits of the search. Absent: the default; 0: that stage is off; null where allowed: no limit."""

    max_proposals: Limit = 30
    max_perf_calls: Limit = 30
    max_benchmark_calls: Limit = 12
    max_rounds: Limit = 8
    max_rlm_iterations: Limit = 30
    max_llm_calls: Limit | None = None
    max_tokens: Limit | None = None
    max_usd: Annotated[Number, Field(ge=0, le=1e9)] | None = None
    max_wall_minutes: Annotated[Number, Field(ge=0, le=1e6)] | None = None


class AxisToggles(_Record):
    """An axis set to false is pinned to the workload's baseline everywhere."""

    tp: Flag = True
    pp: Flag = True
    ep: Flag = True
    cp: Flag = True
    mbs: Flag = True
    gbs: Flag = False
    vpp: Flag = True
    pp_schedule: Flag = True
    recompute: Flag = True
    overlap_grad_reduce: Flag = False


class Optimization(_Record):
    """Objective, memory cap, budget and axes. `hbm_capacity_gb` (2**30 bytes) absent: the GPU's own usable memory."""

    objective: Literal["tokens_per_s_per_gpu"] = "tokens_per_s_per_gpu"
    memory_safety_margin: Annotated[Number, Field(ge=0, lt=1)] = DEFAULT_MARGIN
    hbm_capacity_gb: Annotated[Number, Field(gt=0, le=4096)] | None = None
    budget: Budget = Budget()
    axes: AxisToggles = AxisToggles()


class LlmSettings(_Record):
    """Per-cluster overrides of the LLM. The key is a secret from the moment it is read, and is never written out."""

    model: Text | None = None
    api_key: SecretStr | None = Field(default=None, exclude=True, repr=False)
    base_url: Text | None = None
    engine: Literal["auto", "litellm"] = "auto"

    @field_serializer("api_key")
    def _never_written(self, _: SecretStr | None) -> None:
        return None


class AgentSettings(_Record):
    """How the driver runs. `patience`: rounds without an improvement of 0.5% before it stops."""

    llm: LlmSettings = LlmSettings()
    engine: Text | None = None
    prompt_extras: tuple[Text, ...] = ()
    patience: Annotated[int, Field(strict=True, ge=1, le=1000)] = 2


class ClusterFile(_Record):
    """The whole file."""

    target_cluster: TargetClusterBlock = TargetClusterBlock()
    available_for_benchmark: BenchmarkHost = BenchmarkHost()
    optimization: Optimization = Optimization()
    agent: AgentSettings = AgentSettings()
