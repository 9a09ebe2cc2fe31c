"""Memory of a run of operations as one record that can be joined: what stays saved, and the highest point of F, B and W.

Joining is associative, so a layer is the join of its operations, a chunk the join of its layers, and each is built once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce

from primus_mcp.projection.memory.activations.operation import Operation

GROUPS = ("embedding", "attention", "mlp", "moe", "head", "checkpoints")
"""What saved activations are told apart by, in the order of every `saved` vector."""

Vector = tuple[float, ...]
ZERO: Vector = (0.0,) * len(GROUPS)
_INDEX = {name: index for index, name in enumerate(GROUPS)}


def add(left: Vector, right: Vector) -> Vector:
    """Element by element."""
    return tuple(a + b for a, b in zip(left, right, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A point in time inside a run: saved bytes by group, bytes pinned for deferred weight gradients, and transient bytes."""

    operation: str = ""
    saved: Vector = ZERO
    pinned_bytes: float = 0.0
    transient_bytes: float = 0.0
    total_bytes: float = 0.0

    def beside(self, saved: Vector, saved_bytes: float, pinned_bytes: float = 0.0) -> Moment:
        """The same moment while other tensors are saved or pinned."""
        return Moment(
            operation=self.operation,
            saved=add(self.saved, saved),
            pinned_bytes=self.pinned_bytes + pinned_bytes,
            transient_bytes=self.transient_bytes,
            total_bytes=self.total_bytes + saved_bytes + pinned_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """`saved`: bytes by group after F. Highest moments: `forward` of F, `backward` of D (both gradients at once), `split` of B alone,
    which leaves `pinned_bytes` for W; `weight` of W.
    """

    saved: Vector = ZERO
    saved_bytes: float = 0.0
    pinned_bytes: float = 0.0
    forward: Moment = Moment()
    backward: Moment = Moment()
    split: Moment = Moment()

    def then(self, after: Profile) -> Profile:
        """This run, then `after`. Backward goes the other way: `after` is freed before this run's backward begins."""
        return Profile(
            saved=add(self.saved, after.saved),
            saved_bytes=self.saved_bytes + after.saved_bytes,
            pinned_bytes=self.pinned_bytes + after.pinned_bytes,
            forward=highest(self.forward, after.forward, self.saved, self.saved_bytes),
            backward=highest(self.backward, after.backward, self.saved, self.saved_bytes),
            split=_highest_split(self, after),
        )


def highest(first: Moment, second: Moment, saved: Vector, saved_bytes: float) -> Moment:
    """The higher of a moment of the first run and one of the second, which happens with the first run's tensors saved."""
    if second.total_bytes + saved_bytes > first.total_bytes:
        return second.beside(saved, saved_bytes)
    return first


def _highest_split(first: Profile, after: Profile) -> Moment:
    late = after.split.total_bytes + first.saved_bytes
    early = first.split.total_bytes + after.pinned_bytes
    if late > early:
        return after.split.beside(first.saved, first.saved_bytes)
    return first.split.beside(ZERO, 0.0, after.pinned_bytes)


def of_operation(operation: Operation) -> Profile:
    """One operation alone."""
    saved_bytes = operation.saved_bytes
    index = _INDEX[operation.group]
    saved = tuple(saved_bytes if i == index else 0.0 for i in range(len(GROUPS)))

    def moment(transient: float) -> Moment:
        return Moment(operation=operation.name, saved=saved, transient_bytes=transient, total_bytes=saved_bytes + transient)

    backward = moment(operation.backward_transient_bytes)
    return Profile(
        saved=saved,
        saved_bytes=saved_bytes,
        pinned_bytes=operation.pinned_bytes,
        forward=moment(operation.forward_transient_bytes),
        backward=backward,
        split=backward,
    )


def join(profiles: Iterable[Profile]) -> Profile:
    """All runs one after the other."""
    return reduce(Profile.then, profiles, Profile())


def of_operations(operations: Iterable[Operation]) -> Profile:
    """A list of operations in forward order."""
    return join(of_operation(operation) for operation in operations)


def checkpointed(operations: tuple[Operation, ...], hidden_bytes: float, kept_bytes: float) -> Profile:
    """A run under full recomputation: F keeps its input only (or `kept_bytes` of tensors); B first runs F again, with one gradient
    of `hidden_bytes` waiting.

    While F runs under no_grad, one operation's tensors are alive at a time. The first operation saves the kept input itself, so the
    replay needs no second copy of it.
    """
    inner = of_operations(operations)
    index = _INDEX["checkpoints"]
    saved = tuple(kept_bytes if i == index else 0.0 for i in range(len(GROUPS)))
    sizes = [operation.saved_bytes + operation.forward_transient_bytes for operation in operations]
    sizes[0] -= hidden_bytes
    transient = max(sizes)
    replay = replace(
        inner.forward,
        transient_bytes=inner.forward.transient_bytes + hidden_bytes,
        total_bytes=inner.forward.total_bytes + hidden_bytes,
    )
    return Profile(
        saved=saved,
        saved_bytes=kept_bytes,
        pinned_bytes=inner.pinned_bytes,
        forward=Moment(
            operation=operations[sizes.index(transient)].name, saved=saved, transient_bytes=transient, total_bytes=kept_bytes + transient
        ),
        backward=_replayed(inner.backward, replay),
        split=_replayed(inner.split, replay),
    )


def _replayed(backward: Moment, replay: Moment) -> Moment:
    """The higher of the second forward pass and the backward pass after it."""
    peak = backward if backward.total_bytes >= replay.total_bytes else replay
    return replace(peak, operation=f"recomputed {peak.operation}")
