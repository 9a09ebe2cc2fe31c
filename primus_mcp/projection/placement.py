"""Where everything lives: layers per stage, process-group degrees and micro-batches, from the records alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from primus_mcp.errors import InputError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.layout import Chunk
from primus_mcp.inputs.split import layers_per_chunk as layers_per_chunk
from primus_mcp.inputs.split import place_chunks as place_chunks
from primus_mcp.inputs.training import TWO_COPY_SCHEDULES, V_SCHEDULES, TrainingConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`chunks` in model order; chunk i runs on rank `owner[i]`. dp = world / (TP PP CP) splits the batch, expert_dp = world /
    (ETP PP EP) is how often a routed expert is replicated; micro_batches = GBS / (MBS dp). `copies`: 2 where `chunks` holds the model
    twice, because every rank keeps a stage of both copies (DualPipe), and each chunk runs half of the micro-batches.
    """

    chunks: tuple[Chunk, ...]
    owner: tuple[int, ...]
    pp: int
    vpp: int
    dp: int
    expert_dp: int
    micro_batches: int
    copies: int = 1

    @property
    def streamed(self) -> int:
        """Micro-batches that each chunk runs."""
        return self.micro_batches // self.copies

    @property
    def replicas(self) -> int:
        """How often a dense parameter is held beside TP and CP: gradients are summed, and optimizer states sharded, over all of them."""
        return self.dp * self.copies

    @property
    def expert_replicas(self) -> int:
        """How often a routed expert is held."""
        return self.expert_dp * self.copies

    def of_rank(self, rank: int) -> tuple[Chunk, ...]:
        """The chunks of one pipeline rank, in model order (virtual stage order)."""
        return tuple(chunk for chunk, owner in zip(self.chunks, self.owner, strict=True) if owner == rank)

    def sends_of(self, rank: int) -> int:
        """Boundaries that a micro-batch of each chunk of a rank leaves over, forth and back; the ends of the model have one side."""
        length = len(self.chunks) // self.copies
        own = [i % length for i, owner in enumerate(self.owner) if owner == rank]
        return sum((stage > 0) + (stage + 1 < length) for stage in own)


def owners(config: TrainingConfig) -> tuple[int, ...]:
    """Rank of each chunk: i mod PP, or mirrored on odd virtual stages for V schedules (last stage on rank 0)."""
    pp = config.pp
    mirrored = config.schedule in V_SCHEDULES
    return tuple(pp - 1 - i % pp if mirrored and (i // pp) % 2 else i % pp for i in range(pp * config.vpp))


def place(arch: Architecture, config: TrainingConfig, world_size: int) -> Placement:
    """Placement of a legal configuration. Raises InputError naming the numbers when a degree does not divide."""
    model_parallel = config.tp * config.pp * config.cp
    expert_parallel = config.etp * config.pp * config.ep
    if world_size % model_parallel:
        raise InputError(f"{world_size} GPUs are not a multiple of TP*PP*CP = {model_parallel}", where="world size")
    if arch.is_moe and world_size % expert_parallel:
        raise InputError(f"{world_size} GPUs are not a multiple of ETP*PP*EP = {expert_parallel}", where="world size")
    dp = world_size // model_parallel
    if config.gbs % (config.mbs * dp):
        raise InputError(f"{config.gbs} is not a multiple of MBS {config.mbs} * DP {dp} = {config.mbs * dp}", where="gbs")
    copies = 2 if config.schedule in TWO_COPY_SCHEDULES else 1
    return Placement(
        chunks=place_chunks(arch, config) if copies == 1 else place_chunks(arch, replace(config, vpp=config.vpp // 2)) * 2,
        owner=owners(config),
        pp=config.pp,
        vpp=config.vpp,
        dp=dp,
        expert_dp=world_size // expert_parallel if arch.is_moe else dp * config.cp,
        micro_batches=config.gbs // (config.mbs * dp),
        copies=copies,
    )
