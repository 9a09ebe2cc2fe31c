"""Memory that the tensors do not explain: allocator fragmentation, and what lies outside torch on the device.

Known error: the AMD runtime is one fit with expert exchange (upper error 4.2 GiB) and an estimate of -2.5, +8 GiB without (no dense
run states it); fragmentation is a fit to ten MI355X runs of one model.
"""

from __future__ import annotations

from dataclasses import dataclass

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import MEMORY, Constant
from primus_mcp.inputs.hardware import Vendor
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.placement import Placement
from primus_mcp.units import BF16_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value and the upper end of what the evidence allows."""

    value_bytes: float
    high_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Slack:
    """Fragmentation as shares of what comes and goes; `reclaimable` of it is given back before an allocation fails."""

    value: float
    high: float
    reclaimable: float


def uses_side_streams(arch: Architecture, config: TrainingConfig) -> bool:
    """Whether tensors of the expert exchange are used on a second stream, whose blocks cannot be reused before its event fires.

    The shared expert overlapped with the all-to-all, or the exchange overlapped with compute of another micro-batch.
    """
    if not arch.is_moe or arch.experts is None:
        return False
    shared = config.shared_expert_overlap and arch.experts.shared_expert_ffn_hidden_size > 0 and config.dispatcher == "alltoall"
    return shared or config.overlap_moe_a2a


def _fragmentation_share(arch: Architecture, config: TrainingConfig) -> Constant:
    if config.use_torch_fsdp2:
        return MEMORY["fragmentation_fsdp2_fraction"]
    if uses_side_streams(arch, config):
        return MEMORY["fragmentation_side_streams_fraction"]
    if arch.is_moe and config.ep > 1 and config.dispatcher != "deepep":
        return MEMORY["fragmentation_library_exchange_fraction"]
    if arch.is_moe and not config.forced_balance:
        return MEMORY["fragmentation_varying_shapes_fraction"]
    return MEMORY["fragmentation_one_stream_fraction"]


def fragmentation(arch: Architecture, config: TrainingConfig) -> Slack:
    """Reserved minus allocated: a share of what comes and goes: activations and transients at the peak, gathered layers.

    What exceeds the share of one stream is cache that waits for events or for its size: near the cap torch synchronises, frees it and
    tries again (a run with an estimate of 289 of 288 GiB went through at 99.1%), at a cost in time.
    """
    share, least = _fragmentation_share(arch, config), MEMORY["fragmentation_one_stream_fraction"]
    return Slack(value=share.value, high=share.high, reclaimable=share.value - least.value)


def communicator_count(arch: Architecture, config: TrainingConfig, placement: Placement) -> int:
    """Process groups of more than one rank that a step uses, each a communicator with buffers of its own.

    world, TP, PP, CP, DP x CP, TP x PP (gradient norm); for MoE also EP, ETP x EP where ETP > 1, expert DP.
    """
    sizes = [
        config.tp * config.pp * config.cp * placement.dp,
        config.tp,
        config.pp,
        config.cp,
        placement.dp * config.cp,
        config.tp * config.pp,
    ]
    if arch.is_moe:
        sizes += [config.ep, config.etp * config.ep if config.etp > 1 else 1, placement.expert_dp]
    return sum(size > 1 for size in sizes)


def communicators(vendor: Vendor, count: int) -> Estimate:
    """The first communicator and each further one, RCCL / NCCL buffers and channels."""
    if not count:
        return Estimate(value_bytes=0.0, high_bytes=0.0)
    first, further = MEMORY[f"{vendor}_first_communicator_bytes"], MEMORY[f"{vendor}_communicator_bytes"]
    return Estimate(value_bytes=first.value + (count - 1) * further.value, high_bytes=first.high + (count - 1) * further.high)


def runtime(vendor: Vendor, *, expert_exchange: bool) -> Estimate:
    """Context, code objects, kernel scratch and whatever else no counter of torch shows; more where experts are exchanged (EP > 1).

    The two parts are one fit on expert runs: there the range of the second is that of the sum. Without exchange the first is an estimate
    with the wider range that it states.
    """
    own = MEMORY[f"{vendor}_runtime_bytes"]
    if not expert_exchange:
        return Estimate(value_bytes=own.value, high_bytes=own.high)
    more = MEMORY[f"{vendor}_expert_runtime_bytes"]
    return Estimate(value_bytes=own.value + more.value, high_bytes=own.value + more.high)


def deepep_buffer_bytes(arch: Architecture, config: TrainingConfig) -> float:
    """(num_cu / 2) channels * min(EP, 8) peers * slots * (2 h + metadata), allocated by DeepEP itself."""
    if config.dispatcher != "deepep" or config.ep == 1 or not arch.is_moe:
        return 0.0
    internode = config.ep >= MEMORY["deepep_internode_ep"].value
    slots = MEMORY["deepep_slots_per_channel_internode" if internode else "deepep_slots_per_channel"].value
    per_slot = BF16_BYTES * arch.hidden_size + MEMORY["deepep_metadata_bytes_per_slot"].value
    return config.deepep_num_cu / 2 * min(config.ep, MEMORY["deepep_peers_per_node"].value) * slots * per_slot
