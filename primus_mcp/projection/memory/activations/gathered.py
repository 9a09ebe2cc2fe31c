"""What FSDP2 holds only while a layer runs (PP 1, layers resharded after use).

Source: torch fully_shard: the next layer is prefetched; gradients of a layer stay in BF16 until its post-backward hook, which copies them
to the input of a reduce-scatter (BF16 unless a mixed-precision policy reduces in fp32), freed when the next one begins. Known error: the
last layer's gradient is counted in whole although it fills operation by operation (under 2% of a layer's peak).
"""

from __future__ import annotations

from dataclasses import replace

from primus_mcp.inputs.architecture import LayerKind
from primus_mcp.projection.memory.activations.operation import Operation
from primus_mcp.projection.memory.activations.settings import ActivationSettings
from primus_mcp.projection.parameters import layer_parameters
from primus_mcp.units import BF16_BYTES


def with_gathered_layer(
    settings: ActivationSettings, operations: tuple[Operation, ...], moe: bool, kind: LayerKind
) -> tuple[Operation, ...]:
    """A layer's operations; g bytes a gathered parameter, N parameters of the layer.

    Forward: the next layer, g N. Backward: the next layer, this one's BF16 gradient and the staging of the one before, (g + 2 + r) N with
    r bytes in the reduce-scatter.
    """
    gathered = settings.gathered_parameter_bytes
    if not gathered:
        return operations
    experts = settings.arch.experts
    ep = experts.num_experts // settings.expert_weights_per_rank if experts else 1
    parameters = layer_parameters(settings.arch, moe, settings.tp, ep, settings.etp, kind).total
    following, gradients = parameters * gathered, parameters * (BF16_BYTES + settings.fsdp_reduce_bytes)
    return tuple(
        replace(
            operation,
            forward_transient_bytes=operation.forward_transient_bytes + following,
            backward_transient_bytes=operation.backward_transient_bytes + following + gradients,
        )
        for operation in operations
    )
