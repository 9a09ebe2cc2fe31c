"""GPU profiles from `catalog/hardware/*.yaml`, and Primus's hardware YAML, to the records of `hardware.py`.

A catalogue figure is `{value, source, range?, note?}`, or a declared sibling rule `{derived_from: gpu, scale_with?: figure, source}`:
the sibling's figure at the same path, times own / sibling's `scale_with`. A figure that is neither raises UnknownFigureError when used.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, cast

from primus_mcp.errors import InputError, UnknownFigureError
from primus_mcp.inputs.catalogue import catalogue_names, catalogue_yaml
from primus_mcp.inputs.hardware import GpuProfile, Network, NodeTopology, Precision, SoftwareProfile, Vendor
from primus_mcp.units import GB_PER_S, KIB, MHZ, MIB, TFLOPS, US

PRECISIONS: tuple[Precision, ...] = ("bf16", "fp8", "fp4")
PROFILE_RATES = (
    "elementwise_hbm_efficiency",
    "gemm_hbm_efficiency",
    "link_efficiency",
    "all_to_all_link_efficiency",
    "deepep_link_efficiency",
    "nic_efficiency",
    "grouped_gemm_efficiency",
)
"""Rates of a software profile that fall back to those of the vendor's family."""
_MAX_DERIVATIONS = 4
_ENTRY_KEYS = frozenset({"value", "source", "range", "note", "derived_from", "scale_with", "fitted_on"})


class Figures(dict[str, float]):
    """Named rates; a missing one is an error that says so, never a default."""

    def __missing__(self, key: str) -> float:
        """Raises UnknownFigureError."""
        raise UnknownFigureError(f"no figure {key!r} in this software profile; add it with its source to catalog/hardware")


@lru_cache(maxsize=1)
def _documents() -> dict[str, dict[str, Any]]:
    """Every catalogue file by its name, GPU files and `family_*` files alike."""
    return {name: catalogue_yaml(f"hardware/{name}.yaml") for name in catalogue_names("hardware")}


def catalogue_document(name: str) -> Mapping[str, Any]:
    """The catalogue's own file of a GPU or of a family."""
    return _documents()[name]


@lru_cache(maxsize=1)
def _aliases() -> dict[str, str]:
    names = {name: name for name in _documents() if not name.startswith("family_")}
    for name in list(names):
        for alias in _documents()[name].get("aliases", ()):
            names[str(alias)] = name
    return names


def gpu_names() -> tuple[str, ...]:
    """The GPUs of the catalogue, without aliases, sorted."""
    return tuple(sorted(set(_aliases().values())))


def gpu_aliases() -> dict[str, str]:
    """Other names that the catalogue accepts, each with the GPU that it chooses (gfx950 chooses mi355x)."""
    return {alias: name for alias, name in sorted(_aliases().items()) if alias != name}


class _Reader:
    """Reads figures of one GPU file by dotted path, and remembers where each came from."""

    def __init__(
        self, name: str, document: Mapping[str, Any] | None = None, changed: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    ) -> None:
        self.name, self._changed = name, changed
        self.document = changed.get(name) or (catalogue_document(name) if document is None else document)
        self.sources: dict[str, str] = {}

    def raw(self, path: tuple[str, ...]) -> object:
        node: object = self.document
        for key in path:
            if not isinstance(node, Mapping) or key not in node:
                return None
            node = cast("Mapping[str, object]", node)[key]
        return node

    def figure(self, *path: str, depth: int = 0) -> float:
        """The number at a path, by its sibling rule if it has one. Raises UnknownFigureError when there is none."""
        label = ".".join(path)
        node = self.raw(path)
        if not isinstance(node, Mapping):
            raise UnknownFigureError(f"{self.name}: figure {label} is unknown and has no sibling rule")
        entry = cast("Mapping[str, Any]", node)
        source = str(entry.get("source", "")).strip()
        if not source:
            raise InputError(f"figure {label} has no source", where=f"catalog/hardware/{self.name}.yaml")
        unknown = sorted(set(entry) - _ENTRY_KEYS)
        if unknown:
            raise InputError(f"figure {label} has an unknown key {unknown[0]!r}", where=f"catalog/hardware/{self.name}.yaml")
        if "value" in entry:
            self.sources[label] = source
            return float(entry["value"])
        if depth >= _MAX_DERIVATIONS:
            raise InputError(f"figure {label} is derived in a circle", where=f"catalog/hardware/{self.name}.yaml")
        sibling = _Reader(str(entry["derived_from"]), changed=self._changed)
        value = sibling.figure(*path, depth=depth + 1)
        scale = entry.get("scale_with")
        if scale is not None:
            scale_path = str(scale).split(".")
            value *= self.figure(*scale_path, depth=depth + 1) / sibling.figure(*scale_path, depth=depth + 1)
        rule = f"derived from {sibling.name}" + (f" by the ratio of {scale}" if scale else "")
        self.sources[label] = f"{rule}: {source}"
        return value

    def figure_or_zero(self, *path: str) -> float:
        """A figure that only one backend needs, 0 where the file has none."""
        return self.figure(*path) if self.raw(path) is not None else 0.0


def _rates(reader: _Reader, *path: str) -> dict[Precision, float]:
    """TFLOP/s per precision at a path, as FLOP/s; a precision that the file leaves out is absent."""
    node = reader.raw(path)
    present = node if isinstance(node, Mapping) else {}
    return {precision: reader.figure(*path, precision) * TFLOPS for precision in PRECISIONS if precision in present}


def _named_figures(reader: _Reader, *path: str) -> dict[str, float]:
    """Figures of a block; a name that ends in `_us` is read in microseconds and stored under `_s`."""
    node = reader.raw(path)
    result: dict[str, float] = {}
    for key in node if isinstance(node, Mapping) else ():
        value = reader.figure(*path, str(key))
        name = str(key)
        if name.endswith("_us"):
            name, value = f"{name.removesuffix('_us')}_s", value * US
        result[name] = value
    return result


def _profile_paths(reader: _Reader, name: str) -> tuple[tuple[str, ...], ...]:
    """Where a profile's figures stand: its own block, then that of the profile it is `like` but for what it states itself."""
    path = ("profiles", name)
    like = reader.raw((*path, "like"))
    if like is None:
        return (path,)
    other = ("profiles", str(like))
    if not isinstance(reader.raw(other), Mapping) or reader.raw((*other, "like")) is not None:
        raise InputError(f"profile {name} is like {like}, which stands for itself nowhere", where=f"catalog/hardware/{reader.name}.yaml")
    return (path, other)


def _software_profile(reader: _Reader, family: _Reader, name: str) -> SoftwareProfile:
    paths = _profile_paths(reader, name)
    figures = _named_figures(family, "figures")
    sustained: dict[Precision, float] = {}
    for path in reversed(paths):
        figures |= _named_figures(reader, *path, "figures")
        sustained |= _rates(reader, *path, "sustained_tflops")

    def rate(key: str) -> float | None:
        stated = next((path for path in paths if reader.raw((*path, key)) is not None), None)
        return None if stated is None else reader.figure(*stated, key)

    def needed(key: str) -> float:
        found = rate(key)
        return reader.figure(*paths[0], key) if found is None else found

    rates = {key: found if (found := rate(key)) is not None else family.figure("rates", key) for key in PROFILE_RATES}
    attention = tuple(needed(f"attention_{direction}_tflops") * TFLOPS for direction in ("forward", "backward"))
    heads = tuple(".".join(path) + "." for path in reversed(paths))
    own = {text.removeprefix(head): source for head in heads for text, source in reader.sources.items() if text.startswith(head)}
    return SoftwareProfile(
        name=name,
        date=str(reader.raw((*paths[0], "date"))),
        since=str(reader.raw((*paths[0], "since")) or ""),
        sustained_flops=sustained,
        attention_forward_flops=attention[0],
        attention_backward_flops=attention[1],
        launch_s=family.figure("rates", "launch_us") * US,
        figures=Figures(figures),
        sources=family.sources | own,
        **rates,
    )


def _network(reader: _Reader) -> Network:
    topology = cast("NodeTopology", str(reader.raw(("network", "node_topology"))))
    return Network(
        node_topology=topology,
        node_size=round(reader.figure("network", "node_size")),
        node_bandwidth_bytes_per_s=reader.figure("network", "node_gb_per_s") * GB_PER_S,
        node_latency_s=reader.figure("network", "node_latency_us") * US,
        nic_bandwidth_bytes_per_s=reader.figure("network", "nic_gb_per_s") * GB_PER_S,
        nic_latency_s=reader.figure("network", "nic_latency_us") * US,
        nics_per_node=round(reader.figure("network", "nics_per_node")),
        pod_size=round(reader.figure("network", "pod_size")),
        cluster_bandwidth_bytes_per_s=reader.figure("network", "cluster_gb_per_s") * GB_PER_S,
        cluster_latency_s=reader.figure("network", "cluster_latency_us") * US,
        switch_topology=bool(reader.raw(("network", "switch_topology"))),
        vector_flops=reader.figure("network", "vector_tflops") * TFLOPS,
        spans_nodes=bool(reader.raw(("network", "spans_nodes")) or False),
    )


@lru_cache(maxsize=64)
def _load(name: str) -> GpuProfile:
    return read_profile(name, catalogue_document(name))


def read_profile(name: str, document: Mapping[str, Any], *, changed: Mapping[str, Mapping[str, Any]] = MappingProxyType({})) -> GpuProfile:
    """A document with every figure to a profile. `changed`: documents that replace the catalogue's, by name (for refits).

    Raises UnknownFigureError for a missing figure.
    """
    reader = _Reader(name, document, changed)
    vendor = cast("Vendor", str(reader.raw(("vendor",))))
    family = _Reader(f"family_{vendor}", changed=changed)
    names = [str(key) for key in cast("Mapping[str, object]", reader.raw(("profiles",)))]
    profiles = {profile: _software_profile(reader, family, profile) for profile in names}
    return GpuProfile(
        name=name,
        arch=str(reader.raw(("arch",))),
        vendor=vendor,
        compute_units=round(reader.figure("device", "compute_units")),
        peak_flops=_rates(reader, "device", "peak_tflops"),
        boost_clock_hz=reader.figure("device", "boost_clock_mhz") * MHZ,
        hbm_bytes=round(reader.figure("device", "hbm_usable_mib") * MIB),
        hbm_nominal_gb=reader.figure("device", "hbm_nominal_gb"),
        hbm_bandwidth_bytes_per_s=reader.figure("device", "hbm_gb_per_s") * GB_PER_S,
        supports_mxfp8=bool(reader.raw(("supports_mxfp8",))),
        network=_network(reader),
        profiles=profiles,
        default_profile=max(profiles, key=lambda key: profiles[key].date),
        shared_memory_bytes=round(reader.figure_or_zero("device", "shared_memory_kib") * KIB),
        l2_bytes=round(reader.figure_or_zero("device", "l2_kib") * KIB),
        sources=dict(reader.sources),
    )


def gpu_profile(name: str) -> GpuProfile:
    """The catalogue's GPU by name or alias, case-insensitive. Raises InputError with the closest match and the list."""
    key = name.strip().lower()
    if key not in _aliases():
        close = difflib.get_close_matches(key, _aliases(), n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise InputError(f"unknown GPU {name!r}", where="gpu_arch", remedy=f"{hint}known: {', '.join(gpu_names())}")
    return _load(_aliases()[key])


def with_network(network: Network, overrides: Mapping[str, object]) -> Network:
    """`network` with the fields that a hardware file sets."""
    return replace(network, **cast("dict[str, Any]", dict(overrides)))
