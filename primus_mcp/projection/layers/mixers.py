"""The time of what runs instead of attention in a hybrid layer: short convolution, gated delta net, Mamba-2."""

from __future__ import annotations

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import TIME
from primus_mcp.projection.layers.linear import model_linear
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.layers.record import Piece
from primus_mcp.projection.layers.settings import LayerSettings
from primus_mcp.projection.layers.tensor_parallel import tensor_parallel
from primus_mcp.projection.mixers import core_elements, core_flops, entry_width, exit_width
from primus_mcp.units import BF16_BYTES


def _core(rates: Rates, arch: Architecture, settings: LayerSettings, tokens: float) -> Piece:
    """The larger of arithmetic at the rate that small-tile kernels reach, and traffic; backward 2 and `mixer.backward` times.

    Known error: estimated, the efficiency is known to a factor of two.
    """
    sustained = rates.cluster.profile.sustained_flops["bf16"] * rates.cluster.clock_ratio
    arithmetic_s = tokens * core_flops(arch) / settings.tp / (TIME["mixer.efficiency"] * sustained)
    traffic_s = rates.pass_s(tokens * core_elements(arch) / settings.tp * 2 * BF16_BYTES)
    return Piece(
        name="mixer_core",
        forward_s=max(arithmetic_s, traffic_s),
        backward_s=max(2 * arithmetic_s, TIME["mixer.backward"] * traffic_s),
    )


def mixer_pieces(rates: Rates, arch: Architecture, settings: LayerSettings) -> tuple[Piece, ...]:
    """The mixer of one layer, without the norm before it, with its TP traffic."""
    tokens = settings.tokens(arch)
    entry = model_linear(rates, settings, "mixer_linear", tokens, entry_width(arch) / settings.tp, arch.hidden_size, gathered="input")
    leave = model_linear(rates, settings, "mixer_linear", tokens, arch.hidden_size, exit_width(arch) / settings.tp, gathered="gradient")
    return (
        entry,
        _core(rates, arch, settings, tokens),
        leave,
        *tensor_parallel(rates, arch, settings, (entry,), leave),
    )
