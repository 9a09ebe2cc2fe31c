"""Matrix multiplication: shape to seconds. The roofline backend is smooth and covers every GPU; `origami` replaces it on AMD."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, Protocol

from primus_mcp.errors import UnknownFigureError
from primus_mcp.inputs.hardware import Cluster, Precision

GroupedKernel = Literal["persistent", "loop", "sequential"]

# Bytes an operand element occupies in HBM. fp4 carries one 8-bit scale per 16 elements.
OPERAND_BYTES: dict[Precision, float] = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5 + 1 / 16}
REFERENCE_SIDE = 8192
_CACHED_SHAPES = 65_536


class GemmModel(Protocol):
    """A GEMM backend. `seconds` is the device time of `batch` equal (m, n, k) products run together."""

    name: str

    def seconds(self, m: float, n: float, k: float, precision: Precision, *, batch: int = 1, output_bytes: float = 2.0) -> float:
        """Seconds of `batch` GEMMs [m, k] x [k, n] -> [m, n]; `output_bytes` is what the result moves per element."""
        ...


def sustained_flops(cluster: Cluster, precision: Precision) -> float:
    """FLOP/s of an 8192^3 GEMM at the clock held under load, scaled by the cluster's clock ratio.

    Raises UnknownFigureError when the GPU has no rate for the precision.
    """
    rate = cluster.profile.sustained_flops.get(precision)
    if rate is None:
        known = ", ".join(sorted(cluster.profile.sustained_flops))
        raise UnknownFigureError(f"{cluster.gpu.name} has no sustained {precision} rate in profile {cluster.profile.name} (known: {known})")
    return rate * cluster.clock_ratio


def peak_flops(cluster: Cluster, precision: Precision) -> float:
    """Dense peak FLOP/s of the GPU at the cluster's clock. Raises UnknownFigureError when the GPU lacks the precision."""
    rate = cluster.gpu.peak_flops.get(precision)
    if rate is None:
        raise UnknownFigureError(f"{cluster.gpu.name} has no {precision} units (known: {', '.join(sorted(cluster.gpu.peak_flops))})")
    return rate * cluster.clock_ratio


def memoised(
    compute: Callable[[float, float, float, Precision, int, float], float],
) -> Callable[[float, float, float, Precision, int, float], float]:
    """One bounded table of shapes per backend instance."""
    return lru_cache(maxsize=_CACHED_SHAPES)(compute)


def grouped_efficiency(model: GemmModel, cluster: Cluster) -> float:
    """Rate of a persistent grouped GEMM over the model's rate of as many equal ones run together: q of the profile.

    Origami's own rates fall on small tiles and depths already: 11 timings of a Triton kernel on MI355X ask for 0.91, (1 + q) / 2 is 0.94.
    """
    q = cluster.profile.grouped_gemm_efficiency
    return (1 + q) / 2 if model.name == "origami" else q


def unaligned_efficiency(model: GemmModel, cluster: Cluster) -> float:
    """Rate of products with a side of the weight that is no multiple of 128, over the model's rate: u of the profile.

    Origami counts partly filled tiles itself: 41 tuned gfx950 products reach 0.94 of its rate and 0.79 of the surface's, 18 of width
    2,880 among them 0.87 and 0.79 (ROCm/aiter@e404860 tuned_gemm tables); (1 + u) / 2 is 0.90.
    """
    u = cluster.profile.figures["gemm_unaligned_efficiency"]
    return (1 + u) / 2 if model.name == "origami" else u


class RooflineGemm:
    """t = (tc^p + tb^p)^(1/p): compute and HBM time joined by a p-norm.

    tc = 2 m n k batch (1 + K0/k) / (S' u),  u = (w / ceil w)^x,  w = batch ceil(m/tile_m) ceil(n/tile_n) / CUs
    tb = batch ((m k + k n) e + m n o) / (eff W)
    S' makes t(8192^3) equal the sustained rate S of the catalogue. tile, K0, x, p are figures of the software profile.
    Source: fits to micro-benchmarks (catalog/hardware, `gemm_*`). Known error: mean 7% on 1,140
    tuned MI355X shapes (bf16, fp8), 2% on long A100 and 5% on long B200 GEMMs; 25% slow below 0.4 ms on B200 (burst clock).
    """

    name = "roofline"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        figures = cluster.profile.figures
        self._tile_m, self._tile_n = figures["gemm_tile_m"], figures["gemm_tile_n"]
        self._wave_exponent, self._norm = figures["gemm_wave_exponent"], figures["gemm_norm_exponent"]
        self._ramp = {precision: figures[f"gemm_k_ramp_{precision}"] for precision in OPERAND_BYTES}
        self._hbm = cluster.gpu.hbm_bandwidth_bytes_per_s * cluster.profile.gemm_hbm_efficiency
        self._surface: dict[Precision, float] = {}
        self._seconds = memoised(self._compute)

    def seconds(self, m: float, n: float, k: float, precision: Precision, *, batch: int = 1, output_bytes: float = 2.0) -> float:
        """See GemmModel."""
        return self._seconds(m, n, k, precision, batch, output_bytes)

    def with_wider_result(self, product_s: float, elements: float, output_bytes: float) -> float:
        """Time of a product whose result is wider than bf16: the extra HBM time joins by the p-norm."""
        extra_s = elements * max(0.0, output_bytes - OPERAND_BYTES["bf16"]) / self._hbm
        return float((product_s**self._norm + extra_s**self._norm) ** (1 / self._norm))

    def _utilisation(self, m: float, n: float, batch: int) -> float:
        waves = batch * math.ceil(m / self._tile_m) * math.ceil(n / self._tile_n) / self._cluster.gpu.compute_units
        return float((waves / math.ceil(waves)) ** self._wave_exponent)

    def _memory_s(self, m: float, n: float, k: float, precision: Precision, batch: int, output_bytes: float) -> float:
        return batch * ((m * k + k * n) * OPERAND_BYTES[precision] + m * n * output_bytes) / self._hbm

    def _surface_flops(self, precision: Precision) -> float:
        side = REFERENCE_SIDE
        flops = 2 * side**3
        whole_s = flops / sustained_flops(self._cluster, precision)
        memory_s = self._memory_s(side, side, side, precision, 1, 2.0)
        compute_s = (whole_s**self._norm - memory_s**self._norm) ** (1 / self._norm)
        return float(flops * (1 + self._ramp[precision] / side) / self._utilisation(side, side, 1) / compute_s)

    def _compute(self, m: float, n: float, k: float, precision: Precision, batch: int, output_bytes: float) -> float:
        if min(m, n, k) <= 0 or batch <= 0:
            return 0.0
        rate = (
            self._surface[precision] if precision in self._surface else self._surface.setdefault(precision, self._surface_flops(precision))
        )
        compute_s = 2 * m * n * k * batch * (1 + self._ramp[precision] / k) / (rate * self._utilisation(m, n, batch))
        memory_s = self._memory_s(m, n, k, precision, batch, output_bytes)
        return float((compute_s**self._norm + memory_s**self._norm) ** (1 / self._norm))


def grouped_seconds(
    model: GemmModel,
    cluster: Cluster,
    *,
    m: float,
    n: float,
    k: float,
    groups: int,
    precision: Precision,
    kernel: GroupedKernel,
    output_bytes: float = 2.0,
) -> float:
    """Seconds of `groups` expert GEMMs, each [m, k] x [k, n] (m = rows of one expert; for wgrad m, n are the weight's sides).

    persistent: one kernel over all tiles, t = model(batch = groups) / q. loop: `groups` library GEMMs on several streams, of which the
    hardware runs c at a time: t = max(model(batch = groups) / q', groups / c x model(1)) + groups t0. sequential: groups (model(1) + t0).
    q, q', c and t0 (device-side gap of a kernel) are figures of the profile.
    Known error at 2,048 and 4,096 rows an expert on MI355X: persistent 8% on 11 timings, loop 10% on 25; with fewer rows published
    averages alone exist, which ask for 10 to 20% more.
    On 108 B200 points: loop 8-11% forward and dgrad; wgrad that accumulates in fp32 at few tokens an expert 20% slow; A100 5%.
    """
    if groups <= 0 or min(m, n, k) <= 0:
        return 0.0
    if groups == 1:
        return model.seconds(m, n, k, precision, output_bytes=output_bytes)
    figures = cluster.profile.figures
    gaps_s = groups * figures["grouped_loop_launch_s"]
    if kernel == "sequential":
        return groups * model.seconds(m, n, k, precision, output_bytes=output_bytes) + gaps_s
    together_s = model.seconds(m, n, k, precision, batch=groups, output_bytes=output_bytes)
    if kernel == "persistent":
        return together_s / grouped_efficiency(model, cluster)
    alone_s = model.seconds(m, n, k, precision, output_bytes=output_bytes)
    return max(together_s / figures["grouped_loop_efficiency"], groups / figures["grouped_loop_concurrency"] * alone_s) + gaps_s
