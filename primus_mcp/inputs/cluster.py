"""A target-cluster YAML to the Cluster record, with the GPU's profile, the network of its hardware file and the memory cap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from primus_mcp.errors import InputError
from primus_mcp.inputs.cluster_file import (
    DEFAULT_MARGIN,
    AgentSettings,
    AxisToggles,
    BenchmarkHost,
    Budget,
    ClusterFile,
    Optimization,
    StatedPrice,
)
from primus_mcp.inputs.explain_validation import did_you_mean, validated
from primus_mcp.inputs.hardware import Cluster, GpuProfile, Network, SoftwareProfile
from primus_mcp.inputs.hardware_config import read_hardware_config
from primus_mcp.inputs.hardware_files import gpu_profile, with_network
from primus_mcp.inputs.own_gpu import any_gpu
from primus_mcp.inputs.yaml_loader import is_file, load_yaml
from primus_mcp.units import GIB, MHZ

_CLOCK_LEEWAY, _CAPACITY_LEEWAY = 1.2, 1.02
"""A clock or a capacity beyond so many times the GPU's own is told: it is more than overclocking or rounding explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCluster:
    """What a cluster file says, resolved. `warnings` are sentences; `hardware_config_path` is the file that was found."""

    file: ClusterFile
    cluster: Cluster
    where: str
    hardware_config_path: Path | None
    warnings: tuple[str, ...]

    @property
    def price(self) -> StatedPrice | None:
        """What the file says a GPU hour costs."""
        return self.file.target_cluster.price

    @property
    def optimization(self) -> Optimization:
        """Objective, memory cap, budget, axes."""
        return self.file.optimization

    @property
    def budget(self) -> Budget:
        """Limits of the search."""
        return self.file.optimization.budget

    @property
    def axes(self) -> AxisToggles:
        """Which axes the search may move."""
        return self.file.optimization.axes

    @property
    def benchmark_host(self) -> BenchmarkHost:
        """GPUs of this host."""
        return self.file.available_for_benchmark

    @property
    def agent(self) -> AgentSettings:
        """LLM settings."""
        return self.file.agent


def software_profile(gpu: GpuProfile, name: str | None = None) -> SoftwareProfile:
    """The GPU's dated software profile by name; None: the newest. Raises InputError with the list."""
    if name is None:
        return gpu.profiles[gpu.default_profile]
    if name not in gpu.profiles:
        raise InputError(f"{gpu.name} has no software profile {name!r}", where="profile", remedy=did_you_mean(name, sorted(gpu.profiles)))
    return gpu.profiles[name]


def make_cluster(
    gpu_arch: str | GpuProfile = "mi355x",
    *,
    num_nodes: int = 1,
    gpus_per_node: int = 8,
    name: str | None = None,
    network: Network | None = None,
    profile: str | None = None,
    hbm_capacity_gb: float | None = None,
    memory_safety_margin: float = DEFAULT_MARGIN,
    gpu_clock_mhz: float | None = None,
) -> Cluster:
    """A Cluster from plain values; what is None comes from the catalogue. `gpu_arch`: a name of it, or a profile of one's own."""
    gpu = gpu_arch if isinstance(gpu_arch, GpuProfile) else gpu_profile(gpu_arch)
    return Cluster(
        name=name or f"{gpu.name}_{num_nodes}nodes",
        num_nodes=num_nodes,
        gpus_per_node=gpus_per_node,
        gpu=gpu,
        network=network or gpu.network,
        profile=software_profile(gpu, profile),
        hbm_bytes=gpu.hbm_bytes if hbm_capacity_gb is None else round(hbm_capacity_gb * GIB),
        memory_safety_margin=memory_safety_margin,
        clock_ratio=1.0 if gpu_clock_mhz is None else gpu_clock_mhz * MHZ / gpu.boost_clock_hz,
    )


def _is_primus_checkout(folder: Path) -> bool:
    return (folder / "primus" / "configs").is_dir() or (folder / "examples" / "hardware_configs").is_dir()


def find_hardware_config(text: str, *, base: Path | None, primus_root: Path | None, where: str) -> Path:
    """The hardware file: absolute, else beside the cluster file, in a Primus checkout that holds it, in the working directory, in the
    Primus root. Raises InputError that lists where it looked.
    """
    path = Path(text).expanduser()
    folders: list[Path] = []
    if not path.is_absolute():
        if base is not None:
            folders += [base, *(parent for parent in base.resolve().parents if _is_primus_checkout(parent))]
        folders.append(Path.cwd())
        folders += [primus_root] if primus_root is not None else []
    candidates = [path] if path.is_absolute() else list(dict.fromkeys((folder / path).absolute() for folder in folders))
    for candidate in candidates:
        if is_file(candidate):
            return candidate
    looked = ", ".join(str(candidate) for candidate in candidates)
    remedy = "give the path from the cluster file, or --primus-root, or leave it out to use the catalogue's own network"
    raise InputError(f"target_cluster.hardware_config = {text!r}: not found; looked at {looked}", where=where, remedy=remedy)


def _warnings(file: ClusterFile, cluster: Cluster) -> tuple[str, ...]:
    notes: list[str] = []
    network, gpu = cluster.network, cluster.gpu
    asked = file.target_cluster.gpu_arch.strip().lower()
    if asked == gpu.arch and asked != gpu.name:
        notes.append(f"gpu_arch {asked} names several GPUs; {gpu.name} is taken")
    if cluster.hbm_bytes > gpu.hbm_nominal_gb * GIB * _CAPACITY_LEEWAY:
        notes.append(f"hbm_capacity_gb {cluster.hbm_bytes / GIB:.1f} is more than a {gpu.name} has ({gpu.hbm_nominal_gb:.0f} GB)")
    elif cluster.hbm_bytes > gpu.hbm_bytes:
        usable = gpu.hbm_bytes / GIB
        notes.append(f"hbm_capacity_gb {cluster.hbm_bytes / GIB:.2f} is nominal; a {gpu.name} has {usable:.2f} GB usable")
    if cluster.clock_ratio > _CLOCK_LEEWAY:
        notes.append(f"gpu_clock_mhz is {cluster.clock_ratio:.2f} times the boost clock of a {gpu.name}")
    if not network.spans_nodes and cluster.gpus_per_node > network.node_size:
        notes.append(f"gpus_per_node {cluster.gpus_per_node} is more than the {network.node_size} GPUs that the node's links join")
    shared_by_design = cluster.gpus_per_node == gpu.network.node_size and network.nics_per_node == gpu.network.nics_per_node
    if network.nics_per_node < cluster.gpus_per_node and cluster.num_nodes > 1 and not shared_by_design:
        notes.append(f"{cluster.gpus_per_node} GPUs of a node share {network.nics_per_node} NICs")
    host = file.available_for_benchmark
    if host.has_gpu and host.benchmark_gpus == 0:
        notes.append("has_gpu is true but benchmark_gpus is 0: nothing can be measured")
    return tuple(notes)


def parse_cluster(
    document: Mapping[str, Any],
    *,
    where: str,
    base: Path | None = None,
    primus_root: Path | None = None,
    profile: str | None = None,
    own_gpus: bool = False,
) -> TargetCluster:
    """Plain YAML data to a resolved cluster. `base` is the folder that relative paths start from. Raises InputError, one line each.

    With `own_gpus`, gpu_arch may name a YAML file: only where whoever wrote the document may also read the file system.
    """
    file = validated(ClusterFile, dict(document), where)
    target, optimization = file.target_cluster, file.optimization
    try:
        gpu = any_gpu(target.gpu_arch, base) if own_gpus else gpu_profile(target.gpu_arch)
        if file.available_for_benchmark.benchmark_arch is not None:
            gpu_profile(file.available_for_benchmark.benchmark_arch)
    except InputError as error:
        own_name = where.startswith("--") and error.where == "gpu_arch"  # the flag is the name of the GPU
        raise InputError(error.problem, where=where if own_name else f"{where}: {error.where}", remedy=error.remedy) from None
    found: Path | None = None
    network = gpu.network
    if target.hardware_config is not None:
        found = find_hardware_config(target.hardware_config, base=base, primus_root=primus_root, where=where)
        network = with_network(network, read_hardware_config(found))
    cluster = make_cluster(
        gpu,
        num_nodes=target.num_nodes,
        gpus_per_node=target.gpus_per_node,
        name=target.name,
        network=network,
        profile=profile,
        hbm_capacity_gb=optimization.hbm_capacity_gb,
        memory_safety_margin=optimization.memory_safety_margin,
        gpu_clock_mhz=target.gpu_clock_mhz,
    )
    return TargetCluster(file=file, cluster=cluster, where=where, hardware_config_path=found, warnings=_warnings(file, cluster))


def read_cluster(path: Path, *, primus_root: Path | None = None, profile: str | None = None, nodes: int | None = None) -> TargetCluster:
    """A target-cluster file, resolved; `nodes` replaces its num_nodes and is told in the name. Raises InputError, one line each."""
    path = Path(path)
    document = load_yaml(path)
    target = document.get("target_cluster")
    if nodes is not None and isinstance(target, Mapping):
        named = {"name": f"{target['name']}_{nodes}nodes"} if target.get("name") else {}
        document = {**document, "target_cluster": {**target, **named, "num_nodes": nodes}}
    return parse_cluster(document, where=str(path), base=path.absolute().parent, primus_root=primus_root, profile=profile, own_gpus=True)
