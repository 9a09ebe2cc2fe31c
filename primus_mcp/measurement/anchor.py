"""Anchors a projection on an artefact: measured layers replace modelled ones, the rest of the projection stays as it is.

part(target) = modelled(target) x measured / modelled(what was measured): exactly the measured time where the target runs the measured
shape on the measured device, and the model's own ratio between the two where it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import exp, log
from statistics import fmean
from typing import Literal

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.measurement.artefact import Artefact, Residual
from primus_mcp.measurement.carry import carried
from primus_mcp.measurement.device_model import CPU_ARCH, device_cluster
from primus_mcp.measurement.factors import Factor, Group, end_factors, group_of, layer_factors, transfer_factors, update_s_per_element
from primus_mcp.measurement.plan import ReducedRun, wanted_kernels
from primus_mcp.measurement.residuals import StoredResidual, stored_residual
from primus_mcp.measurement.shapes import attention_unit, core_unit, dense_mlp_unit, end_units, moe_unit
from primus_mcp.projection.layers.build import decoder_layer, embedding, head
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import HostCost, PartCost, Piece, part_cost
from primus_mcp.projection.layers.settings import layer_settings
from primus_mcp.projection.ops.backend import GemmBackend, gemm_model
from primus_mcp.projection.performance import MeasuredParts, decoder_part
from primus_mcp.projection.performance.measured import PartName
from primus_mcp.version import engine_version

AnchorKind = Literal["kernels", "reference-kernels"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """`measured` goes into `project_performance`. `factors`: by part and unit, measured over modelled. `residuals`: to be kept in the
    artefact; `stored`: in the residual files. `carried`: a factor is that of another shape.
    """

    kind: AnchorKind
    measured: MeasuredParts
    factors: Mapping[str, Mapping[Group, Factor]]
    residuals: tuple[Residual, ...]
    stored: tuple[StoredResidual, ...]
    notes: tuple[str, ...]
    carried: bool = False


def anchor_kind(arch: Architecture, config: TrainingConfig, artefact: Artefact, target: Cluster) -> AnchorKind:
    """Whether the artefact's kernels are those that the target runs; a CPU target runs plain torch."""
    if target.gpu.arch == CPU_ARCH and artefact.environment.device == "cpu":
        return "kernels"
    wanted = wanted_kernels(config)
    relevant = [operator for operator in wanted if operator != "experts" or arch.is_moe]
    same = all(artefact.kernels.get(operator) == wanted[operator] for operator in relevant)
    return "kernels" if same and artefact.environment.device == "gpu" else "reference-kernels"


def _scaled(piece: Piece, factor: Factor | None) -> Piece:
    if factor is None or piece.collective is not None:
        return piece
    return replace(
        piece,
        forward_s=piece.forward_s * factor.forward,
        backward_s=piece.backward_s * factor.backward,
        weight_s=piece.weight_s * factor.backward,
    )


def _decoder(part: PartCost, factors: Mapping[Group, Factor], *, moe: bool, host: HostCost) -> PartCost:
    pieces = [_scaled(piece, factors.get(group_of(piece, moe=moe)) if piece.collective is None else None) for piece in part.pieces]
    return part_cost(pieces, host, part.once_s)


def _geometric_mean(values: list[float]) -> float:
    return exp(fmean(log(value) for value in values))


def _relative(factor: Factor, key: str, kind: str, artefact: Artefact) -> Factor:
    """The factor over the mean of its kind in the artefact: 1 where one shape was measured, so absolute times stay the model's."""
    others = [residual for residual in artefact.residuals if residual.kind == kind and residual.key != key]
    forward = _geometric_mean([factor.forward, *(residual.forward for residual in others)])
    backward = _geometric_mean([factor.backward, *(residual.backward for residual in others if residual.backward)])
    return Factor(factor.forward / forward, factor.backward / backward)


def _layer_keys(arch: Architecture, config: TrainingConfig, *, moe: bool, windowed: bool) -> dict[Group, str]:
    kind: Group = "moe" if moe else "dense_mlp"
    return {
        "attention_core": core_unit(arch, config, windowed=windowed).key,
        "attention_rest": attention_unit(arch, config, windowed=windowed).key,
        kind: (moe_unit(arch, config) if moe else dense_mlp_unit(arch, config)).key,
    }


def _end_keys(arch: Architecture, config: TrainingConfig) -> dict[Group, str]:
    first, last = end_units(arch, config)
    return {"embedding": first.key, "head": last.key}


def _residuals(factors: Mapping[Group, Factor], keys: Mapping[Group, str], arch: Architecture) -> list[Residual]:
    return [
        Residual(key=keys[group], kind=group, model=arch.name, engine=engine_version(), forward=factor.forward, backward=factor.backward)
        for group, factor in factors.items()
        if factor.backward > 0
    ]


class _Builder:
    """Collects parts, factors and residuals of one configuration."""

    def __init__(
        self, arch: Architecture, config: TrainingConfig, target: Cluster, artefact: Artefact, backend: GemmBackend, *, carry: bool
    ) -> None:
        self.arch, self.config, self.artefact, self.backend, self.carry = arch, config, artefact, backend, carry
        self.kind = anchor_kind(arch, config, artefact, target)
        self.device = device_cluster(artefact)
        self.target = target
        self.rates = Rates(target, gemm_model(target, backend))
        self.parts: dict[PartName, PartCost] = {}
        self.factors: dict[str, dict[Group, Factor]] = {}
        self.residuals: list[Residual] = []
        self.stored: list[StoredResidual] = []
        self.notes: list[str] = []
        self.carried = False

    def _used(self, name: str, factors: Mapping[Group, Factor], keys: Mapping[Group, str]) -> dict[Group, Factor]:
        """What is applied to a part: factors, or their ratios across shapes; carried from other shapes where that is wanted."""
        self.residuals += _residuals(factors, keys, self.arch)
        self.stored += [
            stored_residual(self.arch, self.device, self.artefact, group, keys[group], factor, own=self.kind == "kernels")
            for group, factor in factors.items()
            if factor.measured_s
        ]
        whole = dict(factors)
        for group in keys.keys() - factors.keys():
            if self.carry and (found := carried(group, keys[group], self.artefact)) is not None:
                whole[group], source = found
                self.carried = True
                self.notes.append(f"{group} of {name} was not measured in this shape: its factor is that of {source}")
            else:
                self.notes.append(f"{group} of {name} was not measured{self._why(keys[group])}: modelled")
        if self.kind == "kernels":
            return whole
        return {group: _relative(factor, keys[group], group, self.artefact) for group, factor in whole.items()}

    def _why(self, key: str) -> str:
        return next((f" ({failure.text})" for failure in self.artefact.failures if failure.key == key), "")

    def add_layers(self) -> None:
        """Every kind of decoder layer."""
        settings = layer_settings(self.config)
        for moe, narrow in dict.fromkeys(zip(self.arch.moe_layers, self.arch.layer_windows, strict=True)):
            name = decoder_part(moe=moe, windowed=narrow)
            found = layer_factors(self.arch, self.config, self.artefact, self.device, self.backend, moe=moe, windowed=narrow)
            keys = _layer_keys(self.arch, self.config, moe=moe, windowed=narrow)
            used = self._used(f"{name} layers", found, keys)
            if not used:
                continue
            part = decoder_layer(self.rates, self.arch, settings, moe=moe, windowed=narrow)
            self.parts[name] = _decoder(part, used, moe=moe, host=self._host(part) if len(used) == len(keys) else part.host)
            self.factors[name] = used

    def _host(self, part: PartCost) -> HostCost:
        """Measured time holds launches already. Synchronisations of the token exchange do not happen in a unit: they stay modelled."""
        if self.kind == "reference-kernels":
            return part.host
        return HostCost() if self.artefact.environment.device == "cpu" else HostCost(stall_s=part.host.stall_s)

    def add_ends(self) -> None:
        """Embedding and head."""
        settings = layer_settings(self.config)
        found = end_factors(self.arch, self.config, self.artefact, self.device, self.backend)
        used = self._used("the ends", found, _end_keys(self.arch, self.config))
        ends: tuple[tuple[Literal["embedding", "head"], Callable[..., PartCost]], ...] = (("embedding", embedding), ("head", head))
        for name, made in ends:
            if name in used:
                part = made(self.rates, self.arch, settings)
                self.parts[name] = part_cost([_scaled(piece, used[name]) for piece in part.pieces], self._host(part), part.once_s)
                self.factors[name] = {name: used[name]}


def anchor_performance(
    arch: Architecture,
    config: TrainingConfig,
    target: Cluster,
    artefact: Artefact,
    plan: ReducedRun,
    *,
    backend: GemmBackend = "auto",
    carry: bool = False,
) -> Anchor:
    """What the artefact says about a configuration on a target. Raises InputError for a measured GPU that the catalogue lacks.

    Collectives are anchored only by the target's own kernels; reference kernels leave every absolute time modelled. The optimizer is
    anchored on the CPU only: the unit is torch's own, which no GPU target runs. `carry`: shapes that the artefact lacks take the factor of
    the nearest that it has.
    """
    builder = _Builder(arch, config, target, artefact, backend, carry=carry)
    traffic = {}
    update_s = None
    if builder.kind == "kernels":
        traffic = transfer_factors(arch, config, artefact, plan.transfers, builder.device, backend)
        lacking = dict.fromkeys(transfer.kind for transfer in plan.transfers if artefact.transfer(transfer.key) is None)
        builder.notes += [f"{kind.replace('_', '-')} of this size was not measured" for kind in lacking]
        builder.rates = replace(builder.rates, measured=traffic)
        update_s = update_s_per_element(artefact) if artefact.environment.device == "cpu" else None
    else:
        builder.notes.append("measured on other kernels than the target runs: absolute times stay the model's")
    builder.add_layers()
    builder.add_ends()
    return Anchor(
        kind=builder.kind,
        measured=MeasuredParts(parts=builder.parts, traffic=traffic, update_s_per_element=update_s),
        factors=builder.factors,
        residuals=tuple(builder.residuals),
        stored=tuple(builder.stored),
        notes=tuple(builder.notes),
        carried=builder.carried,
    )
