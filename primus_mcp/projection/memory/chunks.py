"""The memory profile of one pipeline chunk: its layers, with recomputation, between the ends of the model that lie on it."""

from __future__ import annotations

from functools import lru_cache

from primus_mcp.inputs.architecture import ATTENDING, FEEDING_FORWARD, MIXING, LayerKind, LayerShape
from primus_mcp.inputs.layout import Chunk
from primus_mcp.projection.memory.activations.attention import attention_operations
from primus_mcp.projection.memory.activations.ends import embedding_operations, head_operations, mtp_input_operations
from primus_mcp.projection.memory.activations.gathered import with_gathered_layer
from primus_mcp.projection.memory.activations.mixers import mixer_operations
from primus_mcp.projection.memory.activations.mlp import dense_mlp_operations
from primus_mcp.projection.memory.activations.moe import moe_operations
from primus_mcp.projection.memory.activations.operation import Operation
from primus_mcp.projection.memory.activations.settings import ActivationSettings
from primus_mcp.projection.memory.profile import Profile, checkpointed, join, of_operations
from primus_mcp.projection.memory.recompute import (
    ALTERNATE_MATMULS,
    alternate_matmuls_bytes,
    apply_selective,
    recomputed_layers,
    recomputes_mtp,
)


@lru_cache(maxsize=8192)
def layer_operations(settings: ActivationSettings, moe: bool, kind: LayerKind = "attention") -> tuple[Operation, ...]:
    """The operations of one layer in forward order, without recomputation."""
    first: tuple[Operation, ...] = ()
    if kind in ATTENDING:
        first = attention_operations(settings)
    elif kind in MIXING:
        first = mixer_operations(settings)
    second: tuple[Operation, ...] = ()
    if kind in FEEDING_FORWARD:
        second = moe_operations(settings) if moe else dense_mlp_operations(settings)
    return with_gathered_layer(settings, (*first, *second), moe, kind)


@lru_cache(maxsize=16384)
def layer_profile(settings: ActivationSettings, moe: bool, kind: LayerKind = "attention") -> Profile:
    """One layer that is not recomputed whole, with selective recomputation applied."""
    operations = layer_operations(settings, moe, kind)
    if settings.recompute.granularity == "selective":
        if ALTERNATE_MATMULS in settings.recompute.modules:
            return checkpointed(operations, settings.hidden_bytes, alternate_matmuls_bytes(settings))
        operations = apply_selective(operations, settings.recompute.modules)
    return of_operations(operations)


@lru_cache(maxsize=16384)
def _recomputed_profile(settings: ActivationSettings, shapes: tuple[LayerShape, ...]) -> Profile:
    operations = tuple(operation for shape in shapes for operation in layer_operations(settings, *shape))
    return checkpointed(operations, settings.hidden_bytes, settings.hidden_bytes)


def _decoder_profiles(settings: ActivationSettings, layers: tuple[int, ...]) -> list[Profile]:
    """One profile a layer, or one a group of `num_layers` layers that `uniform` checkpoints together."""
    recompute, shapes = settings.recompute, tuple(settings.arch.layer_shape(layer) for layer in layers)
    if recompute.granularity == "full" and recompute.method == "uniform" and recompute.layer_ids is None:
        size = recompute.num_layers or 1
        return [_recomputed_profile(settings, shapes[start : start + size]) for start in range(0, len(shapes), size)]
    whole = recomputed_layers(recompute, layers)
    return [
        _recomputed_profile(settings, (shape,)) if again else layer_profile(settings, *shape)
        for shape, again in zip(shapes, whole, strict=True)
    ]


@lru_cache(maxsize=16384)
def chunk_profile(settings: ActivationSettings, chunk: Chunk) -> Profile:
    """One micro-batch of one chunk."""
    arch = settings.arch
    profiles = [_embedding(settings)] if chunk.embedding else []
    profiles += _decoder_profiles(settings, chunk.layers)
    for depth in range(chunk.mtp_layers):
        again = recomputes_mtp(settings.recompute, arch.num_layers + depth)
        profiles.append(of_operations(mtp_input_operations(settings)))
        shape = arch.layer_shape(arch.num_layers - 1)
        profiles.append(_recomputed_profile(settings, (shape,)) if again else layer_profile(settings, *shape))
    if chunk.loss:
        profiles += [of_operations(head_operations(settings, prefix="mtp_"))] * arch.mtp_num_layers
        profiles.append(of_operations(head_operations(settings)))
    return join(profiles)


def _embedding(settings: ActivationSettings) -> Profile:
    return of_operations(embedding_operations(settings))
