"""What a measured run is asked to do, and what each of its ranks answers: plain data that travels as JSON between two processes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

UnitKind = Literal["attention", "attention_core", "dense_mlp", "moe", "embedding", "head", "optimizer"]
TransferKind = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "point_to_point"]
Operator = Literal["linear", "attention", "experts"]
Family = Literal["torch", "te", "turbo", "megatron-core"]
DeviceKind = Literal["gpu", "cpu"]
Number = Literal["bf16", "fp8", "fp32"]
Kernels = dict[Operator, Family]
PROGRESS = "@progress "
"""How a line of a rank begins that is meant for whoever waits."""
EXIT_OUT_OF_MEMORY, EXIT_ORPHAN, EXIT_LATE = 70, 71, 72
"""Codes with which a rank ends itself: no memory, nobody waits any more, no time."""


class Record(BaseModel):
    """Frozen, and strict about its fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Unit(Record):
    """One part of a layer as one rank runs it. `sizes`: its local sizes in elements (tokens, heads, widths; 0 or 1 for flags)."""

    kind: UnitKind
    sizes: dict[str, int]

    @property
    def key(self) -> str:
        """Name and sizes: what may be reused between trials."""
        return f"{self.kind}:" + ",".join(f"{name}={value}" for name, value in sorted(self.sizes.items()))


class Transfer(Record):
    """One collective over the first `ranks` ranks: `elements` of the whole buffer (gathered, to be reduced, sent by a rank), which the
    projection counts as `model_bytes`. A GPU moves these bytes, the CPU the elements in fp32, as its own training would.
    """

    kind: TransferKind
    ranks: int = Field(ge=2)
    elements: int = Field(ge=1)
    model_bytes: int = Field(ge=1)

    @property
    def key(self) -> str:
        """What may be reused between trials."""
        return f"{self.kind}:ranks={self.ranks},elements={self.elements},bytes={self.model_bytes}"


class Job(Record):
    """A whole measured run. `limit_s`: each rank ends itself after it; `launcher_pid`: and when that process is gone."""

    ranks: int = Field(ge=1)
    device: DeviceKind
    number: Number
    kernels: Kernels
    units: tuple[Unit, ...]
    transfers: tuple[Transfer, ...] = ()
    threads: int = Field(default=1, ge=1, description="CPU threads of a rank on device cpu")
    warm_up: int = Field(default=3, ge=1)
    repeats: int = Field(default=10, ge=3)
    limit_s: float = Field(default=600.0, gt=0)
    launcher_pid: int = 0


class UnitTime(Record):
    """Seconds of one unit on one rank, medians. `spread`: (90% - 10%) / median.

    `saved_bytes`: what the forward pass keeps for the backward pass, weights apart. `peak_bytes`: allocated at the highest moment beyond
    weights and inputs (null on CPU, which counts nothing).
    """

    key: str
    number: Number
    forward_s: float = Field(gt=0)
    backward_s: float = Field(ge=0)
    samples: int
    spread: float
    saved_bytes: int | None = None
    peak_bytes: int | None = None


class UnitFailure(Record):
    """A unit that gave no figures, and why."""

    key: str
    text: str


class TransferTime(Record):
    """Seconds of one collective: of the slowest rank."""

    key: str
    kind: TransferKind
    ranks: int
    model_bytes: int
    time_s: float = Field(gt=0)


class DeviceMemory(Record):
    """One rank after its units and before any collective. `device_bytes`: in use by everybody; null where it cannot be asked."""

    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    reserved_bytes: int | None
    device_bytes: int | None


class Environment(Record):
    """What the figures were measured on. `gpu`: its name in the catalogue, null when unknown there."""

    device: DeviceKind
    name: str
    arch: str
    gpu: str | None
    count: int
    memory_bytes: int | None
    clock_mhz: float | None
    torch: str
    runtime: str | None = Field(description="HIP or CUDA version of the torch build")
    driver: str | None
    python: str
    host: str


class RankReport(Record):
    """What one rank measured."""

    rank: int
    environment: Environment
    kernels: Kernels
    units: tuple[UnitTime, ...]
    transfers: tuple[TransferTime, ...]
    memory: DeviceMemory
    failures: tuple[UnitFailure, ...] = ()
