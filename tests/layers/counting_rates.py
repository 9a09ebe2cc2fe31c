"""Rates that count: a collective takes one second a byte, a GEMM one a FLOP, a pass one a byte, and all are listed."""

from __future__ import annotations

from dataclasses import dataclass, field

from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware import Precision
from primus_mcp.projection.layers.rates import Rates
from primus_mcp.projection.ops.gemm import RooflineGemm


@dataclass(frozen=True, slots=True, eq=False)
class CountingRates(Rates):
    """`transfers`: (collective, bytes) in order; `products`: (m, n, k); `passed`: bytes through HBM."""

    transfers: list[tuple[str, float]] = field(default_factory=list)
    products: list[tuple[float, float, float]] = field(default_factory=list)
    passed: list[float] = field(default_factory=list)

    def _moved(self, name: str, num_bytes: float, size: int) -> float:
        if size > 1:
            self.transfers.append((name, num_bytes))
        return num_bytes if size > 1 else 0.0

    def all_gather_s(self, num_bytes: float, size: int, stride: int) -> float:
        return self._moved("all_gather", num_bytes, size)

    def reduce_scatter_s(self, num_bytes: float, size: int, stride: int) -> float:
        return self._moved("reduce_scatter", num_bytes, size)

    def all_reduce_s(self, num_bytes: float, size: int, stride: int) -> float:
        return self._moved("all_reduce", num_bytes, size)

    def gemm_s(self, m: float, n: float, k: float, precision: Precision, *, output_bytes: float = 2.0) -> float:
        self.products.append((m, n, k))
        return 2 * m * n * k

    def pass_s(self, num_bytes: float) -> float:
        self.passed.append(num_bytes)
        return num_bytes


def counting_rates() -> CountingRates:
    """A fresh one: layer costs are memoised on the object."""
    cluster = make_cluster("mi355x")
    return CountingRates(cluster, RooflineGemm(cluster))
