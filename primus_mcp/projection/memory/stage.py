"""What the memory of a pipeline rank is computed from: its chunks' profiles, its parameters and its weight matrices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from primus_mcp.inputs.architecture import LayerShape
from primus_mcp.inputs.layout import Chunk
from primus_mcp.projection.memory.activations.settings import ActivationSettings
from primus_mcp.projection.memory.chunks import chunk_profile
from primus_mcp.projection.memory.profile import Profile
from primus_mcp.projection.memory.weights import LinearWeight, layer_weights
from primus_mcp.projection.parameters import RankParameters, layer_parameters, layer_shapes, rank_parameters
from primus_mcp.units import BF16_BYTES, FP32_BYTES


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stage:
    """One pipeline rank. `linear_elements` / `expert_elements`: elements of TE linears and of the grouped GEMM.

    `chunk_gradients_bytes`: fp32 gradients that pipelined FSDP2 accumulates unsharded, a chunk; empty elsewhere. `like`: the first rank
    with the same parameters and layers, whose states it shares.

    Compared by identity, see `pipeline_stages`.
    """

    rank: int
    like: int
    profiles: tuple[Profile, ...]
    parameters: RankParameters
    has_loss: bool
    linear_elements: float
    expert_elements: float
    placeholder_bytes: float
    largest_layer_parameters: int
    layer_parameters: int
    chunk_gradients_bytes: tuple[float, ...] = ()


@lru_cache(maxsize=8192)
def pipeline_stages(settings: ActivationSettings, ep: int, chunks: tuple[Chunk, ...], owner: tuple[int, ...]) -> tuple[Stage, ...]:
    """Every rank of a placement."""
    ranks: list[list[Chunk]] = [[] for _ in range(max(owner) + 1)]
    for chunk, rank in zip(chunks, owner, strict=True):
        ranks[rank].append(chunk)
    accumulates = settings.use_torch_fsdp2 and len(ranks) > 1
    first: dict[tuple[RankParameters, frozenset[tuple[LayerShape, int]]], int] = {}
    stages = []
    for rank, held in enumerate(ranks):
        parameters, kinds = rank_parameters(settings.arch, settings.tp, ep, settings.etp, tuple(held)), layer_shapes(settings.arch, held)
        like = first.setdefault((parameters, frozenset(Counter(kinds).items())), rank)
        stages.append(_stage(settings, ep, rank, like, tuple(held), accumulates))
    return tuple(stages)


def _stage(settings: ActivationSettings, ep: int, rank: int, like: int, chunks: tuple[Chunk, ...], accumulates: bool) -> Stage:
    arch = settings.arch
    kinds = layer_shapes(arch, chunks)
    per_kind = {(moe, kind): layer_weights(arch, moe, settings.tp, ep, settings.etp, kind) for moe, kind in set(kinds)}
    weights = [weight for shape in kinds for weight in per_kind[shape]]
    sizes = {(moe, kind): layer_parameters(arch, moe, settings.tp, ep, settings.etp, kind).total for moe, kind in set(kinds)}
    return Stage(
        rank=rank,
        like=like,
        profiles=tuple(chunk_profile(settings, chunk) for chunk in chunks),
        parameters=rank_parameters(arch, settings.tp, ep, settings.etp, chunks),
        has_loss=any(chunk.loss for chunk in chunks),
        linear_elements=sum(weight.elements for weight in weights if not weight.expert),
        expert_elements=sum(weight.elements for weight in weights if weight.expert),
        placeholder_bytes=placeholder_bytes(settings, (weight for found in per_kind.values() for weight in found)),
        largest_layer_parameters=max(sizes.values(), default=0),
        layer_parameters=sum(sizes[shape] for shape in kinds),
        chunk_gradients_bytes=tuple(
            rank_parameters(arch, settings.tp, ep, settings.etp, (chunk,)).total * FP32_BYTES for chunk in chunks if accumulates
        ),
    )


def placeholder_bytes(settings: ActivationSettings, weights: Iterable[LinearWeight]) -> float:
    """TE returns a BF16 placeholder for each weight gradient that it accumulated into main_grad: one for each distinct shape, never freed.

    The grouped GEMM holds one expert's shape for each linear. Turbo linears and the legacy grouped GEMM do not accumulate in place.
    Source: TransformerEngine get_dummy_wgrad; 0.2 to 6.0 GiB on B200 runs, matched to 0.05%.
    """
    shapes = {(weight.rows, weight.columns) for weight in weights if settings.accumulates_in_place(expert=weight.expert)}
    return sum(rows * columns for rows, columns in shapes) * BF16_BYTES
