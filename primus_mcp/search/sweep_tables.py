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
from primus_mcp.projection.memory.profile import Profile, checkpointed, of_operations
from primus_mcp.projection.memory.stage import placeholder_bytes
from primus_mcp.projection.memory.weights import layer_weights

Array = NDArray[np.float64]
KindOfLayer = tuple[bool, LayerKind, bool]
"""(MoE, what it runs, windowed)."""
TIMES = ("forward", "gradient", "host_forward", "host_backward", "stall", "once", "selective", "weight")
SIZES = ("saved", "excess", "pinned", "selective_saved", "selective_excess", "selective_pinned", "checkpoint", "checkpoint_excess")
ENDS = ("embedding", "head", "prediction")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Levers:
    """The lever combinations of blocks that share TP, EP, ETP and CP, as configurations with MBS 1; what depends on nothing else.

    `states`, `exchange`: (one configuration of each distinct kind, the kind of every lever) for optimizer states and for exchanges.
    """

    configs: tuple[TrainingConfig, ...]
    states: tuple[tuple[TrainingConfig, ...], NDArray[np.intp]]
    exchange: tuple[tuple[TrainingConfig, ...], NDArray[np.intp]]
    overlaps: NDArray[np.bool_]
    """[gradients overlapped, gather overlapped, fully sharded], each over levers."""
    placeholder: Array
    share: Array
    outside: Array


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
    """Arrays over the configurations of a block's levers. `times[name]`: [parts, levers], parts are the layer kinds, then ENDS.

    `first`: one of the configurations. `sizes` is computed when it is first asked for.
    """

    levers: Levers
    first: TrainingConfig
    kinds: tuple[KindOfLayer, ...]
    times: dict[str, Array]
    sizes: Callable[[], Sizes]


@lru_cache(maxsize=64)
def layer_kinds(arch: Architecture) -> tuple[tuple[KindOfLayer, ...], tuple[int, ...]]:
    """(distinct kinds, kind index of every layer)."""
    windowed = arch.windowed_layers or (False,) * arch.num_layers
    every = [(*arch.layer_shape(layer), windowed[layer]) for layer in range(arch.num_layers)]
    kinds = tuple(dict.fromkeys(every))
    return kinds, tuple(kinds.index(kind) for kind in every)


_PRICED_BY = attrgetter(
    "tp", "ep", "etp", "cp", "sequence_parallel", "cp_comm_type", "tp_comm_overlap", "main_grad_bytes", "gradient_accumulation_fusion",
    "fp8", "fp8_recipe", "fp8_param_gather", "fp4", "flash_attention", "fused_swiglu", "fused_rope", "turbo_gemm", "turbo_attention",
    "full_graph", "dispatcher", "sync_free_stage", "grouped_gemm", "permute_fusion", "fused_router", "fused_expert_activation",
    "shared_expert_overlap", "overlap_moe_a2a", "forced_balance", "expert_load_imbalance", "a2a_ep_size", "use_torch_fsdp2",
    "finetune", "lora_rank", "lora_targets",
)  # fmt: skip
"""Everything that the cost of a decoder layer depends on, but MBS; the loss is on the head alone."""
_ANY_LOSS: dict[str, Any] = {"cross_entropy_loss_fusion": False, "cross_entropy_impl": "native"}
_LOSS = attrgetter("cross_entropy_loss_fusion", "cross_entropy_impl")
_STATES_BY = attrgetter(
    "use_distributed_optimizer", "use_torch_fsdp2", "main_grad_bytes", "main_param_bytes", "exp_avg_bytes", "exp_avg_sq_bytes",
    "fp8", "fp8_recipe", "fp8_param_gather", "fp8_weight_transpose_cache", "turbo_gemm", "grouped_gemm",
)  # fmt: skip
_EXCHANGED_BY = attrgetter(
    "use_distributed_optimizer", "use_torch_fsdp2", "main_grad_bytes", "main_param_bytes", "exp_avg_bytes", "exp_avg_sq_bytes",
    "fp8", "fp8_param_gather",
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
    )


@lru_cache(maxsize=65_536)
def _layer_times(
    rates: Rates, arch: Architecture, settings: LayerSettings, kind: KindOfLayer, modules: frozenset[str]
) -> tuple[float, ...]:
    return _time_row([decoder_layer(rates, arch, settings, moe=kind[0], windowed=kind[2], kind=kind[1])], modules)


@lru_cache(maxsize=65_536)
def _end_times(rates: Rates, arch: Architecture, settings: LayerSettings, modules: frozenset[str]) -> tuple[tuple[float, ...], ...]:
    depth = prediction_depth(rates, arch, settings) if arch.mtp_num_layers else ()
    return (
        _time_row([embedding(rates, arch, settings)], modules),
        _time_row([head(rates, arch, settings)], modules),
        _time_row(depth, modules),
    )


def _excess(profile: Profile) -> float:
    return profile.backward.total_bytes - profile.saved_bytes


@lru_cache(maxsize=65_536)
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


@lru_cache(maxsize=65_536)
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
    keys: dict[object, int] = {}
    firsts: list[TrainingConfig] = []
    index = []
    for config in configs:
        key = read(config)
        if key not in keys:
            keys[key] = len(firsts)
            firsts.append(config)
        index.append(keys[key])
    return tuple(firsts), np.array(index, dtype=np.intp)


def lever_set(rates: Rates, arch: Architecture, configs: Sequence[TrainingConfig]) -> Levers:
    """What the configurations have whatever their micro batch size."""
    kinds, _ = layer_kinds(arch)
    outside, share, placeholders = [], [], []
    for config in configs:
        known = (
            deepep_buffer_bytes(arch, config) + runtime(rates.cluster.gpu.vendor, expert_exchange=arch.is_moe and config.ep > 1).value_bytes
        )
        outside.append(known)
        share.append(fragmentation(arch, config).value)
        settings = activation_settings(arch, config)
        weights = [layer_weights(arch, kind[0], config.tp, config.ep, config.etp, kind[1]) for kind in kinds]
        placeholders.append([placeholder_bytes(settings, found) for found in weights])
    flags = [(c.overlap_grad_reduce or c.use_torch_fsdp2, c.overlap_param_gather or c.use_torch_fsdp2, c.use_torch_fsdp2) for c in configs]
    return Levers(
        configs=tuple(configs),
        states=_distinct(configs, _STATES_BY),
        exchange=_distinct(configs, _EXCHANGED_BY),
        overlaps=np.array(flags).T,
        placeholder=np.array(placeholders).T,
        share=np.array(share),
        outside=np.array(outside),
    )


class Pricer:
    """Prices layers for one workload on one cluster and remembers each distinct one. `modules`: of selective recompute."""

    def __init__(self, rates: Rates, arch: Architecture, modules: tuple[str, ...]) -> None:
        self.rates, self.arch = rates, arch
        self.kinds, of_layer = layer_kinds(arch)
        self._last_kind = of_layer[-1]
        self._selective = Recompute(granularity="selective", modules=modules)
        self._modules = replayed_modules(self._selective)
        self._times: dict[object, list[tuple[float, ...]]] = {}
        self._sizes: dict[object, tuple[list[tuple[float, ...]], tuple[float, float]]] = {}

    def table(self, levers: Levers, mbs: int) -> Table:
        """The arrays of a lever set at a micro batch size."""
        times = np.array([self._time_rows(config, mbs) for config in levers.configs])
        return Table(
            levers=levers,
            first=replace(levers.configs[0], mbs=mbs),
            kinds=self.kinds,
            times={name: np.ascontiguousarray(times[:, :, i].T) for i, name in enumerate(TIMES)},
            sizes=cache(lambda: self._size_arrays(levers, mbs)),
        )

    def _time_rows(self, config: TrainingConfig, mbs: int) -> list[tuple[float, ...]]:
        key = (mbs, _PRICED_BY(config))
        if key not in self._times:
            settings = layer_settings(replace(config, mbs=mbs, **_ANY_LOSS))
            self._times[key] = [_layer_times(self.rates, self.arch, settings, kind, self._modules) for kind in self.kinds]
        end_key = (*key, _LOSS(config))
        if end_key not in self._times:
            settings = layer_settings(replace(config, mbs=mbs))
            self._times[end_key] = [*self._times[key], *_end_times(self.rates, self.arch, settings, self._modules)]
        return self._times[end_key]

    def _size_arrays(self, levers: Levers, mbs: int) -> Sizes:
        rows = [self._size_rows(config, mbs) for config in levers.configs]
        parts, hidden = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
        return Sizes(
            parts={name: np.ascontiguousarray(parts[:, :, i].T) for i, name in enumerate(SIZES)},
            hidden=hidden[:, 0],
            gathered=hidden[:, 1],
        )

    def _size_rows(self, config: TrainingConfig, mbs: int) -> tuple[list[tuple[float, ...]], tuple[float, float]]:
        key = (mbs, _PRICED_BY(config))
        if key not in self._sizes:
            bare = replace(config, mbs=mbs, recompute=Recompute(), **_ANY_LOSS)
            plain = activation_settings(self.arch, bare)
            selective = activation_settings(self.arch, replace(bare, recompute=self._selective))
            sizes = [_layer_sizes(plain, selective, kind[:2]) for kind in self.kinds]
            self._sizes[key] = sizes, (plain.hidden_bytes, plain.gathered_bytes)
        end_key = (*key, _LOSS(config))
        if end_key not in self._sizes:
            sizes, hidden = self._sizes[key]
            whole = activation_settings(self.arch, replace(config, mbs=mbs, recompute=Recompute()))
            ends = _end_sizes(whole, self.arch.mtp_num_layers)
            if self.arch.mtp_num_layers:
                ends = (*ends[:2], _plus_layer(ends[2], sizes[self._last_kind]))
            self._sizes[end_key] = [*sizes, *ends], hidden
        return self._sizes[end_key]


def communicator_bytes(vendor: str, count: int) -> float:
    """RCCL / NCCL buffers of `count` process groups."""
    return communicators(vendor, count).value_bytes  # type: ignore[arg-type]
