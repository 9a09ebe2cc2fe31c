"""Measured over modelled: of each unit of a layer, of each collective, of the optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.measurement.artefact import Artefact
from primus_mcp.measurement.calibration import Term, term_of
from primus_mcp.measurement.job import Transfer, Unit, UnitTime
from primus_mcp.measurement.shapes import OPTIMIZER_ELEMENTS, attention_unit, core_unit, dense_mlp_unit, end_units, moe_unit
from primus_mcp.projection.layers.build import decoder_layer, embedding, head
from primus_mcp.projection.layers.rates import Rates, Traffic
from primus_mcp.projection.layers.record import Piece
from primus_mcp.projection.layers.settings import layer_settings
from primus_mcp.projection.ops.backend import GemmBackend, gemm_model

Group = Literal["attention_core", "attention_rest", "dense_mlp", "moe", "embedding", "head"]
_CORE = frozenset({"attention_core"})
_ATTENTION = frozenset({"attention_linear", "rope", "norm", "adapters"})


@dataclass(frozen=True, slots=True)
class Factor:
    """Measured over modelled seconds of both directions; and, where it was measured, what they are made of: measured seconds of both, and
    modelled seconds by term.
    """

    forward: float
    backward: float
    measured_s: float = 0.0
    terms_s: Mapping[Term, float] = field(default_factory=dict)


def group_of(piece: Piece, *, moe: bool) -> Group:
    """The unit that a piece of a decoder layer is timed in."""
    if piece.name in _CORE:
        return "attention_core"
    if piece.name in _ATTENTION:
        return "attention_rest"
    return "moe" if moe else "dense_mlp"


def modelled_s(pieces: Iterable[Piece]) -> tuple[float, float]:
    """(forward, backward with weight gradients) of pieces without communication."""
    local = [piece for piece in pieces if piece.collective is None]
    return sum(piece.forward_s for piece in local), sum(piece.backward_s + piece.weight_s for piece in local)


def as_measured(arch: Architecture, config: TrainingConfig, number: str) -> tuple[Architecture, TrainingConfig]:
    """What a rank really ran: its own part of each sequence, in the number format of the run."""
    shorter = replace(arch, seq_length=arch.seq_length // config.cp)
    changed = replace(config, cp=1)
    return shorter, changed if number == "fp8" else replace(changed, fp8=None, fp4=False)


def _over(measured_s: tuple[float, float], pieces: Iterable[Piece]) -> Factor:
    local = [piece for piece in pieces if piece.collective is None]
    forward_s, backward_s = modelled_s(local)
    assert forward_s > 0
    terms_s: dict[Term, float] = {}
    for piece in local:
        term = term_of(piece.name)
        terms_s[term] = terms_s.get(term, 0.0) + piece.forward_s + piece.backward_s + piece.weight_s
    return Factor(measured_s[0] / forward_s, measured_s[1] / backward_s if backward_s else 1.0, sum(measured_s), terms_s)


def _times(unit: UnitTime | None) -> tuple[float, float] | None:
    return None if unit is None else (unit.forward_s, unit.backward_s)


def _rest(whole: tuple[float, float], core: tuple[float, float]) -> tuple[float, float] | None:
    """Attention without its core; None where noise makes it no time at all."""
    rest = (whole[0] - core[0], whole[1] - core[1])
    return rest if min(rest) > 0 else None


def layer_factors(
    arch: Architecture, config: TrainingConfig, artefact: Artefact, device: Cluster, backend: GemmBackend, *, moe: bool, windowed: bool
) -> dict[Group, Factor]:
    """Factors of one kind of decoder layer, of those of its units that were measured."""
    units = (
        core_unit(arch, config, windowed=windowed),
        attention_unit(arch, config, windowed=windowed),
        moe_unit(arch, config) if moe else dense_mlp_unit(arch, config),
    )
    core, whole, feed_forward = (_times(artefact.unit(unit.key)) for unit in units)
    ran_arch, ran = as_measured(arch, config, artefact.number)
    part = decoder_layer(Rates(device, gemm_model(device, backend)), ran_arch, layer_settings(ran), moe=moe, windowed=windowed)
    by_group: dict[Group, list[Piece]] = {}
    for piece in part.pieces:
        if piece.collective is None:
            by_group.setdefault(group_of(piece, moe=moe), []).append(piece)
    found: dict[Group, Factor] = {}
    if whole is not None:
        found |= _attention_factors(core, whole, by_group)
    elif core is not None:
        found["attention_core"] = _over(core, by_group["attention_core"])
    kind: Group = "moe" if moe else "dense_mlp"
    if feed_forward is not None:
        found[kind] = _over(feed_forward, by_group[kind])
    return found


def _attention_factors(
    core: tuple[float, float] | None, whole: tuple[float, float], pieces: Mapping[Group, list[Piece]]
) -> dict[Group, Factor]:
    """The core and the rest apart, or one factor for both where they cannot be told apart."""
    rest = None if core is None else _rest(whole, core)
    if core is None or rest is None:
        both = _over(whole, [*pieces["attention_core"], *pieces["attention_rest"]])
        return {"attention_core": Factor(both.forward, both.backward), "attention_rest": both}
    return {"attention_core": _over(core, pieces["attention_core"]), "attention_rest": _over(rest, pieces["attention_rest"])}


def end_factors(
    arch: Architecture, config: TrainingConfig, artefact: Artefact, device: Cluster, backend: GemmBackend
) -> dict[Group, Factor]:
    """Factors of embedding and head that were measured."""
    ran_arch, ran = as_measured(arch, config, artefact.number)
    rates, settings = Rates(device, gemm_model(device, backend)), layer_settings(ran)
    first, last = (_times(artefact.unit(unit.key)) for unit in end_units(arch, config))
    found: dict[Group, Factor] = {}
    if first is not None:
        found["embedding"] = _over(first, embedding(rates, ran_arch, settings).pieces)
    if last is not None:
        found["head"] = _over(last, head(rates, ran_arch, settings).pieces)
    return found


def transfer_factors(
    arch: Architecture, config: TrainingConfig, artefact: Artefact, transfers: Iterable[Transfer], device: Cluster, backend: GemmBackend
) -> dict[Traffic, tuple[tuple[float, float], ...]]:
    """(bytes, measured over modelled) of each collective that was measured, by ascending bytes."""
    rates = Rates(device, gemm_model(device, backend))
    found: dict[Traffic, list[tuple[float, float]]] = {}
    for transfer in transfers:
        measured = artefact.transfer(transfer.key)
        if measured is not None:
            modelled = _transfer_s(rates, arch, config, transfer)
            found.setdefault(transfer.kind, []).append((float(transfer.model_bytes), measured.time_s / modelled))
    return {kind: tuple(sorted(points)) for kind, points in found.items()}


def _transfer_s(rates: Rates, arch: Architecture, config: TrainingConfig, transfer: Transfer) -> float:
    size_bytes, ranks = float(transfer.model_bytes), transfer.ranks
    if transfer.kind == "all_gather":
        return rates.all_gather_s(size_bytes, ranks, 1)
    if transfer.kind == "reduce_scatter":
        return rates.reduce_scatter_s(size_bytes, ranks, 1)
    if transfer.kind == "all_reduce":
        return rates.all_reduce_s(size_bytes, ranks, 1)
    if transfer.kind == "point_to_point":
        return rates.point_to_point_s(size_bytes, 1, ranks)
    assert arch.experts is not None
    token_bytes = size_bytes * arch.hidden_size / transfer.elements
    tokens = transfer.elements / arch.hidden_size / arch.experts.top_k
    return rates.expert_exchange_s(arch.experts, tokens, token_bytes, ranks, 1, deepep=False, forced_balance=config.forced_balance)


def update_s_per_element(artefact: Artefact) -> float | None:
    """Seconds an element of one Adam step with fp32 states, gradient norm and bf16 copy; None where it was not measured."""
    unit = artefact.unit(Unit(kind="optimizer", sizes={"elements": OPTIMIZER_ELEMENTS}).key)
    return None if unit is None else unit.forward_s / OPTIMIZER_ELEMENTS
