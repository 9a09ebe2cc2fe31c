"""What the constants of the engine and of the software profiles are called where people read them: the catalogue's names are its own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_RATE, _SHARE, _TIMES, _BYTES, _US = "TFLOP/s", "of it", "times", "B an element", "us"

CONSTANTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        # host
        "launch_us": ("host time to launch a kernel", _US),
        "host_work.dense": ("host time over launches, dense layer", _TIMES),
        "host_work.moe": ("host time over launches, expert layer", _TIMES),
        "loop_launch_s": ("launch inside a loop of GEMMs", _US),
        "sync_bubble_s": ("idle GPU after a synchronisation", _US),
        "host_norm": ("how host and GPU time add, exponent", ""),
        "overlap_moe_launch_factor": ("launches with overlapped exchange", _TIMES),
        "syncs.library": ("synchronisations of library exchange", ""),
        # traffic of passes
        "norm_residual.forward": ("norm and residual, forward", _BYTES),
        "norm_residual.backward": ("norm and residual, backward", _BYTES),
        "norm_eager.backward": ("eager norms, backward", _BYTES),
        "query_copy.forward": ("copy of queries, forward", _BYTES),
        "query_copy.backward": ("copy of queries, backward", _BYTES),
        "rope.unfused.forward": ("unfused rotary embedding, forward", _BYTES),
        "rope.unfused.backward": ("unfused rotary embedding, backward", _BYTES),
        "fp8_attention_cast.forward": ("casts of FP8 attention, forward", _BYTES),
        "fp8_attention_cast.backward": ("casts of FP8 attention, backward", _BYTES),
        "qk_norm.forward": ("norm of Q and K, forward", _BYTES),
        "qk_norm.backward": ("norm of Q and K, backward", _BYTES),
        "latent_norm.forward": ("norm of latents, forward", _BYTES),
        "latent_norm.backward": ("norm of latents, backward", _BYTES),
        "adapter.input.forward": ("adapter over its input, forward", "passes"),
        "adapter.input.backward": ("adapter over its input, backward", "passes"),
        "adapter.output.forward": ("adapter over its output, forward", "passes"),
        "adapter.output.backward": ("adapter over its output, backward", "passes"),
        "adapter.dropout": ("dropout of adapters", "passes"),
        "gated_activation.eager.forward": ("eager gated activation, forward", _BYTES),
        "gated_activation.eager.backward": ("eager gated activation, backward", _BYTES),
        "activation_clamp.forward": ("clamp of activations, forward", _BYTES),
        "activation_clamp.backward": ("clamp of activations, backward", _BYTES),
        "expert_activation.eager.forward": ("eager expert activation, forward", _BYTES),
        "expert_activation.eager.backward": ("eager expert activation, backward", _BYTES),
        "router.unfused": ("unfused router", "B a token and expert"),
        "router.fused": ("fused router", "B a token and expert"),
        "router_backward_cast": ("casts of the router, backward", _BYTES),
        "router_fp32_flops": ("FP32 GEMM rate of the router", _RATE),
        "permute.eager_gather_slowdown": ("eager gather over streaming", _TIMES),
        "permute.eager_scatter_slowdown": ("eager scatter over streaming", _TIMES),
        "fp8_padding": ("FP8 padding of expert rows", _BYTES),
        "fused_mlp.forward": ("fused MLP, forward", _BYTES),
        "fused_mlp.backward": ("fused MLP, backward", _BYTES),
        "expert_bias.forward": ("bias of experts, forward", _BYTES),
        "expert_bias.backward": ("bias of experts, backward", _BYTES),
        "expert_bias.fused_backward": ("bias of fused experts, backward", _BYTES),
        "loss.native": ("unfused loss", "B a logit"),
        "loss.fused_native": ("native fused loss", "B a logit"),
        "loss.fused_te": ("fused loss", "B a logit"),
        "embedding": ("embedding", _BYTES),
        "cast.tensorwise": ("cast to FP8, one scale a tensor", _BYTES),
        "cast.mxfp8": ("cast to MXFP8", _BYTES),
        "cast.weight": ("cast of weights", _BYTES),
        "cast.fp4": ("cast to FP4", _BYTES),
        "elementwise_hbm_efficiency": ("HBM bandwidth of passes", _SHARE),
        # overlap and optimizer
        "tp_regather": ("TP collective beside a GEMM, exposed", _SHARE),
        "tp_overlap": ("TP overlap, hidden", _SHARE),
        "moe_a2a_overlap": ("expert exchange overlap, hidden", _SHARE),
        "ring_merge": ("merging of CP ring steps", _BYTES),
        "cp_floor.forward": ("CP traffic that never hides, forward", _SHARE),
        "cp_floor.backward": ("CP traffic that never hides, backward", _SHARE),
        "dp_overlap": ("work that gradient exchange hides behind", _SHARE),
        "dp_floor": ("gradient exchange that never hides", _SHARE),
        "fsdp_overlap": ("work that FSDP traffic hides behind", _SHARE),
        "optimizer_hbm_efficiency": ("HBM bandwidth of the optimizer", _SHARE),
        "optimizer_fixed_s": ("fixed time of the optimizer step", "ms"),
        "clip_passes": ("gradient clipping", "passes"),
        "mixer.efficiency": ("mixer kernels against BF16 GEMMs", _SHARE),
        "mixer.backward": ("mixer backward over forward", _TIMES),
        # GEMMs
        "sustained_tflops.bf16": ("sustained BF16 GEMM rate", _RATE),
        "sustained_tflops.fp8": ("sustained FP8 GEMM rate", _RATE),
        "sustained_tflops.fp4": ("sustained FP4 GEMM rate", _RATE),
        "gemm_hbm_efficiency": ("HBM bandwidth of GEMMs", _SHARE),
        "grouped_gemm_efficiency": ("grouped GEMM against a dense one", _SHARE),
        "figures.step_efficiency": ("kernel rate in a step against alone", _SHARE),
        "figures.gemm_norm_exponent": ("how GEMM limits add, exponent", ""),
        "figures.gemm_wave_exponent": ("GEMM loss to partial waves, exponent", ""),
        "figures.gemm_k_ramp_bf16": ("K at half the BF16 GEMM rate", ""),
        "figures.gemm_k_ramp_fp8": ("K at half the FP8 GEMM rate", ""),
        "figures.gemm_k_ramp_fp4": ("K at half the FP4 GEMM rate", ""),
        "figures.gemm_unaligned_efficiency": ("GEMMs of unaligned shapes", _SHARE),
        "figures.gemm_bias_gradient_efficiency": ("GEMMs that sum bias gradients", _SHARE),
        "figures.gemm_mxfp8_efficiency": ("MXFP8 GEMM against FP8", _SHARE),
        "figures.gemm_blockwise_efficiency": ("blockwise FP8 GEMM against FP8", _SHARE),
        "figures.grouped_weight_gradient_efficiency": ("grouped weight gradients", _SHARE),
        "figures.grouped_loop_efficiency": ("expert GEMMs in a loop", _SHARE),
        "figures.grouped_loop_launch_us": ("launch of an expert's GEMM in a loop", _US),
        "figures.permute_efficiency": ("bandwidth of token permutation", _SHARE),
        # attention
        "attention_forward_tflops": ("attention kernel, forward", _RATE),
        "attention_backward_tflops": ("attention kernel, backward", _RATE),
        "figures.attention_backward_operator": ("attention backward in its operator", _SHARE),
        "figures.attention_ramp_seq_forward": ("attention forward, half-rate length", ""),
        "figures.attention_ramp_seq_backward": ("attention backward, half-rate length", ""),
        "figures.attention_fill_forward_us": ("attention filling the GPU, forward", _US),
        "figures.attention_fill_backward_us": ("attention filling the GPU, backward", _US),
        "figures.attention_latent_forward": ("latent attention, forward", _SHARE),
        "figures.attention_latent_backward": ("latent attention, backward", _SHARE),
        "figures.attention_narrow_forward": ("attention of 64-wide heads, forward", _SHARE),
        "figures.attention_narrow_backward": ("attention of 64-wide heads, backward", _SHARE),
        "figures.attention_sink_forward": ("attention with sinks, forward", _SHARE),
        "figures.attention_sink_backward": ("attention with sinks, backward", _SHARE),
        "figures.attention_fp8_forward": ("FP8 attention over BF16, forward", ""),
        "figures.attention_fp8_backward": ("FP8 attention over BF16, backward", ""),
        "figures.attention_latent_fp8_forward": ("FP8 latent attention, forward", ""),
        "figures.attention_latent_fp8_backward": ("FP8 latent attention, backward", ""),
        "figures.attention_window_keys_forward": ("keys beyond a window, forward", ""),
        "figures.attention_window_keys_backward": ("keys beyond a window, backward", ""),
        "figures.math_attention_passes_forward": ("unfused attention, forward", "passes"),
        "figures.math_attention_passes_backward": ("unfused attention, backward", "passes"),
        "figures.math_sink_attention_passes_forward": ("unfused sink attention, forward", "passes"),
        "figures.math_sink_attention_passes_backward": ("unfused sink attention, backward", "passes"),
        # links
        "link_efficiency": ("collective bandwidth inside a node", _SHARE),
        "all_to_all_link_efficiency": ("library all-to-all inside a node", _SHARE),
        "deepep_link_efficiency": ("DeepEP bandwidth inside a node", _SHARE),
        "nic_efficiency": ("NIC bandwidth", _SHARE),
        "figures.collective_local_step_us": ("collective step inside a node", _US),
        "figures.collective_nic_step_us": ("collective step over a NIC", _US),
        "figures.collective_ramp_bytes": ("message at half the collective rate", "MB"),
        "figures.all_to_all_fixed_us": ("fixed time of library all-to-all", _US),
        "figures.deepep_fixed_us": ("fixed time of DeepEP", _US),
        "figures.all_to_all_nic_efficiency": ("library all-to-all over NICs", _SHARE),
        "figures.deepep_hop_norm": ("how DeepEP's two hops add, exponent", ""),
    }
)
"""Name in the catalogue -> (words, unit); _SHARE is a share of what the words name, shown in percent."""
_SCALES = {("router_fp32_flops", _RATE): 1e-12, ("optimizer_fixed_s", "ms"): 1e3, ("figures.collective_ramp_bytes", "MB"): 1e-6}


def constant_text(name: str, low: float, high: float, family: str = "") -> str:
    """`NIC bandwidth, 80% to 96%` with the GPU or family whose range it is, where that is not the GPU's own."""
    words, unit = CONSTANTS.get(name, (name.replace("_", " "), ""))
    scale = _SCALES.get((name, unit), 1e6 if name.endswith("_s") and unit == _US else 1.0)
    told = f"{low:.0%} to {high:.0%}" if unit == _SHARE else f"{low * scale:.4g} to {high * scale:.4g} {unit}".rstrip()
    return f"{words}, {told}" + (f" ({family.removeprefix('family_').upper()}'s)" if family else "")
