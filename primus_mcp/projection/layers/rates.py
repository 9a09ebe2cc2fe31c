"""What layers ask of the machine: one object per (cluster, GEMM backend) in front of `ops`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log
from typing import Literal

from primus_mcp.inputs.architecture import MixtureOfExperts
from primus_mcp.inputs.hardware import Cluster, Precision
from primus_mcp.projection.ops import attention, collectives, elementwise
from primus_mcp.projection.ops.gemm import GemmModel, GroupedKernel, grouped_seconds

Traffic = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "point_to_point"]


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """Shape to seconds inside a training step of one cluster. Compared by identity, so it can key a cache.

    Kernels bound by compute run at the profile's `step_efficiency` of the rate that it states for them alone. `measured`: (bytes,
    measured over modelled seconds) of collectives, where a measured run knows; the nearest size by ratio counts.
    """

    cluster: Cluster
    gemm: GemmModel
    measured: Mapping[Traffic, tuple[tuple[float, float], ...]] = field(default_factory=dict)

    def _factor(self, traffic: Traffic, num_bytes: float) -> float:
        points = self.measured.get(traffic)
        if not points or num_bytes <= 0:
            return 1.0
        return min(points, key=lambda point: abs(log(point[0] / num_bytes)))[1]

    @property
    def _in_step(self) -> float:
        return self.cluster.profile.figures["step_efficiency"]

    def gemm_s(self, m: float, n: float, k: float, precision: Precision, *, output_bytes: float = 2.0) -> float:
        """One GEMM [m, k] x [k, n]."""
        return self.gemm.seconds(m, n, k, precision, output_bytes=output_bytes) / self._in_step

    def grouped_s(
        self, m: float, n: float, k: float, precision: Precision, groups: int, kernel: GroupedKernel, *, output_bytes: float = 2.0
    ) -> float:
        """`groups` expert GEMMs."""
        alone_s = grouped_seconds(
            self.gemm, self.cluster, m=m, n=n, k=k, groups=groups, precision=precision, kernel=kernel, output_bytes=output_bytes
        )
        return alone_s / self._in_step

    def pass_s(self, num_bytes: float) -> float:
        """A kernel bound by HBM that moves `num_bytes`."""
        return elementwise.hbm_pass_s(self.cluster, num_bytes) if num_bytes else 0.0

    def attention_s(
        self,
        mbs: int,
        seq_length: int,
        heads: float,
        key_dim: int,
        value_dim: int,
        window: int | None,
        cp: int,
        *,
        latent: bool,
        flash: bool,
        fp8: bool = False,
        sinks: bool = False,
    ) -> tuple[float, float]:
        """(forward, backward) of the causal attention core on one rank with `heads` local heads, through the trainer's operator."""
        if not flash:
            return attention.math_attention_s(
                self.cluster,
                self.gemm,
                mbs=mbs,
                seq_length=seq_length,
                heads=max(1, round(heads)),
                qk_head_dim=key_dim,
                v_head_dim=value_dim,
                cp=cp,
                sinks=sinks,
            )
        forward_s, backward_s = attention.flash_attention_s(
            self.cluster,
            mbs=mbs,
            seq_length=seq_length,
            heads=heads,
            qk_head_dim=key_dim,
            v_head_dim=value_dim,
            window=window,
            cp=cp,
            latent=latent,
            fp8=fp8,
            sinks=sinks,
        )
        return forward_s / self._in_step, backward_s / (self._in_step * self.cluster.profile.figures["attention_backward_operator"])

    def all_gather_s(self, num_bytes: float, size: int, stride: int) -> float:
        """All-gather to `num_bytes` in all."""
        return collectives.all_gather_s(self.cluster, num_bytes, size, stride) * self._factor("all_gather", num_bytes)

    def reduce_scatter_s(self, num_bytes: float, size: int, stride: int) -> float:
        """Reduce-scatter of `num_bytes` in all."""
        return collectives.reduce_scatter_s(self.cluster, num_bytes, size, stride) * self._factor("reduce_scatter", num_bytes)

    def all_reduce_s(self, num_bytes: float, size: int, stride: int) -> float:
        """All-reduce of `num_bytes`."""
        return collectives.all_reduce_s(self.cluster, num_bytes, size, stride) * self._factor("all_reduce", num_bytes)

    def all_to_all_s(self, num_bytes: float, size: int, stride: int) -> float:
        """All-to-all in which each rank sends `num_bytes`."""
        return collectives.all_to_all_s(self.cluster, num_bytes, size, stride) * self._factor("all_to_all", num_bytes)

    def point_to_point_s(self, num_bytes: float, stride: int, size: int) -> float:
        """A send between neighbours of a pipeline of `size` ranks `stride` apart."""
        return collectives.point_to_point_s(self.cluster, num_bytes, stride, size) * self._factor("point_to_point", num_bytes)

    def expert_exchange_s(
        self, experts: MixtureOfExperts, tokens: float, token_bytes: float, ep: int, stride: int, *, deepep: bool, forced_balance: bool
    ) -> float:
        """One dispatch or combine of `tokens`."""
        exchange_s = collectives.expert_exchange_s(
            self.cluster,
            tokens=tokens,
            token_bytes=token_bytes,
            topk=experts.top_k,
            num_experts=experts.num_experts,
            ep=ep,
            stride=stride,
            deepep=deepep,
            forced_balance=forced_balance,
        )
        return exchange_s if deepep else exchange_s * self._factor("all_to_all", tokens * token_bytes * experts.top_k)
