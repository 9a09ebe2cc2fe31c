"""Time of every pipeline stage (chunk) for one micro-batch, with what it is made of."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.layout import Chunk
from primus_mcp.inputs.training import Recompute
from primus_mcp.projection.layers.build import decoder_layer, embedding, head, prediction_depth
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.recompute import recomputed_layers, replay_s, replayed_modules
from primus_mcp.projection.layers.record import PartCost, Piece, joined_s
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.projection.performance.measured import UNMEASURED, MeasuredParts, decoder_part

Shares = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """Seconds a micro-batch. `backward_s` = input gradient with recompute, `weight_s` = weight gradient.

    `shares` sum to forward + backward + weight. `transfers` are whole communication times by collective (replays included),
    `exposed` what of them nothing hides. `host_ratio` = CPU over GPU seconds, without replays. `once_s` runs once an iteration.
    """

    forward_s: float
    backward_s: float
    weight_s: float
    shares: Shares
    transfers: Shares
    exposed: Shares
    host_ratio: float
    once_s: float

    @property
    def total_s(self) -> float:
        """All three directions."""
        return self.forward_s + self.backward_s + self.weight_s


def _parts(
    rates: Rates, arch: Architecture, settings: LayerSettings, chunk: Chunk, measured: MeasuredParts
) -> list[tuple[PartCost, int | None]]:
    """(cost, global id of a decoder layer or None) of everything on a chunk."""
    windowed = arch.layer_windows
    known = measured.parts
    parts: list[tuple[PartCost, int | None]] = []
    for i in chunk.layers:
        kind = {"moe": arch.moe_layers[i], "windowed": windowed[i]}
        part = known.get(decoder_part(**kind)) if known and arch.layer_kind(i) == "attention" else None
        parts.append((part or decoder_layer(rates, arch, settings, **kind, kind=arch.layer_kind(i)), i))
    if chunk.embedding:
        parts.append((known.get("embedding") or embedding(rates, arch, settings), None))
    if chunk.loss:
        parts.append((known.get("head") or head(rates, arch, settings), None))
    for _ in range(chunk.mtp_layers):
        parts.extend((part, None) for part in prediction_depth(rates, arch, settings))
    return parts


def _mixed(one: Shares, other: Shares, share: float) -> Shares:
    first, second = dict(one), dict(other)
    return tuple((name, share * first.get(name, 0.0) + (1 - share) * second.get(name, 0.0)) for name in first | second)


def within_window(hiding: StageCost, waiting: StageCost) -> StageCost:
    """A chunk whose expert exchange hides beside other work, as far as there is so much of it.

    hidden = overlap min(exchange, rest): `hiding` has overlap x exchange hidden, `waiting` nothing; rest = all but the exchange.
    """
    exchange_s = dict(waiting.exposed).get("a2a", 0.0)
    rest_s = waiting.total_s - exchange_s
    if exchange_s <= rest_s:
        return hiding
    share = rest_s / exchange_s
    return StageCost(
        forward_s=share * hiding.forward_s + (1 - share) * waiting.forward_s,
        backward_s=share * hiding.backward_s + (1 - share) * waiting.backward_s,
        weight_s=share * hiding.weight_s + (1 - share) * waiting.weight_s,
        shares=_mixed(hiding.shares, waiting.shares, share),
        transfers=hiding.transfers,
        exposed=_mixed(hiding.exposed, waiting.exposed, share),
        host_ratio=hiding.host_ratio,
        once_s=hiding.once_s,
    )


class _Sums:
    """Accumulates parts of one chunk."""

    def __init__(self) -> None:
        self.forward = self.backward = self.weight = self.replay = self.stall = self.once = self.dispatch = 0.0
        self.host_forward = self.host_backward = self.host_weight = 0.0
        self.shares: defaultdict[str, float] = defaultdict(float)
        self.transfers: defaultdict[str, float] = defaultdict(float)
        self.exposed: defaultdict[str, float] = defaultdict(float)

    def add(self, part: PartCost, times: int, *, whole_replay: bool, modules: frozenset[str]) -> None:
        self.forward += times * part.forward_s
        self.backward += times * part.backward_s
        self.weight += times * part.weight_s
        self.once += times * part.once_s
        self.stall += times * part.host.stall_s
        self.dispatch += times * (part.host.forward_s + part.host.backward_s)
        self.host_forward += times * part.host.forward_s
        self.host_backward += times * part.host.backward_s
        self.host_weight += times * part.host.weight_s
        if whole_replay:
            self.replay += times * (part.forward_s + part.host.stall_s)
            self.host_backward += times * part.host.forward_s
        else:
            self.replay += times * replay_s(part, modules)
        for piece in part.pieces:
            self._add_piece(piece, times, replayed=whole_replay or piece.module in modules)

    def _add_piece(self, piece: Piece, times: int, *, replayed: bool) -> None:
        exposed = times * (piece.forward_s + piece.backward_s + piece.weight_s)
        self.shares[piece.name] += exposed
        if piece.collective is not None:
            again = times if replayed else 0
            self.transfers[piece.collective] += times * (piece.forward_total_s + piece.backward_total_s) + again * piece.forward_total_s
            self.exposed[piece.collective] += exposed + again * piece.forward_s

    def _weight_share(self) -> float:
        """W of B + W, each by its own GPU and host time: W launches little for its time, so the host holds it up less than B.

        Their sum stays what the whole backward takes: a split backward runs the same kernels, and the host runs ahead across tasks.
        """
        weight = joined_s(self.weight, self.host_weight)
        rest = joined_s(self.backward + self.replay, self.host_backward - self.host_weight)
        return weight / (weight + rest) if weight else 0.0

    def stage(self) -> StageCost:
        forward = joined_s(self.forward + self.stall, self.host_forward)
        backward = joined_s(self.backward + self.weight + self.replay, self.host_backward)
        weight = backward * self._weight_share()
        gpu = self.forward + self.backward + self.weight
        shares: dict[str, float] = dict(self.shares)
        shares["recompute"] = self.replay
        shares["host"] = forward + backward - gpu - self.replay
        return StageCost(
            forward_s=forward,
            backward_s=backward - weight,
            weight_s=weight,
            shares=tuple(shares.items()),
            transfers=tuple(self.transfers.items()),
            exposed=tuple(self.exposed.items()),
            host_ratio=self.dispatch / gpu if gpu else 0.0,
            once_s=self.once,
        )


@lru_cache(maxsize=65_536)
def stage_cost(
    rates: Rates, arch: Architecture, settings: LayerSettings, chunk: Chunk, recompute: Recompute, measured: MeasuredParts = UNMEASURED
) -> StageCost:
    """One chunk for one micro-batch: forward and backward each join GPU and host time; recompute belongs to the backward pass."""
    again, modules = recomputed_layers(recompute, chunk), replayed_modules(recompute)
    counted: Counter[tuple[int, bool]] = Counter()
    known: dict[int, PartCost] = {}
    for part, layer in _parts(rates, arch, settings, chunk, measured):
        known[id(part)] = part
        counted[id(part), layer in again] += 1
    sums = _Sums()
    for (key, whole), times in counted.items():
        sums.add(known[key], times, whole_replay=whole, modules=modules)
    return sums.stage()
