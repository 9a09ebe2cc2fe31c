"""The time of LoRA adapters beside the linears of a layer."""

from __future__ import annotations

from primus_mcp.inputs.architecture import Architecture, LayerShape
from primus_mcp.inputs.constants import TIME
from primus_mcp.projection.adapters import adapted_linears
from primus_mcp.projection.layers.moe_mlp import expert_rows
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import Piece
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.units import BF16_BYTES


def adapter_pieces(rates: Rates, arch: Architecture, settings: LayerSettings, shape: LayerShape) -> list[Piece]:
    """LoRA: thin GEMMs bound by HBM. Forward reads the input (and its dropout), adds to the output; backward reads the output gradient
    twice, adds to the input gradient.

    bytes a token and target: forward 2 (3 in + 3 out), backward 2 (3 in + 2 out). Known error: adapter weights themselves are ignored; the
    passes were fitted to runs with adapters on QKV and output projection only.
    """
    if not settings.adapter_rank:
        return []
    passes = TIME["adapter_passes"]
    forward_bytes = backward_bytes = 0.0
    for linear in adapted_linears(arch, shape, settings.tp, settings.ep, settings.etp, settings.lora_targets):
        rows = expert_rows(arch, arch.experts, settings) if linear.expert and arch.experts else settings.tokens(arch)
        forward_bytes += BF16_BYTES * rows * passes * (linear.inputs + linear.outputs)
        backward_bytes += BF16_BYTES * rows * (passes * linear.inputs + (passes - 1) * linear.outputs)
    return [Piece(name="adapters", forward_s=rates.pass_s(forward_bytes), backward_s=rates.pass_s(backward_bytes))]
