"""Where everything lives: layers per stage, process-group degrees and micro-batches, from the records alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from primus_mcp.errors import InputError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.layout import Chunk, parse_layout
from primus_mcp.inputs.training import V_SCHEDULES, TrainingConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`chunks` in model order; chunk i runs on rank `owner[i]`. dp = world / (TP PP CP) splits the batch, expert_dp = world /
    (ETP PP EP) is how often a routed expert is replicated; micro_batches = GBS / (MBS dp)."""

    chunks: tuple[Chunk, ...]
    owner: tuple[int, ...]
    pp: int
    vpp: int
    dp: int
    expert_dp: int
    micro_batches: int

    def of_rank(self, rank: int) -> tuple[Chunk, ...]:
        """The chunks of one pipeline rank, in model order (virtual stage order)."""
        return tuple(chunk for chunk, owner in zip(self.chunks, self.owner, strict=True) if owner == rank)


def _even_counts(total: int, stages: int, what: str) -> list[int]:
    if total % stages:
        raise InputError(f"{total} {what} do not divide over {stages} pipeline stages", where="pp", remedy="use a layout")
    return [total // stages] * stages


def layers_per_chunk(arch: Architecture, config: TrainingConfig) -> tuple[int, ...]:
    """Decoder layers of each of the PP * VPP chunks, in model order, when no layout string is given.

    Rules L3-L11: even split; `decoder_first/last_pipeline_num_layers` fix an end rank; `account_for_embedding/loss` count each as one
    layer and take it from the first / last chunk. Source: Megatron-LM@d3528a21 core/transformer/transformer_block.py:170-202.
    """
    pp, vpp, stages = config.pp, config.vpp, config.pp * config.vpp
    first, last = config.decoder_first_pipeline_num_layers, config.decoder_last_pipeline_num_layers
    if first is not None or last is not None:
        given = (first is not None) + (last is not None)
        rest = arch.num_layers - (first or 0) - (last or 0)
        middle = _even_counts(rest, pp - given, "remaining decoder layers") if pp > given else []
        ranks = ([first] if first is not None else []) + middle + ([last] if last is not None else [])
        if any(n % vpp for n in ranks):
            raise InputError(f"layers per rank {ranks} do not divide by VPP {vpp}", where="vpp", remedy="choose another VPP")
        return tuple(ranks[i % pp] // vpp for i in range(stages))
    embedding, loss = config.account_for_embedding_in_pipeline_split, config.account_for_loss_in_pipeline_split
    counts = _even_counts(arch.num_layers + embedding + loss, stages, "decoder layers (embedding and loss counted)" if embedding or loss else "decoder layers")
    counts[0] -= embedding
    counts[-1] -= loss
    return tuple(counts)


@lru_cache(maxsize=8192)
def place_chunks(arch: Architecture, config: TrainingConfig) -> tuple[Chunk, ...]:
    """Chunks in model order, from the layout string or the split rules."""
    if config.pipeline_layout is not None:
        chunks = parse_layout(config.pipeline_layout)
        total = sum(len(chunk.layers) for chunk in chunks)
        if total != arch.num_layers:
            raise InputError(f"has {total} decoder layers, the model has {arch.num_layers}", where="pipeline_model_parallel_layout")
        if len(chunks) != config.pp * config.vpp:
            raise InputError(
                f"has {len(chunks)} stages, PP {config.pp} x VPP {config.vpp} needs {config.pp * config.vpp}",
                where="pipeline_model_parallel_layout",
            )
        return chunks
    chunks_out: list[Chunk] = []
    counts = layers_per_chunk(arch, config)
    start = 0
    for index, count in enumerate(counts):
        end = index == len(counts) - 1
        chunks_out.append(
            Chunk(
                layers=tuple(range(start, start + count)),
                embedding=index == 0,
                mtp_layers=arch.mtp_num_layers if end else 0,
                loss=end,
            )
        )
        start += count
    return tuple(chunks_out)


def owners(config: TrainingConfig) -> tuple[int, ...]:
    """Rank of each chunk: i mod PP, or mirrored on odd virtual stages for V schedules (last stage on rank 0)."""
    pp = config.pp
    mirrored = config.schedule in V_SCHEDULES
    return tuple(
        pp - 1 - i % pp if mirrored and (i // pp) % 2 else i % pp for i in range(pp * config.vpp)
    )


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
    return Placement(
        chunks=place_chunks(arch, config),
        owner=owners(config),
        pp=config.pp,
        vpp=config.vpp,
        dp=dp,
        expert_dp=world_size // expert_parallel if arch.is_moe else dp * config.cp,
        micro_batches=config.gbs // (config.mbs * dp),
    )
