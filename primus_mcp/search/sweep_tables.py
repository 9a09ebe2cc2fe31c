"""Layer costs and saved bytes of every lever combination of a block, as arrays: each distinct layer is priced once, by the engine itself.

What a stage costs is then a product of counts (layers of each kind) and these arrays; `sweep_bounds` does that for whole blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primus_mcp.inputs.architecture import Architecture, LayerKind, LayerShape
from primus_mcp.inputs.training import Recompute, TrainingConfig
from primus_mcp.projection.layers.build import decoder_layer, embedding, head, prediction_depth
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.recompute import replay_s, replayed_modules
from primus_mcp.projection.layers.record import PartCost
from primus_mcp.projection.layers.settings import LayerSettings, layer_settings
from primus_mcp.projection.memory.activations.ends import embedding_operations, head_operations, mtp_input_operations
from primus_mcp.projection.memory.activations.settings import ActivationSettings, activation_settings
from primus_mcp.projection.memory.chunks import layer_operations, layer_profile
from primus_mcp.projection.memory.outside import communicators, deepep_buffer_bytes, fragmentation, runtime
from primus_mcp.projection.memory.persistent import workspaces_bytes
from primus_mcp.projection.memory.profile import Profile, checkpointed, of_operations
from primus_mcp.projection.memory.stage import placeholder_bytes
from primus_mcp.projection.memory.weights import layer_weights

Array = NDArray[np.float64]
KindOfLayer = tuple[bool, LayerKind, bool]
"""(MoE, what it runs, windowed)."""
TIMES = ("forward", "gradient", "host_forward", "host_backward", "stall", "once", "selective", "weight", "host_weight")
SIZES = ("saved", "excess", "pinned", "selective_saved", "selective_excess", "selective_pinned", "checkpoint", "checkpoint_excess")
ENDS = ("embedding", "head", "prediction")
Loss = tuple[bool, str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Levers:
    """The lever combinations of blocks that share TP, EP, ETP and CP, as configurations with MBS 1; what depends on nothing else.

    `states`, `exchange`: (one configuration of each distinct kind, the kind of every lever) for optimizer states and for exchanges.
    `costs`: (layer settings without a loss, loss) of each distinct cost, and the cost of every lever. `memo`: what bounds remember.
    """

    configs: tuple[TrainingConfig, ...]
    states: tuple[tuple[TrainingConfig, ...], NDArray[np.intp]]
    exchange: tuple[tuple[TrainingConfig, ...], NDArray[np.intp]]
    costs: tuple[tuple[tuple[LayerSettings, Loss], ...], NDArray[np.intp]]
    overlaps: NDArray[np.bool_]
    """[gradients overlapped, gather overlapped, fully sharded], each over levers."""
    placeholder: Array
    share: Array
    outside: Array
    memo: dict[object, Array]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sizes:
    """Bytes of a micro-batch, `parts[name]`: [parts, levers] for SIZES. `excess`: how far the highest moment of the backward pass
    exceeds what is saved. `hidden`: a residual-stream tensor; `gathered`: a gathered linear input, each a lever.
    """

    parts: dict[str, Array]
    hidden: Array
    gathered: Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """Costs of levers at each micro-batch size. `times[name]`: [parts, size x levers], parts are the layer kinds, then ENDS: the column of
    a lever at `mbs[i]` is i x levers + lever. `sizes(i)` is computed when it is first asked for.
    """

    levers: Levers
    mbs: tuple[int, ...]
    kinds: tuple[KindOfLayer, ...]
    times: dict[str, Array]
    sizes: Callable[[int], Sizes]


@lru_cache(maxsize=64)
def layer_kinds(arch: Architecture) -> tuple[tuple[KindOfLayer, ...], tuple[int, ...]]:
    """(distinct kinds, kind index of every layer)."""
    windowed = arch.layer_windows
    every = [(*arch.layer_shape(layer), windowed[layer]) for layer in range(arch.num_layers)]
    kinds = tuple(dict.fromkeys(every))
    return kinds, tuple(kinds.index(kind) for kind in every)


_ANY_LOSS: dict[str, Any] = {"cross_entropy_loss_fusion": False, "cross_entropy_impl": "native"}
_LOSS = attrgetter(*_ANY_LOSS)
_STATES_BY = attrgetter(
    "use_distributed_optimizer", "use_torch_fsdp2", "main_grad_bytes", "main_param_bytes", "exp_avg_bytes", "exp_avg_sq_bytes",
    "fp8", "fp8_recipe", "fp8_param_gather", "fp8_weight_transpose_cache", "turbo_gemm", "grouped_gemm",
)  # fmt: skip
_EXCHANGED_BY = attrgetter(
    "use_distributed_optimizer", "use_torch_fsdp2", "main_grad_bytes", "main_param_bytes", "exp_avg_bytes", "exp_avg_sq_bytes",
    "fp8", "fp8_param_gather", "grouped_gemm",
)  # fmt: skip


def _time_row(parts: Sequence[PartCost], modules: frozenset[str]) -> tuple[float, ...]:
    """TIMES of parts together."""
    return (
        sum(p.forward_s for p in parts),
        sum(p.backward_s for p in parts),
        sum(p.host.forward_s for p in parts),
        sum(p.host.backward_s for p in parts),
        sum(p.host.stall_s for p in parts),
        sum(p.once_s for p in parts),
        sum(replay_s(p, modules) for p in parts),
        sum(p.weight_s for p in parts),
        sum(p.host.weight_s for p in parts),
    )


def _excess(profile: Profile) -> float:
    return profile.backward.total_bytes - profile.saved_bytes


def _layer_sizes(plain: ActivationSettings, selective: ActivationSettings, shape: LayerShape) -> tuple[float, ...]:
    """SIZES of one layer."""
    first, second = layer_profile(plain, *shape), layer_profile(selective, *shape)
    whole = checkpointed(layer_operations(plain, *shape), plain.hidden_bytes, plain.hidden_bytes)
    return (
        first.saved_bytes,
        _excess(first),
        first.pinned_bytes,
        second.saved_bytes,
        _excess(second),
        second.pinned_bytes,
        whole.saved_bytes,
        _excess(whole),
    )


def _end_sizes(settings: ActivationSettings, depths: int) -> tuple[tuple[float, ...], ...]:
    """SIZES of embedding, head and MTP inputs with their heads; they are never recomputed."""
    first, last = of_operations(embedding_operations(settings)), of_operations(head_operations(settings))
    rows = []
    for profile in (first, last):
        row = (profile.saved_bytes, _excess(profile), profile.pinned_bytes)
        rows.append((*row, *row, profile.saved_bytes, _excess(profile)))
    if not depths:
        return (*rows, (0.0,) * len(SIZES))
    depth = [of_operations(mtp_input_operations(settings)), of_operations(head_operations(settings, prefix="mtp_"))]
    saved, pinned = sum(p.saved_bytes for p in depth), sum(p.pinned_bytes for p in depth)
    return (*rows, (saved, 0.0, pinned, saved, 0.0, pinned, saved, 0.0))


def _plus_layer(row: tuple[float, ...], layer: tuple[float, ...]) -> tuple[float, ...]:
    """An MTP depth holds a layer of the last kind; its replay is left out (a lower bound)."""
    return tuple(a + b if name.endswith(("saved", "pinned")) else a for name, a, b in zip(SIZES, row, layer, strict=True))


def _distinct(
    configs: Sequence[TrainingConfig], read: Callable[[TrainingConfig], object]
) -> tuple[tuple[TrainingConfig, ...], NDArray[np.intp]]:
    """(one configuration of each distinct key, index of the key of every configuration)."""
    firsts, index = _indexed([read(config) for config in configs])
    return tuple(configs[i] for i in firsts), index


def _indexed(keys: Sequence[object]) -> tuple[list[int], NDArray[np.intp]]:
    """(position of the first of each distinct key, which distinct key each is)."""
    numbers: dict[object, int] = {}
    firsts: list[int] = []
    index = np.empty(len(keys), dtype=np.intp)
    for position, key in enumerate(keys):
        if key not in numbers:
            numbers[key] = len(firsts)
            firsts.append(position)
        index[position] = numbers[key]
    return firsts, index


def _costs(configs: Sequence[TrainingConfig]) -> tuple[tuple[tuple[LayerSettings, Loss], ...], NDArray[np.intp]]:
    settings = [(layer_settings(replace(config, **_ANY_LOSS)), _LOSS(config)) for config in configs]
    firsts, index = _indexed(settings)
    return tuple(settings[i] for i in firsts), index


def lever_set(rates: Rates, arch: Architecture, configs: Sequence[TrainingConfig]) -> Levers:
    """What the configurations have whatever their micro batch size."""
    (kinds, _), vendor = layer_kinds(arch), rates.cluster.gpu.vendor
    outside, share, placeholders = [], [], []
    for config in configs:
        context = runtime(vendor, expert_exchange=arch.is_moe and config.ep > 1)
        outside.append(deepep_buffer_bytes(arch, config) + workspaces_bytes(arch, config, vendor) + context.value_bytes)
        share.append(fragmentation(arch, config).value)
        settings = activation_settings(arch, config)
        weights = [layer_weights(arch, kind[0], config.tp, config.ep, config.etp, kind[1]) for kind in kinds]
        placeholders.append([placeholder_bytes(settings, found) for found in weights])
    flags = [(c.overlap_grad_reduce or c.use_torch_fsdp2, c.overlap_param_gather or c.use_torch_fsdp2, c.use_torch_fsdp2) for c in configs]
    return Levers(
        configs=tuple(configs),
        states=_distinct(configs, _STATES_BY),
        exchange=_distinct(configs, _EXCHANGED_BY),
        costs=_costs(configs),
        overlaps=np.array(flags).T,
        placeholder=np.array(placeholders).T,
        share=np.array(share),
        outside=np.array(outside),
        memo={},
    )


class Pricer:
    """Prices layers for one workload on one cluster. `modules`: of selective recompute."""

    def __init__(self, rates: Rates, arch: Architecture, modules: tuple[str, ...]) -> None:
        self.rates, self.arch = rates, arch
        self.kinds, of_layer = layer_kinds(arch)
        self._last_kind = of_layer[-1]
        self._selective = Recompute(granularity="selective", modules=modules)
        self._modules = replayed_modules(self._selective)

    def table(self, levers: Levers, mbs: tuple[int, ...]) -> Table:
        """The arrays of a lever set at micro-batch sizes."""
        settings, of_lever = levers.costs
        columns = []
        for size in mbs:
            layers: dict[LayerSettings, list[tuple[float, ...]]] = {}
            rows = np.array([self._time_rows(layers, replace(one, mbs=size), loss) for one, loss in settings])
            columns.append(rows[of_lever])
        times = np.concatenate(columns)
        return Table(
            levers=levers,
            mbs=mbs,
            kinds=self.kinds,
            times={name: np.ascontiguousarray(times[:, :, i].T) for i, name in enumerate(TIMES)},
            sizes=cache(lambda index: self._size_arrays(levers, mbs[index])),
        )

    def _time_rows(
        self, layers: dict[LayerSettings, list[tuple[float, ...]]], settings: LayerSettings, loss: Loss
    ) -> list[tuple[float, ...]]:
        """TIMES of every part. Layers do not depend on the loss, which only the heads run."""
        rates, arch, modules = self.rates, self.arch, self._modules
        if settings not in layers:
            layers[settings] = [
                _time_row([decoder_layer(rates, arch, settings, moe=moe, windowed=windowed, kind=kind)], modules)
                for moe, kind, windowed in self.kinds
            ]
        last = head(rates, arch, replace(settings, cross_entropy_loss_fusion=loss[0], cross_entropy_impl=loss[1]))
        depth = [*prediction_depth(rates, arch, settings)[:-1], last] if arch.mtp_num_layers else []
        ends = (_time_row([embedding(rates, arch, settings)], modules), _time_row([last], modules), _time_row(depth, modules))
        return [*layers[settings], *ends]

    def _size_arrays(self, levers: Levers, mbs: int) -> Sizes:
        records = [activation_settings(self.arch, replace(config, mbs=mbs, recompute=Recompute())) for config in levers.configs]
        firsts, of_lever = _indexed(records)
        rows = [self._size_rows(replace(levers.configs[i], mbs=mbs), records[i]) for i in firsts]
        parts = np.array([row[0] for row in rows])[of_lever]
        hidden = np.array([row[1] for row in rows])[of_lever]
        return Sizes(
            parts={name: np.ascontiguousarray(parts[:, :, i].T) for i, name in enumerate(SIZES)},
            hidden=hidden[:, 0],
            gathered=hidden[:, 1],
        )

    def _size_rows(self, config: TrainingConfig, plain: ActivationSettings) -> tuple[list[tuple[float, ...]], tuple[float, float]]:
        selective = activation_settings(self.arch, replace(config, recompute=self._selective))
        sizes = [_layer_sizes(plain, selective, kind[:2]) for kind in self.kinds]
        ends = _end_sizes(plain, self.arch.mtp_num_layers)
        if self.arch.mtp_num_layers:
            ends = (*ends[:2], _plus_layer(ends[2], sizes[self._last_kind]))
        return [*sizes, *ends], (plain.hidden_bytes, plain.gathered_bytes)


def communicator_bytes(vendor: str, count: int) -> float:
    """RCCL / NCCL buffers of `count` process groups."""
    return communicators(vendor, count).value_bytes  # type: ignore[arg-type]
