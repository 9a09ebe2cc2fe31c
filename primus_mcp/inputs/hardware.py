"""The hardware records: a GPU, the dated software rates it sustains, and the network between GPUs. All SI units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Vendor = Literal["amd", "nvidia"]
NodeTopology = Literal["mesh", "switch"]
Precision = Literal["bf16", "fp8", "fp4"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SoftwareProfile:
    """Rates that kernels of one software date sustain on one GPU (rates only, never a model). Each figure's source is in the catalogue.

    `sustained_flops[precision]` is FLOP/s of an 8192^3 GEMM run back to back at the clock the GPU holds under load.
    """

    name: str
    date: str
    sustained_flops: Mapping[Precision, float]
    attention_forward_flops: float
    attention_backward_flops: float
    elementwise_hbm_efficiency: float
    gemm_hbm_efficiency: float
    link_efficiency: float
    all_to_all_link_efficiency: float
    deepep_link_efficiency: float
    nic_efficiency: float
    grouped_gemm_efficiency: float
    launch_s: float
    figures: Mapping[str, float]
    """Further named rates (seconds, fractions) that formulas look up by name; every one has its source in catalog/hardware."""
    sources: Mapping[str, str]
    since: str = ""
    """Year and month of the first software it stands for; empty: its date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Links that collectives use, per GPU and direction, before efficiency.

    `node_bandwidth_bytes_per_s` is one GPU's whole egress inside the node: on a `mesh` the sum over its (node_size - 1) links.
    """

    node_topology: NodeTopology
    node_size: int
    node_bandwidth_bytes_per_s: float
    node_latency_s: float
    nic_bandwidth_bytes_per_s: float
    nic_latency_s: float
    nics_per_node: int
    pod_size: int
    cluster_bandwidth_bytes_per_s: float
    cluster_latency_s: float
    switch_topology: bool
    vector_flops: float | None
    spans_nodes: bool = False
    """The links join `node_size` GPUs across several trays (NVL72), whatever `gpus_per_node` is."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GpuProfile:
    """One GPU model. `hbm_bytes` is what torch reports as usable; `peak_flops` is dense.

    Compared and hashed by identity (the catalogue loads each GPU once), so that a Cluster is a cheap cache key.
    """

    name: str
    arch: str
    vendor: Vendor
    compute_units: int
    peak_flops: Mapping[Precision, float]
    boost_clock_hz: float
    hbm_bytes: int
    hbm_nominal_gb: float
    hbm_bandwidth_bytes_per_s: float
    supports_mxfp8: bool
    network: Network
    profiles: Mapping[str, SoftwareProfile]
    default_profile: str
    sources: Mapping[str, str]
    shared_memory_bytes: int = 0
    """LDS of a compute unit; with `l2_bytes` (of one die) only the Origami backend reads it. 0: unknown."""
    l2_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The target: `num_nodes` x `gpus_per_node` of `gpu`, joined by `network`; `profile` names the software rates in force.

    `clock_ratio` scales the sustained rates (gpu_clock_mhz / boost clock). `hbm_bytes` is the cap that the search uses.
    """

    name: str
    num_nodes: int
    gpus_per_node: int
    gpu: GpuProfile
    network: Network
    profile: SoftwareProfile
    hbm_bytes: int
    memory_safety_margin: float
    clock_ratio: float

    @property
    def world_size(self) -> int:
        """GPUs in the cluster."""
        return self.num_nodes * self.gpus_per_node

    @property
    def tightly_linked_gpus(self) -> int:
        """GPUs that the fastest links join: those of a node, or of the trays that one switch spans (NVL72)."""
        return self.network.node_size if self.network.spans_nodes else self.gpus_per_node

    @property
    def memory_cap_bytes(self) -> float:
        """What the search allows: HBM x (1 - margin)."""
        return self.hbm_bytes * (1 - self.memory_safety_margin)
