"""Selective recomputation as a transformation of an operation list, and which layers full recomputation covers.

Two mechanisms. Output-discarding (moe_act, mla_up_proj, layernorm): the consumer keeps nothing of the module's output; it comes back
when the consumer's backward begins and goes when the module's own backward ends. Checkpointed (mlp, moe, shared_experts, core_attn):
only the module's input stays; everything inside comes back at once and is freed operation by operation.
Source: NVIDIA/Megatron-LM core/transformer (recompute_modules), core/tensor_parallel/random.py CheckpointWithoutOutput.
Check: moe_act : mla_up_proj = 1 : 1.06 measured on Moonlight (Megatron-Bridge#5570).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from primus_mcp.inputs.training import Recompute
from primus_mcp.projection.memory.activations.operation import Operation, Saved
from primus_mcp.projection.memory.activations.settings import ActivationSettings
from primus_mcp.units import BF16_BYTES

OUTPUT_DISCARDING = frozenset({"moe_act", "mla_up_proj", "layernorm"})
ALTERNATE_MATMULS = "alternate_matmuls"
"""TorchTitan's selective checkpointing by operation."""
CHECKPOINTED = frozenset({"mlp", "moe", "shared_experts", "core_attn"})


def recomputed_layers(recompute: Recompute, layers: Sequence[int]) -> tuple[bool, ...]:
    """Which layers of one pipeline chunk are recomputed whole. `block`: the first n of the chunk; `uniform`: all; ids: those named."""
    if recompute.granularity != "full":
        return (False,) * len(layers)
    if recompute.layer_ids is not None:
        return tuple(layer in recompute.layer_ids for layer in layers)
    if recompute.method == "uniform":
        return (True,) * len(layers)
    return tuple(position < (recompute.num_layers or 0) for position in range(len(layers)))


def recomputes_mtp(recompute: Recompute, layer_id: int) -> bool:
    """MTP layers are recomputed under `uniform` and by explicit id; `block` skips them with a warning.

    Source: NVIDIA/Megatron-LM core/transformer/multi_token_prediction.py; AMD-AGI/Primus patches/recompute_layer_patches.py.
    """
    if recompute.granularity != "full":
        return False
    if recompute.layer_ids is not None:
        return layer_id in recompute.layer_ids
    return recompute.method == "uniform"


def alternate_matmuls_bytes(settings: ActivationSettings) -> float:
    """What selective checkpointing by operation keeps of a dense layer: its input, the attention output, and the outputs of every second
    of the seven linears (wq, wv, w1, w2). Everything else is computed again. Source: TorchTitan _save_list; H200 runs +5%.
    """
    arch = settings.arch
    query, value = arch.num_attention_heads * arch.head_dim, arch.num_query_groups * arch.head_dim
    inside = settings.tokens * (2 * query + value + arch.ffn_hidden_size) / settings.tp * BF16_BYTES
    return 2 * settings.hidden_bytes + inside


def apply_selective(operations: tuple[Operation, ...], modules: tuple[str, ...]) -> tuple[Operation, ...]:
    """The operation list with what `modules` recompute no longer saved, and its return as backward transients."""
    checkpointed = CHECKPOINTED.intersection(modules)
    operations = _checkpoint(operations, checkpointed)
    return _discard_outputs(operations, OUTPUT_DISCARDING.intersection(modules))


def _checkpoint(operations: tuple[Operation, ...], modules: frozenset[str]) -> tuple[Operation, ...]:
    out = []
    returned = 0.0
    for operation in operations:
        if not modules.intersection(operation.modules):
            out.append(operation)
            returned = 0.0
            continue
        stays = tuple(saved for saved in operation.saved if modules.intersection(saved.input_of))
        dropped = operation.saved_bytes - sum(saved.size_bytes for saved in stays)
        returned += dropped
        out.append(
            replace(
                operation,
                saved=stays,
                forward_transient_bytes=operation.forward_transient_bytes + dropped,
                backward_transient_bytes=operation.backward_transient_bytes + returned,
            )
        )
    return tuple(out)


def _discard_outputs(operations: tuple[Operation, ...], modules: frozenset[str]) -> tuple[Operation, ...]:
    recomputed = [index for index, operation in enumerate(operations) if modules.intersection(operation.modules)]
    for index in recomputed:
        operations = _discard_output(operations, index)
    return operations


def _discard_output(operations: tuple[Operation, ...], producer: int) -> tuple[Operation, ...]:
    """Drops every saved tensor that operation `producer` makes; it is back from its last consumer's backward to the producer's."""
    name = operations[producer].name
    consumers = [index for index, operation in enumerate(operations) if any(saved.producer == name for saved in operation.saved)]
    if not consumers:
        return operations
    dropped = [_of_producer(operation.saved, name) for operation in operations]
    first, last = min(producer, *consumers), max(producer, *consumers)
    back = sum(dropped)
    return tuple(
        replace(
            operation,
            saved=tuple(saved for saved in operation.saved if saved.producer != name),
            forward_transient_bytes=operation.forward_transient_bytes + dropped[index],
            backward_transient_bytes=operation.backward_transient_bytes + (back if first <= index <= last else 0.0),
        )
        for index, operation in enumerate(operations)
    )


def _of_producer(saved: tuple[Saved, ...], name: str) -> float:
    return sum(tensor.size_bytes for tensor in saved if tensor.producer == name)
