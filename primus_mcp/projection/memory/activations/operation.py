"""One record per operation of the model: bytes kept for backward, and bytes that exist only while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal["embedding", "attention", "mlp", "moe", "head", "checkpoints"]
RecomputeModule = Literal["core_attn", "layernorm", "mla_up_proj", "moe_act", "mlp", "moe", "shared_experts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A tensor that autograd keeps. `producer`: the operation whose output it is, where that can be recomputed alone.
    `input_of`: checkpointed modules whose own input it is, so that recomputing them does not free it.
    """

    size_bytes: float
    producer: str = ""
    input_of: tuple[RecomputeModule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`forward_transient_bytes` / `backward_transient_bytes` are alive only while the operation runs, beside everything saved.

    `pinned_bytes`: input and output gradient that a deferred weight gradient (W) holds from B until it runs.
    `modules`: names of Megatron's recompute_modules that this operation belongs to.
    """

    name: str
    group: Group
    saved: tuple[Saved, ...] = ()
    forward_transient_bytes: float = 0.0
    backward_transient_bytes: float = 0.0
    pinned_bytes: float = 0.0
    modules: tuple[RecomputeModule, ...] = ()

    @property
    def saved_bytes(self) -> float:
        """All bytes that backward needs from this operation."""
        return sum(tensor.size_bytes for tensor in self.saved)


def kept(*sizes: float) -> tuple[Saved, ...]:
    """Saved tensors that no selective recomputation touches."""
    return tuple(Saved(size_bytes=size) for size in sizes if size)
