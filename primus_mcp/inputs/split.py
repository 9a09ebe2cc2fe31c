"""Decoder layers on each pipeline stage: the trainer's own split rules, from the records alone."""

from __future__ import annotations

from functools import lru_cache

from primus_mcp.errors import InputError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.layout import Chunk, parse_layout
from primus_mcp.inputs.training import TrainingConfig


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
        if pp < given or rest < 0 or (rest > 0) != (pp > given):
            raise InputError(
                f"{arch.num_layers} decoder layers minus first {first} and last {last} leave {rest} for {pp - given} middle stages",
                where="pp",
                remedy="change decoder_first/last_pipeline_num_layers",
            )
        middle = _even_counts(rest, pp - given, "remaining decoder layers") if pp > given else []
        ranks = ([first] if first is not None else []) + middle + ([last] if last is not None else [])
        if any(n % vpp for n in ranks):
            raise InputError(f"layers per rank {ranks} do not divide by VPP {vpp}", where="vpp", remedy="choose another VPP")
        return tuple(ranks[i % pp] // vpp for i in range(stages))
    embedding, loss = config.account_for_embedding_in_pipeline_split, config.account_for_loss_in_pipeline_split
    counts = _even_counts(
        arch.num_layers + embedding + loss, stages, "decoder layers (embedding and loss counted)" if embedding or loss else "decoder layers"
    )
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
            problem = f"has {total} decoder layers, the model has {arch.num_layers}"
            raise InputError(problem, where="pipeline_model_parallel_layout", remedy=f"write {arch.num_layers} t")
        if len(chunks) != config.pp * config.vpp:
            raise InputError(
                f"has {len(chunks)} stages, PP {config.pp} x VPP {config.vpp} needs {config.pp * config.vpp}",
                where="pipeline_model_parallel_layout",
                remedy="write as many stages, or change VPP",
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
