"""The attention core (scores, softmax, values): shape to (forward, backward) seconds."""

from __future__ import annotations

from primus_mcp.inputs.hardware import Cluster
from primus_mcp.projection.ops.elementwise import hbm_pass_s
from primus_mcp.projection.ops.gemm import GemmModel

# The backward recomputes the scores and forms dQ, dK, dV, dP: five products against the forward's two.
BACKWARD_OVER_FORWARD = 2.5
NARROW_HEAD_DIM = 64
SCORE_BYTES = 2


def attended_pairs(seq_length: float, window: int | None) -> float:
    """Query-key pairs of one causal sequence: s^2/2, or s w - w^2/2 when each query sees at most w keys."""
    if window is None or window >= seq_length:
        return seq_length * seq_length / 2
    return seq_length * window - window * window / 2


def flash_attention_s(
    cluster: Cluster,
    *,
    mbs: float,
    seq_length: float,
    heads: float,
    qk_head_dim: int,
    v_head_dim: int,
    window: int | None = None,
    cp: int = 1,
    latent: bool = False,
    fp8: bool = False,
) -> tuple[float, float]:
    """Causal flash attention of one rank: `heads` local query heads, the whole sequence length; CP splits the work evenly.

    t = F (1 + s0 / extent) / (A c) + t0,  F = 2 mbs pairs heads (d_qk + d_v) / CP forward, 2.5 F backward; extent = min(s, window).
    A (asymptote), s0 (ramp), t0 (fill and drain) are figures of the software profile per direction, fitted to published kernel tables;
    c is the factor of latent (MLA) heads, or of heads no wider than 64, times that of FP8 products.
    Grouped-query attention changes traffic, not this time.
    Known error: 5% on d = 128 from 2k to 16k (MI355X, MI300X forward), 15-20% for MLA backward.
    """
    figures = cluster.profile.figures
    pairs = attended_pairs(seq_length, window)
    flops = 2 * mbs * pairs * heads * (qk_head_dim + v_head_dim) / cp
    extent = seq_length if window is None else min(seq_length, window)
    times = []
    for direction, rate, work in (
        ("forward", cluster.profile.attention_forward_flops, flops),
        ("backward", cluster.profile.attention_backward_flops, BACKWARD_OVER_FORWARD * flops),
    ):
        factor = 1.0
        if latent:
            factor = figures[f"attention_latent_{direction}"]
        elif qk_head_dim <= NARROW_HEAD_DIM:
            factor = figures[f"attention_narrow_{direction}"]
        if fp8:
            factor *= figures[f"attention_fp8_{direction}"]
        ramp = 1 + figures[f"attention_ramp_seq_{direction}"] / extent
        times.append(work * ramp / (rate * cluster.clock_ratio * factor) + figures[f"attention_fill_{direction}_s"])
    return times[0], times[1]


def math_attention_s(
    cluster: Cluster, gemm: GemmModel, *, mbs: int, seq_length: int, heads: int, qk_head_dim: int, v_head_dim: int, cp: int = 1
) -> tuple[float, float]:
    """Unfused attention: two batched GEMMs over the full square, and softmax / mask / dropout passes over the scores.

    Forward = GEMM(s, s, d_qk) + GEMM(s, d_v, s) + n_f passes of 2 B over mbs heads s^2 / CP; backward = twice the GEMMs + n_b passes.
    """
    rows = seq_length / cp
    batch = max(1, round(mbs * heads))
    products_s = gemm.seconds(rows, seq_length, qk_head_dim, "bf16", batch=batch) + gemm.seconds(
        rows, v_head_dim, seq_length, "bf16", batch=batch
    )
    score_bytes = mbs * heads * rows * seq_length * SCORE_BYTES
    figures = cluster.profile.figures
    forward_s = products_s + hbm_pass_s(cluster, score_bytes * figures["math_attention_passes_forward"])
    return forward_s, 2 * products_s + hbm_pass_s(cluster, score_bytes * figures["math_attention_passes_backward"])
