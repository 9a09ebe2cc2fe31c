"""Outputs of a host's tools to a cluster file, each value with where it comes from; what is not known is left out and said."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from primus_mcp.errors import InputError
from primus_mcp.inputs.catalogue import catalogue_yaml
from primus_mcp.inputs.cluster_file import MAX_GPUS_PER_NODE
from primus_mcp.inputs.detect_records import SeenGpu, SeenNic, ToolOutput, plain
from primus_mcp.inputs.hardware import GpuProfile
from primus_mcp.inputs.hardware_files import gpu_names, gpu_profile
from primus_mcp.units import GIB, MIB

NOMINAL_LEEWAY = 0.05
"""Tools count the memory before what firmware and driver keep: within 5% of the data sheet it is the whole GPU."""
_WHOLE = ("SPX", "NPS1")
_FABRIC = ("XGMI", "NVLINK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One value of the cluster file. `value` None: not known, `source` says why."""

    block: str
    key: str
    value: Any
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What goes into the file, in its order, and what a person should know."""

    found: tuple[Found, ...]
    sources: tuple[str, ...]
    notes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """The cluster file as plain data."""
        blocks: dict[str, Any] = {}
        for item in self.found:
            if item.value is not None:
                blocks.setdefault(item.block, {})[item.key] = item.value
        return blocks


@cache
def _names() -> Mapping[str, Any]:
    return catalogue_yaml("gpu_names.yaml")


def catalogue_name(gpu: SeenGpu) -> str | None:
    """The catalogue's GPU that the tools mean, by its whole name, else by its PCI device number; None: it has none."""
    if gpu.name is not None:
        plain_name = " ".join(gpu.name.lower().split())
        by_name = next((key for key, entry in _names().items() if re.fullmatch(entry["name"], plain_name)), None)
        if by_name is not None or re.search(r"mi\d{2}|[a-z]\d{2}", plain_name):
            return by_name
    number = (gpu.pci_device or "").lower()
    return next((key for key, entry in _names().items() if number in entry["pci"]), None)


def _refuse_parts(gpus: Sequence[SeenGpu], source: str) -> None:
    """A cluster of parts of GPUs cannot be priced: their links and memory are not those of the catalogue."""
    for index, gpu in enumerate(gpus):
        modes = [mode.upper() for mode in (gpu.compute_partition, gpu.memory_partition) if mode]
        if any(mode not in _WHOLE for mode in modes) or (gpu.partition_id or 0) > 0:
            shown = "/".join(modes) or f"partition {gpu.partition_id}"
            remedy = "use whole GPUs: amd-smi set --compute-partition SPX and --memory-partition NPS1"
            raise InputError(f"GPU {index} is partitioned ({plain(shown)})", where=source, remedy=remedy)
        if gpu.mig:
            raise InputError(f"GPU {index} is split into MIG instances", where=source, remedy="use whole GPUs: nvidia-smi -mig 0")


def _one_kind(gpus: Sequence[SeenGpu], source: str) -> SeenGpu:
    kinds = Counter(gpu.name or gpu.pci_device or "a GPU without a name" for gpu in gpus)
    if len(kinds) > 1:
        listed = ", ".join(f"{count} x {name}" for name, count in kinds.most_common(4))
        raise InputError(
            f"has different GPUs ({listed})", where=source, remedy="a cluster has one GPU model: give the output of a uniform host"
        )
    return gpus[0]


def _best(outputs: Sequence[ToolOutput]) -> ToolOutput:
    """The output that says most about the GPUs; all that list GPUs must agree."""
    lists = [output for output in outputs if output.gpus is not None]
    if not lists:
        raise InputError("no output lists GPUs", where="detect", remedy="add amd-smi static --json, rocm-smi --json or nvidia-smi -q -x")
    best = max(lists, key=lambda output: sum((gpu.name is not None) + (gpu.memory_mib is not None) for gpu in output.gpus or ()))
    if not best.gpus:
        raise InputError(
            "lists no GPU", where=best.source, remedy="check the driver and that the user may open the devices (groups render, video)"
        )
    for other in lists:
        if len(other.gpus or ()) != len(best.gpus):
            problem = f"lists {len(other.gpus or ())} GPUs, {best.source} lists {len(best.gpus)}"
            raise InputError(problem, where=other.source, remedy="give outputs of one host")
        names = {catalogue_name(gpu) for gpu in other.gpus or () if gpu.name is not None}
        if names and names != {catalogue_name(gpu) for gpu in best.gpus}:
            raise InputError(f"names other GPUs than {best.source}", where=other.source, remedy="give outputs of one host")
        _refuse_parts(other.gpus or (), other.source)
    return best


def _profile(gpu: SeenGpu, source: str) -> GpuProfile:
    name = catalogue_name(gpu)
    if name is None:
        shown = plain(gpu.name or gpu.pci_device or "a GPU without a name")
        remedy = f"describe it in a file (docs/add-a-gpu.md) and name that as gpu_arch; known: {', '.join(gpu_names())}"
        raise InputError(f"{shown!r} is not in the catalogue", where=source, remedy=remedy)
    return gpu_profile(name)


def _count(number: int, profile: GpuProfile, source: str) -> Found:
    if number > profile.network.node_size:
        problem = f"lists {number} GPUs, the links of a {profile.name} join {profile.network.node_size}"
        raise InputError(problem, where=source, remedy="are they partitioned? use whole GPUs (SPX, NPS1), and the output of one host")
    if number & (number - 1) and number != MAX_GPUS_PER_NODE:
        problem = f"lists {number} GPUs, and process groups need a power of two"
        raise InputError(problem, where=source, remedy="bring the missing ones back, or write gpus_per_node yourself")
    return Found(block="target_cluster", key="gpus_per_node", value=number, source=f"{source}: {number} GPUs")


def _memory(gpus: Sequence[SeenGpu], profile: GpuProfile, source: str) -> Found:
    """The catalogue's usable memory, which the tools do not know, unless the GPUs have clearly less than the data sheet says."""
    sizes = [gpu.memory_mib for gpu in gpus if gpu.memory_mib is not None]
    usable = f"the catalogue's usable {profile.hbm_bytes / GIB:.2f} GB are taken"
    key = {"block": "optimization", "key": "hbm_capacity_gb"}
    if not sizes:
        return Found(**key, value=None, source=f"{source} does not say; {usable}")
    seen_gb = min(sizes) * MIB / GIB
    if abs(seen_gb / profile.hbm_nominal_gb - 1) <= NOMINAL_LEEWAY:
        return Found(**key, value=None, source=f"{source}: {seen_gb:.2f} GB in all; {usable}")
    if seen_gb < profile.hbm_nominal_gb:
        return Found(**key, value=round(seen_gb, 2), source=f"{source}: less than the {profile.hbm_nominal_gb:.0f} GB of a {profile.name}")
    return Found(**key, value=None, source=f"{source}: {seen_gb:.2f} GB, more than a {profile.name} has; {usable}")


def _link_note(outputs: Sequence[ToolOutput], profile: GpuProfile) -> list[str]:
    notes = []
    for output in outputs:
        if output.links is None:
            continue
        kinds = Counter(output.links)
        listed = ", ".join(f"{count} {name}" for name, count in kinds.most_common(4)) or "none"
        if kinds and all(kind in _FABRIC for kind in kinds):
            notes.append(f"links between GPUs ({output.source}): {listed}; the catalogue's figures of a {profile.name} node are taken")
        else:
            notes.append(
                f"links between GPUs ({output.source}): {listed}; the catalogue assumes a fabric: set node_bw in a hardware_config"
            )
    return notes


def _nic_note(outputs: Sequence[ToolOutput], profile: GpuProfile) -> list[str]:
    seen = [output for output in outputs if output.nics]
    reference = f"the reference node of a {profile.name} has {profile.network.nics_per_node}"
    if not seen:
        return [f"NICs: not known; {reference} (--from a file of `rdma link`, or set nics_per_node in a hardware_config)"]
    notes = []
    for output in seen:
        active = [nic for nic in output.nics if nic.active is not False]
        kinds = "" if output.tool == "rdma link" else f" ({_kinds(active)})"
        state = "active ports" if any(nic.active for nic in active) else "controllers"
        notes.append(
            f"NICs ({output.source}): {len(active)} {state}{kinds}; which of them carry training traffic is not known; {reference}"
        )
    return notes


def _kinds(nics: Sequence[SeenNic]) -> str:
    return "; ".join(f"{count} x {name}" for name, count in Counter(nic.name for nic in nics).most_common(3))


def detect(outputs: Sequence[ToolOutput], *, nodes: int | None = None, this_host: bool = False) -> Detection:
    """What the outputs of one host say about a cluster of such hosts. Pure.

    Raises InputError for no GPU, different GPUs, parts of GPUs, a GPU that is not in the catalogue, and outputs that contradict each other.
    """
    best = _best(outputs)
    gpus = best.gpus or ()
    first = _one_kind(gpus, best.source)
    profile = _profile(first, best.source)
    unknown = "one host does not know; give --nodes N (1 is taken)"
    name = plain(first.name or f"PCI device {first.pci_device}")
    found = [
        Found(block="target_cluster", key="num_nodes", value=nodes, source="--nodes" if nodes is not None else unknown),
        _count(len(gpus), profile, best.source),
        Found(block="target_cluster", key="gpu_arch", value=profile.name, source=f"{best.source}: {name}"),
    ]
    if this_host:
        found += [
            Found(block="available_for_benchmark", key="has_gpu", value=True, source=best.source),
            Found(block="available_for_benchmark", key="benchmark_gpus", value=len(gpus), source=best.source),
        ]
    else:
        found.append(Found(block="available_for_benchmark", key="has_gpu", value=None, source="read from files: not known of this host"))
    found.append(_memory(gpus, profile, best.source))
    notes = (*_link_note(outputs, profile), *_nic_note(outputs, profile))
    return Detection(found=tuple(found), sources=tuple(output.source for output in outputs), notes=notes)


def cluster_yaml(detection: Detection) -> str:
    """The cluster file, each value with its source in a comment, what is not known as a comment alone."""
    lines = ["# Written by `primus-mcp detect`. Everything that is left out takes its documented default.", "# Read:"]
    lines += [f"#   {source}" for source in detection.sources]
    lines += [f"# {note}" for note in detection.notes]
    blocks = dict.fromkeys(item.block for item in detection.found)
    for block in blocks:
        items = [item for item in detection.found if item.block == block]
        head = f"{block}:" if any(item.value is not None for item in items) else f"# {block}:"
        lines += ["", head]
        for item in items:
            value = str(item.value).lower() if isinstance(item.value, bool) else item.value
            text = f"  {item.key}: {value}" if item.value is not None else f"  # {item.key}:"
            lines.append(f"{text:<26}  # {item.source}" if item.value is not None else f"{text} {item.source}")
    return "\n".join("".join(c if c.isprintable() else " " for c in line).rstrip() for line in lines) + "\n"
