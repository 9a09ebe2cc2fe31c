"""What is run again in the backward pass: whole layers of a chunk, or single modules of every layer."""

from __future__ import annotations

from primus_mcp.inputs.layout import Chunk
from primus_mcp.inputs.training import Recompute
from primus_mcp.projection.layers.record import PartCost

_DEFAULT_MODULES = ("core_attn",)
_WHOLE_MOE = frozenset({"moe", "moe_act", "shared_experts"})


def recomputed_layers(recompute: Recompute, chunk: Chunk) -> frozenset[int]:
    """Global ids of the chunk's layers that run their whole forward again.

    Explicit ids: those on this chunk. block n: the first n layers of every chunk (each is its own TransformerBlock). uniform n: all
    layers, whatever n. Source: Megatron-LM transformer_block.py:551-600, Primus patches/recompute_layer_patches.py.
    """
    if recompute.granularity != "full":
        return frozenset()
    if recompute.layer_ids is not None:
        return frozenset(recompute.layer_ids) & frozenset(chunk.layers)
    if recompute.method == "block":
        return frozenset(chunk.layers[: recompute.num_layers or 0])
    return frozenset(chunk.layers)


def replayed_modules(recompute: Recompute) -> frozenset[str]:
    """Module tags that a selective recompute runs again in every layer; `moe` covers the whole MoE block with its exchange."""
    if recompute.granularity != "selective":
        return frozenset()
    chosen = frozenset(recompute.modules or _DEFAULT_MODULES)
    return chosen | _WHOLE_MOE if "moe" in chosen else chosen


def replay_s(part: PartCost, modules: frozenset[str]) -> float:
    """GPU seconds of running the modules of a layer again."""
    return sum(piece.forward_s for piece in part.pieces if piece.module in modules) if modules else 0.0
