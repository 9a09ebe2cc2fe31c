"""What a sweep enumerates: the values of each group of knobs, as the knobs that a trial sets.

A configuration is one choice of every group: topology x pipeline x batch (a block), then levers, then recompute. `enable_zero_bubble` only
spells `pp_schedule` differently and `target_ep_size` changes the estimate, not the run: both stay at rest unless pinned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.axes import legal_axes
from primus_mcp.space.knobs import KNOBS, KnobValue, TrialConfig

Knobs = Mapping[str, KnobValue]
TOPOLOGY = ("tp", "pp", "ep", "expert_tensor_parallel_size", "cp")
PIPELINE = ("vpp", "pp_schedule")
BATCH = ("mbs", "gbs")
EXCHANGE = ("use_turbo_deepep", "sync_free_stage")
SHARDING = ("use_distributed_optimizer", "use_torch_fsdp2")
OVERLAP = ("overlap_grad_reduce", "overlap_param_gather")
AT_REST = ("enable_zero_bubble", "target_ep_size")
LEVER_GROUPS: tuple[tuple[str, ...], ...] = (EXCHANGE, ("fp8",), ("cross_entropy_loss_fusion",), SHARDING, OVERLAP)
"""Groups of knobs that a block's configurations differ in, apart from recompute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeChoice:
    """`granularity` None: inherited from the workload. `layers` None: not set."""

    granularity: str | None
    layers: int | None

    @property
    def knobs(self) -> dict[str, KnobValue]:
        """The knobs that it sets."""
        both = {"recompute_granularity": self.granularity, "recompute_num_layers": self.layers}
        return {name: value for name, value in both.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Every group's choices. `held` are the pinned knobs that belong to no group."""

    topologies: tuple[Knobs, ...]
    pipelines: tuple[Knobs, ...]
    batches: tuple[Knobs, ...]
    levers: tuple[tuple[Knobs, ...], ...]
    recompute: tuple[RecomputeChoice, ...]
    held: Knobs

    @property
    def size(self) -> int:
        """Configurations before any rule."""
        total = len(self.topologies) * len(self.pipelines) * len(self.batches) * len(self.recompute)
        for group in self.levers:
            total *= len(group)
        return total

    @property
    def lever_shape(self) -> tuple[int, ...]:
        """Choices a lever group."""
        return tuple(len(group) for group in self.levers)

    def lever_knobs(self, index: Sequence[int]) -> dict[str, KnobValue]:
        """The knobs of one choice of every lever group."""
        knobs: dict[str, KnobValue] = {}
        for group, position in zip(self.levers, index, strict=True):
            knobs |= group[position]
        return knobs


def trial_of(*parts: Knobs) -> TrialConfig:
    """A trial from knobs that were taken from `legal_axes`: of the right types already."""
    knobs: dict[str, KnobValue] = {}
    for part in parts:
        knobs |= part
    return TrialConfig.model_construct(_fields_set=set(knobs), **{name: knobs.get(name) for name in KNOBS})


def _group(names: Sequence[str], values: Mapping[str, tuple[KnobValue, ...]]) -> Iterator[Knobs]:
    for combination in product(*(values[name] for name in names)):
        yield {name: value for name, value in zip(names, combination, strict=True) if value is not None}


def _recompute(workload: Workload, values: Mapping[str, tuple[KnobValue, ...]]) -> tuple[RecomputeChoice, ...]:
    """none, selective, full as the workload has it, and full with every number of layers (0 layers is none)."""
    found: list[RecomputeChoice] = []
    for granularity, layers in product(values["recompute_granularity"], values["recompute_num_layers"]):
        text = None if granularity is None else str(granularity)
        number = layers if isinstance(layers, int) and layers > 0 else None
        inherits_full = text == "full" and number is None and workload.baseline.recompute.granularity != "full"
        if text in ("none", "selective"):
            number = None
        if inherits_full and len(values["recompute_num_layers"]) > 1:
            continue
        found.append(RecomputeChoice(granularity=text, layers=number))
    return tuple(dict.fromkeys(found))


def choices_of(
    workload: Workload,
    cluster: Cluster,
    *,
    axes: Mapping[str, bool],
    pins: Mapping[str, KnobValue],
    only: Iterable[str] | None = None,
) -> Choices:
    """The choices of every knob that may move. A knob whose axis is off, or that is not among `only`, is inherited; a pinned one is set."""
    legal = legal_axes(workload, cluster, axes=axes, pins=pins)
    wanted = set(KNOBS) if only is None else set(only)
    values: dict[str, tuple[KnobValue, ...]] = {}
    for name, knob in KNOBS.items():
        if name in pins:
            values[name] = (pins[name],)
            continue
        off = (knob.axis is not None and not axes.get(knob.axis, True)) or (knob.moe_only and not workload.architecture.is_moe)
        values[name] = (None,) if off or name in AT_REST or name not in wanted else legal[name]
    vpp_limit = max((value for value in legal["vpp"] if isinstance(value, int)), default=1)
    if values["vpp"] != (None,) and "vpp" not in pins:
        values["vpp"] = tuple(range(1, vpp_limit + 1))
    return Choices(
        topologies=tuple(_group(TOPOLOGY, values)),
        pipelines=tuple(_group(PIPELINE, values)),
        batches=tuple(_group(BATCH, values)),
        levers=tuple(tuple(_group(names, values)) for names in LEVER_GROUPS),
        recompute=_recompute(workload, values),
        held={name: pins[name] for name in AT_REST if name in pins},
    )
