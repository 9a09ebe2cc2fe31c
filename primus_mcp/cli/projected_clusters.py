"""The clusters that the flags of `memory`, `performance` and `both` name: a GPU or several, on one size or several, or a cluster file."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from primus_mcp.cli.common import MAX_LISTED, listed_gpus, listed_nodes, positive_number
from primus_mcp.cli.flags import of_flags
from primus_mcp.errors import InputError

if TYPE_CHECKING:
    from primus_mcp.inputs.cluster import TargetCluster
    from primus_mcp.inputs.hardware import Cluster

GPU_VARIABLE, CLOCK_VARIABLE = "PRIMUS_GPU_ARCH", "PRIMUS_GPU_CLOCK_MHZ"
_FLAGS_OF_A_FILE = {"arch": "--gpu-arch", "gpus_per_node": "--gpus-per-node", "gpu_clock_mhz": "--gpu-clock-mhz"}
"""What a cluster file says itself."""
_FLAGS = {"num_nodes": "--target-nodes", "gpus_per_node": "--gpus-per-node", "gpu_clock_mhz": "--gpu-clock-mhz"}
"""What stands for a key of a cluster file."""


def named_clusters(arguments: argparse.Namespace, fewest: int, per_node: int) -> list[Cluster]:
    """One a GPU and number of nodes (else the `fewest`), under the checks of a cluster file; what is odd about them goes to stderr. Raises
    InputError.
    """
    from primus_mcp.inputs.hardware_config import read_hardware_config

    sizes = listed_nodes(arguments.nodes, "--target-nodes") if arguments.nodes is not None else []
    overrides = read_hardware_config(arguments.hardware_config) if arguments.hardware_config else {}
    if arguments.target_cluster is not None:
        return _clusters_of_file(arguments, sizes, overrides)
    text = os.environ.get(GPU_VARIABLE, "") if arguments.arch is None else arguments.arch
    source = GPU_VARIABLE if arguments.arch is None else "--gpu-arch"
    if not text:
        remedy = f"name one (see `primus-mcp gpus`), or set {GPU_VARIABLE}, or --target-cluster"
        raise InputError("no GPU is named", where="--gpu-arch", remedy=remedy)
    gpus = listed_gpus(text, source)
    if len(gpus) * len(sizes) > MAX_LISTED:
        raise InputError(f"{len(gpus) * len(sizes):,} clusters are too many", where=source, remedy=f"compare at most {MAX_LISTED}")
    block: dict[str, Any] = {"gpus_per_node": per_node, "gpu_clock_mhz": arguments.gpu_clock_mhz or _clock_of_environment()}
    if arguments.hardware_config:
        block["hardware_config"] = str(arguments.hardware_config.absolute())
    found = [
        _cluster(arguments, {**block, "gpu_arch": name, "num_nodes": nodes}, source=source) for name in gpus for nodes in sizes or (fewest,)
    ]
    _tell(warning for target in found for warning in target.warnings)
    return [target.cluster for target in found]


def _cluster(arguments: argparse.Namespace, block: dict[str, Any], *, source: str) -> TargetCluster:
    """`source`: the flag or variable that names the GPU."""
    from primus_mcp.inputs.cluster import parse_cluster

    clock = {} if arguments.gpu_clock_mhz else {"gpu_clock_mhz": CLOCK_VARIABLE}
    try:
        return parse_cluster({"target_cluster": block}, where="--gpu-arch", profile=arguments.profile, own_gpus=True)
    except InputError as error:
        told = of_flags(error, {**_FLAGS, **clock})
        raise (InputError(told.problem, where=source, remedy=told.remedy) if told.where == "--gpu-arch" else told) from None


def _clusters_of_file(arguments: argparse.Namespace, sizes: list[int], overrides: dict[str, object]) -> list[Cluster]:
    from primus_mcp.inputs.cluster import read_cluster
    from primus_mcp.inputs.hardware_files import with_network

    for name, flag in _FLAGS_OF_A_FILE.items():
        if getattr(arguments, name):
            raise InputError("excludes --target-cluster", where=flag, remedy="write it into the file, or leave the file out")
    target = read_cluster(arguments.target_cluster, primus_root=arguments.primus_root, profile=arguments.profile)
    base, network = target.cluster, with_network(target.cluster.network, overrides)
    _tell(target.warnings)
    return [replace(base, num_nodes=nodes, network=network) for nodes in sizes or (base.num_nodes,)]


def _clock_of_environment() -> float | None:
    """MHz; said wherever it is used, so that a forgotten variable changes no answer in silence."""
    text = os.environ.get(CLOCK_VARIABLE)
    if not text:
        return None
    try:
        clock = positive_number(text)
    except argparse.ArgumentTypeError as error:
        raise InputError(str(error), where=CLOCK_VARIABLE, remedy="give the clock in MHz, or unset it") from None
    _tell([f"{CLOCK_VARIABLE} sets the clock of the GPUs to {clock:g} MHz"])
    return clock


def _tell(lines: Iterable[str]) -> None:
    for line in dict.fromkeys(lines):
        print(f"note: {line}", file=sys.stderr)
