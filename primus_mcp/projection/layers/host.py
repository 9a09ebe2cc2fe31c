"""The CPU's share: kernels that Python dispatches, loops of GEMMs in C++, and host synchronisations of MoE dispatch."""

from __future__ import annotations

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import TIME
from primus_mcp.projection.layers.latent import rope_is_fused
from primus_mcp.projection.layers.moe_exchange import permute_is_fused, router_is_fused, uses_deepep
from primus_mcp.projection.layers.moe_mlp import activation_is_eager
from primus_mcp.projection.layers.settings import LayerSettings

LOOPED_KERNELS = frozenset({"legacy", "te", "sequential"})
Launches = tuple[float, float, float]
"""(forward, backward, what of the backward the weight gradients need: a split backward defers it with their GEMMs)."""
NO_LAUNCHES: Launches = (0.0, 0.0, 0.0)


def _counts(name: str) -> Launches:
    return TIME[f"launches.{name}.forward"], TIME[f"launches.{name}.backward"], TIME.get(f"launches.{name}.weight", 0.0)


def _graph() -> Launches:
    """A graph holds both gradients of its module and is launched with the input gradient."""
    return TIME["launches.graph"], TIME["launches.graph"], 0.0


def added(counts: Launches, *more: Launches) -> Launches:
    """Their sum."""
    forward, backward, weight = counts
    for other in more:
        forward, backward, weight = forward + other[0], backward + other[1], weight + other[2]
    return forward, backward, weight


def times(counts: Launches, factor: float) -> Launches:
    """Each times the factor."""
    return counts[0] * factor, counts[1] * factor, counts[2] * factor


def attention_launches(arch: Architecture, settings: LayerSettings) -> Launches:
    """Kernels of the attention block; one graph replaces them all."""
    if "attn" in settings.graphed:
        return _graph()
    extra = 0.0 if rope_is_fused(arch, settings) else TIME["launches.rope_unfused"]
    extra += TIME["launches.fp8_attention"] if settings.linear_precision != "bf16" else 0.0
    return added(_counts("attention_gqa" if arch.latent_attention is None else "attention_mla"), (extra, extra, 0.0))


def dense_launches(settings: LayerSettings) -> Launches:
    """Kernels of the dense MLP."""
    if "mlp" in settings.graphed:
        return _graph()
    extra = TIME["launches.fp8_mlp"] if settings.linear_precision != "bf16" else 0.0
    return added(_counts("dense_mlp"), (extra, extra, 0.0))


def _expert_kind(settings: LayerSettings) -> str:
    return {"legacy": "legacy", "te": "te", "sequential": "te", "turbo": "turbo"}[settings.grouped_gemm]


def dispatch_launches(settings: LayerSettings) -> Launches:
    """Kernels of router and token exchange, which come before the layer's synchronisations."""
    router = "router_fused" if router_is_fused(settings) else "router_unfused"
    permute = "library_permute_fused" if permute_is_fused(settings) else "library_permute_unfused"
    return added(
        _graph() if "moe_router" in settings.graphed else _counts(router),
        _counts("deepep" if uses_deepep(settings) else permute),
    )


def expert_launches(arch: Architecture, settings: LayerSettings) -> Launches:
    """Kernels of experts and shared expert that Python dispatches."""
    groups = [_counts("experts_fp8")] if settings.expert_precision != "bf16" else []
    if activation_is_eager(arch, settings):
        groups.append(_counts("expert_activation_eager"))
    if arch.experts is not None and arch.experts.shared_expert_ffn_hidden_size:
        groups.append(_counts("shared_expert"))
    return added(_counts(f"experts_{_expert_kind(settings)}"), *groups)


def loop_gemms(arch: Architecture, settings: LayerSettings) -> Launches:
    """GEMMs that a C++ loop launches: 2 and 4 an expert of this rank, half of the 4 for weights; none with one persistent kernel."""
    if arch.experts is None or settings.grouped_gemm not in LOOPED_KERNELS:
        return NO_LAUNCHES
    an_expert = tuple(TIME[f"grouped_loop_gemms.{kind}"] for kind in ("forward", "backward", "weight"))
    return times((an_expert[0], an_expert[1], an_expert[2]), arch.experts.num_experts // settings.ep)


def bias_launches(arch: Architecture, settings: LayerSettings) -> Launches:
    """Plain tensor operations that add the biases of this rank's experts one expert at a time, unless their kernels do."""
    if arch.experts is None or not arch.linear_bias or settings.fused_expert_mlp:
        return NO_LAUNCHES
    return times(_counts("expert_bias"), arch.experts.num_experts // settings.ep)


def synchronisations(settings: LayerSettings) -> float:
    """Times the host waits for the GPU in the forward pass of an MoE layer; the backward pass reuses the handles."""
    if settings.ep == 1:
        return TIME["syncs.no_exchange"]
    if settings.sync_free_stage >= 2:
        return TIME[f"syncs.stage_{settings.sync_free_stage}"]
    return TIME["syncs.deepep_stage_0_1" if uses_deepep(settings) else "syncs.library"]
