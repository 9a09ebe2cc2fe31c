"""What a part of the model costs: seconds by direction on the GPU, communication apart, and the host's share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from primus_mcp.inputs.constants import TIME

Collective = Literal["tp", "cp", "a2a"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One component of a layer for one micro-batch on one rank. Seconds on the critical path of the GPU.

    `backward_s` is the input gradient, `weight_s` the weight gradient. For communication (`collective` set) the `*_s` figures are what
    nothing hides, `forward_total_s` and `backward_total_s` the whole transfer. `module` is the recompute module (Megatron's
    recompute_modules) whose replay includes the piece.
    """

    name: str
    forward_s: float = 0.0
    backward_s: float = 0.0
    weight_s: float = 0.0
    module: str | None = None
    collective: Collective | None = None
    forward_total_s: float = 0.0
    backward_total_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCost:
    """CPU seconds of one micro-batch that the GPU may hide, and idle GPU time behind host synchronisations of the forward pass.

    `weight_s` is what of `backward_s` a split backward defers with the weight gradients.
    """

    forward_s: float = 0.0
    backward_s: float = 0.0
    weight_s: float = 0.0
    stall_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCost:
    """A layer, the embedding, or the head. `once_s` runs once an iteration whatever the number of micro-batches.

    The sums are over `pieces` and hold GPU time only.
    """

    pieces: tuple[Piece, ...]
    host: HostCost
    once_s: float
    forward_s: float
    backward_s: float
    weight_s: float


def part_cost(pieces: Iterable[Piece], host: HostCost, once_s: float = 0.0) -> PartCost:
    """Sums the pieces once, so that every later use is a lookup."""
    kept = tuple(pieces)
    return PartCost(
        pieces=kept,
        host=host,
        once_s=once_s,
        forward_s=sum(p.forward_s for p in kept),
        backward_s=sum(p.backward_s for p in kept),
        weight_s=sum(p.weight_s for p in kept),
    )


def communication(collective: Collective, forward_s: float, backward_s: float, *, hidden: float = 0.0, module: str | None = None) -> Piece:
    """A transfer of which the fraction `hidden` runs beside compute."""
    return Piece(
        name=collective,
        collective=collective,
        module=module,
        forward_s=forward_s * (1 - hidden),
        backward_s=backward_s * (1 - hidden),
        forward_total_s=forward_s,
        backward_total_s=backward_s,
    )


def joined_s(gpu_s: float, host_s: float) -> float:
    """GPU and host run beside each other: (gpu^q + host^q)^(1/q), between max and sum. Source: micro-batch ladder; q is flat."""
    if host_s <= 0.0:
        return gpu_s
    norm = TIME["host_norm"]
    return float((gpu_s**norm + host_s**norm) ** (1 / norm))
