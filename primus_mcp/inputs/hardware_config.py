"""Primus's hardware YAML (`hardware_config:` block) to overrides of a Network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from primus_mcp.errors import InputError
from primus_mcp.inputs.explain_validation import validated
from primus_mcp.inputs.yaml_loader import load_yaml
from primus_mcp.units import GB_PER_S, US


def _number(value: object) -> object:
    """A YAML number; PyYAML reads `163.0e12` as text, which the trainer's float() takes."""
    if isinstance(value, bool):
        raise ValueError("is true or false, not a number")
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise ValueError("is not a number") from None
    return value


Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Bandwidth = Annotated[Number, Field(gt=0, le=100_000)]
Latency = Annotated[Number, Field(ge=0, le=1_000_000)]
Count = Annotated[int, Field(strict=True, ge=1, le=10_000_000)]


class _HardwareBlock(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    node_bw: Bandwidth | None = None
    node_lat: Latency | None = None
    pod_bw: Bandwidth | None = None
    pod_lat: Latency | None = None
    cluster_bw: Bandwidth | None = None
    cluster_lat: Latency | None = None
    node_size: Annotated[int, Field(strict=True, ge=2, le=4096)] | None = None
    pod_size: Count | None = None
    nics_per_node: Annotated[int, Field(strict=True, ge=1, le=4096)] | None = None
    switch_topology: Annotated[bool, Field(strict=True)] | None = None
    node_topology: Literal["mesh", "switch"] | None = None
    vector_flops: Annotated[Number, Field(gt=0)] | None = None


class _HardwareFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    hardware_config: _HardwareBlock


# key of the file -> (field of Network, factor to SI)
_FIELDS: dict[str, tuple[str, float | None]] = {
    "node_bw": ("node_bandwidth_bytes_per_s", GB_PER_S),
    "node_lat": ("node_latency_s", US),
    "pod_bw": ("nic_bandwidth_bytes_per_s", GB_PER_S),
    "pod_lat": ("nic_latency_s", US),
    "cluster_bw": ("cluster_bandwidth_bytes_per_s", GB_PER_S),
    "cluster_lat": ("cluster_latency_s", US),
    "vector_flops": ("vector_flops", None),
    "node_size": ("node_size", None),
    "pod_size": ("pod_size", None),
    "nics_per_node": ("nics_per_node", None),
    "switch_topology": ("switch_topology", None),
    "node_topology": ("node_topology", None),
}


def parse_hardware_config(document: dict[str, Any], where: str) -> dict[str, object]:
    """Fields of `Network` (SI) that the document sets. Bandwidths are GB/s (1e9), latencies us. Raises InputError."""
    if "hardware_config" not in document and set(document) & set(_FIELDS):
        raise InputError("the fields stand at the top level", where=where, remedy="indent them under `hardware_config:`")
    block = validated(_HardwareFile, document, where).hardware_config
    overrides: dict[str, object] = {}
    for key, value in block.model_dump(exclude_none=True).items():
        name, factor = _FIELDS[key]
        overrides[name] = value if factor is None else value * factor
    return overrides


def read_hardware_config(path: Path) -> dict[str, object]:
    """`parse_hardware_config` of a file."""
    return parse_hardware_config(load_yaml(path), str(path))
