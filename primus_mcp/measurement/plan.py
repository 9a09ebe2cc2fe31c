"""A reduced run: what of a configuration a few GPUs of this host can measure, and what the projection carries from there.

Order: PP to 1, CP to 1 with shorter sequences, EP with its experts, TP; layers to one of each kind, with embedding and head.
A rank always runs the shapes that one rank of the target runs, so reducing a degree changes who is there to talk to, not what is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

from primus_mcp.errors import InputError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.measurement.job import Family, Kernels, Transfer, TransferKind, Unit
from primus_mcp.measurement.shapes import units_of
from primus_mcp.projection.layers.settings import LayerSettings, layer_settings
from primus_mcp.units import BF16_BYTES

MAX_TRANSFER_ELEMENTS = 1 << 28
"""A gradient exchange of any size is measured with at most this much: beyond it bandwidth is flat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedRun:
    """`ranks` processes time `units` each, and `transfers` together. `reductions` say in words what was left out, and what restores it."""

    ranks: int
    tp: int
    ep: int
    units: tuple[Unit, ...]
    transfers: tuple[Transfer, ...]
    kernels: Kernels
    reductions: tuple[str, ...]


def _largest_divisor(size: int, limit: int) -> int:
    return max(divisor for divisor in range(1, min(size, limit) + 1) if size % divisor == 0)


def wanted_kernels(config: TrainingConfig) -> Kernels:
    """The families that the target runs. The legacy grouped GEMM and sequential experts run library GEMMs, as plain torch does."""
    linear: Family = "turbo" if config.turbo_gemm else "te"
    attention: Family = "turbo" if config.turbo_attention else "te"
    experts: dict[str, Family] = {"turbo": "turbo", "te": "te", "legacy": "torch", "sequential": "torch"}
    return {"linear": linear, "attention": attention, "experts": experts[config.grouped_gemm]}


def _degrees(arch: Architecture, config: TrainingConfig, gpus: int) -> tuple[int, int, tuple[str, ...]]:
    """(TP, EP) of the reduced run and what was reduced, in words."""
    notes: list[str] = []
    if config.pp > 1:
        virtual = f", VPP {config.vpp} to 1" if config.vpp > 1 else ""
        notes.append(f"PP {config.pp} to 1{virtual}: the pipeline is simulated from the measured layers")
    if config.cp > 1:
        notes.append(f"CP {config.cp} to 1, sequences of {arch.seq_length // config.cp}: tokens a rank stay; its traffic is the model's")
    ep = _largest_divisor(config.ep, gpus) if arch.is_moe else 1
    if arch.experts is not None and ep < config.ep:
        local, kept = arch.experts.num_experts // config.ep, arch.experts.num_experts // config.ep * ep
        notes.append(f"EP {config.ep} to {ep}, experts {arch.experts.num_experts} to {kept}: {local} a rank stay; the exchange is carried")
    tp = _largest_divisor(config.tp, gpus)
    if tp < config.tp:
        notes.append(f"TP {config.tp} to {tp}: each rank runs the slice of one of {config.tp}; their collectives are carried")
    kinds = len(set(zip(arch.moe_layers, arch.layer_windows, strict=True)))
    if kinds < arch.num_layers:
        notes.append(f"{arch.num_layers} layers to {kinds}: one of each kind, with embedding and head")
    return tp, ep, tuple(notes)


def _tensor_transfers(arch: Architecture, settings: LayerSettings, tp: int) -> list[Transfer]:
    if tp == 1:
        return []
    elements = round(settings.tokens(arch)) * arch.hidden_size
    kinds: tuple[TransferKind, ...] = ("all_gather", "reduce_scatter") if settings.sequence_parallel else ("all_reduce",)
    return [Transfer(kind=kind, ranks=tp, elements=elements, model_bytes=elements * BF16_BYTES) for kind in kinds]


def _transfers(arch: Architecture, config: TrainingConfig, tp: int, ep: int, ranks: int, gradients: int) -> tuple[Transfer, ...]:
    settings = layer_settings(config)
    found = _tensor_transfers(arch, settings, tp)
    hidden = round(settings.sharded_tokens(arch)) * arch.hidden_size
    if arch.experts is not None and ep > 1:
        sent = hidden * arch.experts.top_k
        found.append(Transfer(kind="all_to_all", ranks=ep, elements=sent, model_bytes=sent * BF16_BYTES))
    if config.pp > 1 and ranks > 1:
        found.append(Transfer(kind="point_to_point", ranks=2, elements=hidden, model_bytes=hidden * BF16_BYTES))
    if gradients and ranks > 1:
        elements = max(ranks, min(gradients, MAX_TRANSFER_ELEMENTS) // ranks * ranks)
        grad_bytes = elements * (config.fsdp_reduce_bytes if config.use_torch_fsdp2 else config.main_grad_bytes)
        if config.use_distributed_optimizer or config.use_torch_fsdp2:
            found.append(Transfer(kind="reduce_scatter", ranks=ranks, elements=elements, model_bytes=grad_bytes))
            found.append(Transfer(kind="all_gather", ranks=ranks, elements=elements, model_bytes=elements * BF16_BYTES))
        else:
            found.append(Transfer(kind="all_reduce", ranks=ranks, elements=elements, model_bytes=grad_bytes))
    return tuple({transfer.key: transfer for transfer in found}.values())


def plan_reduced_run(
    arch: Architecture, config: TrainingConfig, *, gpus: int, gradients: int = 0, kernels: Kernels | None = None
) -> ReducedRun:
    """What `gpus` GPUs can measure of a configuration. `gradients`: elements whose exchange over DP the target does (0: none).

    Raises InputError for no GPU, UnsupportedFeatureError for layers that no unit runs.
    """
    if gpus < 1:
        raise InputError("no GPU to measure on", where="benchmark_gpus", remedy="set benchmark_gpus to the GPUs that may be used")
    units = units_of(arch, config)
    tp, ep, notes = _degrees(arch, config, gpus)
    ranks = max(tp, ep)
    if ranks == 1 and gpus > 1 and (config.pp > 1 or gradients):
        ranks = 2
        notes = (*notes, "2 ranks, so that traffic between GPUs can be measured")
    return ReducedRun(
        ranks=ranks,
        tp=tp,
        ep=ep,
        units=units,
        transfers=_transfers(arch, config, tp, ep, ranks, gradients),
        kernels=kernels or wanted_kernels(config),
        reductions=notes,
    )
