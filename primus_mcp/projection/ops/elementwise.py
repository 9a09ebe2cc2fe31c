"""Kernels bound by HBM: norms, residuals, rotary, activations, casts, permutes, losses."""

from __future__ import annotations

from primus_mcp.inputs.hardware import Cluster


def hbm_pass_s(cluster: Cluster, num_bytes: float) -> float:
    """Seconds of passes over HBM: t = bytes / (efficiency x HBM bandwidth), reads and writes together. The caller prices launches.

    Source: the efficiency is a figure of the software profile (STREAM-like kernels reach 0.75-0.85 of the peak, training kernels about
    0.70). Known error: +-15% on a single kernel; kernels below about 10 us are launch bound instead.
    """
    return num_bytes / (cluster.gpu.hbm_bandwidth_bytes_per_s * cluster.profile.elementwise_hbm_efficiency)
