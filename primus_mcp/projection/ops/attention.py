"""The attention core (scores, softmax, values): shape to (forward, backward) seconds."""

from __future__ import annotations

from collections.abc import Mapping

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
    sinks: bool = False,
) -> tuple[float, float]:
    """Causal flash attention of one rank: `heads` local query heads, the whole sequence length; CP splits the work evenly.

    t = F (1 + s0 / s) / (A c) + t0,  F = 2 mbs pairs heads (d_qk + d_v) / CP forward, 2.5 F backward; with a window w < s,
    1 + w0 / w in place of the ramp: whole tiles at both ends of the band, and the start and end of a block of queries over few keys.
    The FP8 backward kernel skips no tile outside the window. A (asymptote), s0 (ramp), w0 (keys a query costs beyond its window) and
    t0 (fill and drain) are figures of the software profile per direction, from published kernel tables; c is the factor of latent (MLA)
    heads, or of heads no wider than 64, times that of FP8 products.
    Grouped-query attention changes traffic, not this time; nor does an attention sink, one more term of a row's sum, unless it asks for
    another kernel than the figures are of (`sinks`).
    Known error: 5% on d = 128 from 2k to 16k (MI355X, MI300X forward), 7% on windows of 128 and 1,024 (GB200), 15-20% for MLA backward
    on AMD.
    """
    figures = cluster.profile.figures
    per_pair = 2 * mbs * heads * (qk_head_dim + v_head_dim) / cp
    times = []
    for direction, rate, products in (
        ("forward", cluster.profile.attention_forward_flops, 1.0),
        ("backward", cluster.profile.attention_backward_flops, BACKWARD_OVER_FORWARD),
    ):
        kept = None if fp8 and direction == "backward" else window
        work = products * per_pair * attended_pairs(seq_length, kept)
        factor = _head_factor(figures, direction, qk_head_dim, latent=latent, fp8=fp8)
        factor *= figures[f"attention_sink_{direction}"] if sinks else 1.0
        overhead = _overhead(figures, direction, seq_length, kept)
        times.append(work * overhead / (rate * cluster.clock_ratio * factor) + figures[f"attention_fill_{direction}_s"])
    return times[0], times[1]


def _head_factor(figures: Mapping[str, float], direction: str, qk_head_dim: int, *, latent: bool, fp8: bool) -> float:
    """Rate over that of BF16 heads of 128: latent heads and narrow ones have kernels of their own, each with its own gain from FP8."""
    if latent:
        return figures[f"attention_latent_{direction}"] * (figures[f"attention_latent_fp8_{direction}"] if fp8 else 1.0)
    narrow = figures[f"attention_narrow_{direction}"] if qk_head_dim <= NARROW_HEAD_DIM else 1.0
    return narrow * (figures[f"attention_fp8_{direction}"] if fp8 else 1.0)


def _overhead(figures: Mapping[str, float], direction: str, seq_length: float, window: int | None) -> float:
    """Time over that of the pairs at the asymptotic rate."""
    if window is None or window >= seq_length:
        return 1 + figures[f"attention_ramp_seq_{direction}"] / seq_length
    return 1 + figures[f"attention_window_keys_{direction}"] / window


def math_attention_s(
    cluster: Cluster,
    gemm: GemmModel,
    *,
    mbs: int,
    seq_length: int,
    heads: int,
    qk_head_dim: int,
    v_head_dim: int,
    cp: int = 1,
    sinks: bool = False,
) -> tuple[float, float]:
    """Unfused attention: two batched GEMMs over the full square, and softmax / mask / dropout passes over the scores.

    Forward = GEMM(s, s, d_qk) + GEMM(s, d_v, s) + n_f passes of 2 B over mbs heads s^2 / CP; backward = twice the GEMMs + n_b passes.
    With sinks a row of scores is one longer, which no fused softmax takes: plain PyTorch in fp32 passes over them more often. Known error:
    the product of probabilities whose rows are not aligned is priced as if they were.
    """
    rows = seq_length / cp
    batch = max(1, round(mbs * heads))
    products_s = gemm.seconds(rows, seq_length, qk_head_dim, "bf16", batch=batch) + gemm.seconds(
        rows, v_head_dim, seq_length, "bf16", batch=batch
    )
    score_bytes = mbs * heads * rows * seq_length * SCORE_BYTES
    figures, kind = cluster.profile.figures, "math_sink_attention" if sinks else "math_attention"
    forward_s = products_s + hbm_pass_s(cluster, score_bytes * figures[f"{kind}_passes_forward"])
    return forward_s, 2 * products_s + hbm_pass_s(cluster, score_bytes * figures[f"{kind}_passes_backward"])
