"""Once-an-iteration traffic of data parallelism: gradients out, parameters in, and what of it is exposed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import TIME
from primus_mcp.inputs.layout import Chunk
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.adapters import Adapters, adapter_parameters
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.parameters import RankParameters, embedding_parameters, layer_shapes, rank_parameters
from primus_mcp.projection.placement import Placement
from primus_mcp.units import BF16_BYTES, FP8_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Seconds of one rank: whole transfers and what of them is exposed."""

    gradients_s: float = 0.0
    gradients_exposed_s: float = 0.0
    parameters_s: float = 0.0
    parameters_exposed_s: float = 0.0


@lru_cache(maxsize=16_384)
def trained_parameters(
    arch: Architecture, chunks: tuple[Chunk, ...], tp: int, ep: int, etp: int, adapters: Adapters | None
) -> RankParameters:
    """Elements with gradients on one pipeline rank: of `adapters` alone where given, MTP depths like layers."""
    if adapters is None:
        return rank_parameters(arch, tp, ep, etp, chunks)
    return adapter_parameters(arch, layer_shapes(arch, chunks), tp, ep, etp, adapters)


def _exposed(transfer_s: float, window_s: float) -> float:
    """max(floor t, t - usable window): buckets travel beside the last backward (first forward); the first or last one never hides."""
    return max(TIME["dp_floor"] * transfer_s, transfer_s - TIME["dp_overlap"] * window_s)


def _shared_embedding_s(rates: Rates, arch: Architecture, config: TrainingConfig, placement: Placement, world: int) -> float:
    """First and last stage sum the gradient of an embedding that both hold, tied or of MTP depths, when they are different ranks and it
    is trained. Source: NVIDIA/Megatron-LM@d3528a21 core/distributed/finalize_model_grads.py, _allreduce_word_embedding_grads.
    """
    shared = arch.tied_embeddings or arch.mtp_num_layers > 0
    if not shared or config.finetune == "lora" or placement.pp == 1 or placement.owner[0] == placement.owner[-1]:
        return 0.0
    size_bytes = float(embedding_parameters(arch, config.tp).dense_sharded * config.main_grad_bytes)
    return rates.all_reduce_s(size_bytes, 2, world // placement.pp * (placement.pp - 1))


def sharded_exchange(
    rates: Rates,
    config: TrainingConfig,
    placement: Placement,
    parameters: RankParameters,
    forward_s: float,
    backward_s: float,
) -> Exchange:
    """DDP and the distributed optimizer. `forward_s`, `backward_s`: the rank's first forward and last backward, which may hide them.

    dense over DP x CP (stride TP), experts over expert DP (stride ETP x EP). Distributed optimizer: reduce-scatter of gradients, then
    all-gather of bf16 (FP8) parameters; plain DDP: one all-reduce. The two groups share the links, so their times add.
    A split backward has no overlap whatever the flags say: gradients are synchronised behind the last W, and the trainer wants both
    flags off (AMD-AGI/Primus primuspipe/pipeline_launcher.py, zerobubble/runtime.py: no_sync over the whole step).
    """
    split = config.pp > 1 and config.splits_weight_gradient
    hides_gradients, hides_parameters = config.overlap_grad_reduce and not split, config.overlap_param_gather and not split
    dense, expert = (placement.replicas * config.cp, config.tp), (placement.expert_replicas, config.etp * config.ep)
    groups = ((parameters.dense, *dense), (parameters.expert, *expert))
    grad_bytes = config.main_grad_bytes
    if not config.use_distributed_optimizer:
        reduce_s = sum(rates.all_reduce_s(float(n * grad_bytes), size, stride) for n, size, stride in groups)
        exposed = _exposed(reduce_s, backward_s) if hides_gradients else reduce_s
        return Exchange(gradients_s=reduce_s, gradients_exposed_s=exposed)
    param_bytes = FP8_BYTES if config.fp8_param_gather and config.fp8 else BF16_BYTES
    scatter_s = sum(rates.reduce_scatter_s(float(n * grad_bytes), size, stride) for n, size, stride in groups)
    gather_s = sum(rates.all_gather_s(float(n * param_bytes), size, stride) for n, size, stride in groups)
    return Exchange(
        gradients_s=scatter_s,
        gradients_exposed_s=_exposed(scatter_s, backward_s) if hides_gradients else scatter_s,
        parameters_s=gather_s,
        parameters_exposed_s=_exposed(gather_s, forward_s) if hides_parameters else gather_s,
    )


def fsdp_exchange(
    rates: Rates,
    config: TrainingConfig,
    placement: Placement,
    parameters: RankParameters,
    layers: int,
    forward_s: float,
    backward_s: float,
) -> Exchange:
    """FSDP2: every micro-batch gathers each layer's parameters in both directions and scatters its gradients, in BF16 unless a
    mixed-precision policy says otherwise: Megatron gives none (core/distributed/torch_fully_sharded_data_parallel.py), and torch then
    reduces in the gradients' own dtype (distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce).

    Layer i + 1 is prefetched beside layer i: exposed a layer = max(floor t, t - usable compute of a layer). The floor is what a transfer
    takes from the GEMMs beside it: more on AMD, whose collectives hold compute units for dozens of channels. Without prefetch in the
    backward pass (FSDP1's BACKWARD_POST) a layer's gather queues behind the scatter of the one before, which waits for its compute:
    both are exposed (pytorch torch/distributed/fsdp/api.py, BackwardPrefetch).
    """
    size, stride = placement.replicas * config.cp, config.tp
    units = max(layers, 1)
    elements = parameters.total / units
    gather_s = rates.all_gather_s(elements * BF16_BYTES, size, stride)
    scatter_s = rates.reduce_scatter_s(elements * config.fsdp_reduce_bytes, size, stride)
    usable, floor = TIME["fsdp_overlap"] / units, TIME[f"fsdp_floor.{rates.cluster.gpu.vendor}"]
    forward_exposed = max(floor * gather_s, gather_s - usable * forward_s)
    hidden_s = usable * backward_s if config.fsdp_backward_prefetch else 0.0
    backward_exposed = max(floor * (gather_s + scatter_s), gather_s + scatter_s - hidden_s)
    share = scatter_s / (gather_s + scatter_s) if scatter_s else 0.0
    count = units * placement.streamed
    return Exchange(
        gradients_s=count * scatter_s,
        gradients_exposed_s=count * backward_exposed * share,
        parameters_s=count * 2 * gather_s,
        parameters_exposed_s=count * (forward_exposed + backward_exposed * (1 - share)),
    )


def rank_exchange(
    rates: Rates,
    arch: Architecture,
    config: TrainingConfig,
    placement: Placement,
    rank: int,
    parameters: RankParameters,
    times_s: tuple[float, float],
) -> Exchange:
    """The exchange of one pipeline rank; `times_s` = its (forward, backward) seconds of one micro-batch."""
    forward_s, backward_s = times_s
    if config.use_torch_fsdp2:
        layers = sum(len(chunk.layers) for chunk in placement.of_rank(rank))
        return fsdp_exchange(rates, config, placement, parameters, layers, forward_s, backward_s)
    exchange = sharded_exchange(rates, config, placement, parameters, forward_s, backward_s)
    shared_s = 0.0
    if rank in (placement.owner[0], placement.owner[-1]):
        shared_s = _shared_embedding_s(rates, arch, config, placement, rates.cluster.world_size)
    if not shared_s:
        return exchange
    return Exchange(
        gradients_s=exchange.gradients_s + shared_s,
        gradients_exposed_s=exchange.gradients_exposed_s + shared_s,
        parameters_s=exchange.parameters_s,
        parameters_exposed_s=exchange.parameters_exposed_s,
    )
