"""The CPU's share: kernels that Python dispatches, loops of GEMMs in C++, and host synchronisations of MoE dispatch."""

from __future__ import annotations

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.constants import TIME
from primus_mcp.projection.layers.latent import rope_is_fused
from primus_mcp.projection.layers.moe_exchange import permute_is_fused, router_is_fused, uses_deepep
from primus_mcp.projection.layers.moe_mlp import activation_is_eager
from primus_mcp.projection.layers.settings import LayerSettings

LOOPED_KERNELS = frozenset({"legacy", "te", "sequential"})


def _both(name: str) -> tuple[float, float]:
    return TIME[f"launches.{name}.forward"], TIME[f"launches.{name}.backward"]


def attention_launches(arch: Architecture, settings: LayerSettings) -> tuple[float, float]:
    """(forward, backward) kernels of the attention block; one graph replaces them all."""
    if "attn" in settings.graphed:
        return TIME["launches.graph"], TIME["launches.graph"]
    forward, backward = _both("attention_gqa" if arch.latent_attention is None else "attention_mla")
    extra = 0.0 if rope_is_fused(arch, settings) else TIME["launches.rope_unfused"]
    extra += TIME["launches.fp8_attention"] if settings.linear_precision != "bf16" else 0.0
    return forward + extra, backward + extra


def dense_launches(settings: LayerSettings) -> tuple[float, float]:
    """(forward, backward) kernels of the dense MLP."""
    if "mlp" in settings.graphed:
        return TIME["launches.graph"], TIME["launches.graph"]
    forward, backward = _both("dense_mlp")
    extra = TIME["launches.fp8_mlp"] if settings.linear_precision != "bf16" else 0.0
    return forward + extra, backward + extra


def _expert_kind(settings: LayerSettings) -> str:
    return {"legacy": "legacy", "te": "te", "sequential": "te", "turbo": "turbo"}[settings.grouped_gemm]


def dispatch_launches(settings: LayerSettings) -> tuple[float, float]:
    """(forward, backward) kernels of router and token exchange, which come before the layer's synchronisations."""
    router = _both("router_fused" if router_is_fused(settings) else "router_unfused")
    if "moe_router" in settings.graphed:
        router = TIME["launches.graph"], TIME["launches.graph"]
    if uses_deepep(settings):
        moved = _both("deepep")
    else:
        moved = _both("library_permute_fused" if permute_is_fused(settings) else "library_permute_unfused")
    return router[0] + moved[0], router[1] + moved[1]


def expert_launches(arch: Architecture, settings: LayerSettings) -> tuple[float, float]:
    """(forward, backward) kernels of experts and shared expert that Python dispatches."""
    forward, backward = _both(f"experts_{_expert_kind(settings)}")
    groups = [_both("experts_fp8")] if settings.expert_precision != "bf16" else []
    if activation_is_eager(arch, settings):
        groups.append(_both("expert_activation_eager"))
    if arch.experts is not None and arch.experts.shared_expert_ffn_hidden_size:
        groups.append(_both("shared_expert"))
    return forward + sum(g[0] for g in groups), backward + sum(g[1] for g in groups)


def loop_gemms(arch: Architecture, settings: LayerSettings) -> tuple[float, float]:
    """(forward, backward) GEMMs that a C++ loop launches: 2 and 4 an expert of this rank; none with one persistent kernel."""
    if arch.experts is None or settings.grouped_gemm not in LOOPED_KERNELS:
        return 0.0, 0.0
    local = arch.experts.num_experts // settings.ep
    return TIME["grouped_loop_gemms.forward"] * local, TIME["grouped_loop_gemms.backward"] * local


def bias_launches(arch: Architecture, settings: LayerSettings) -> tuple[float, float]:
    """(forward, backward) plain tensor operations that add the biases of this rank's experts one expert at a time."""
    if arch.experts is None or not arch.linear_bias:
        return 0.0, 0.0
    local, (forward, backward) = arch.experts.num_experts // settings.ep, _both("expert_bias")
    return forward * local, backward * local


def synchronisations(settings: LayerSettings) -> float:
    """Times the host waits for the GPU in the forward pass of an MoE layer; the backward pass reuses the handles."""
    if settings.ep == 1:
        return TIME["syncs.no_exchange"]
    if settings.sync_free_stage >= 2:
        return TIME[f"syncs.stage_{settings.sync_free_stage}"]
    return TIME["syncs.deepep_stage_0_1" if uses_deepep(settings) else "syncs.library"]
