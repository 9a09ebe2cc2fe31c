"""A GPU that the user describes in a YAML file of the catalogue's format; what it leaves out is taken from the GPU it is `based_on`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from primus_mcp.errors import InputError, UnknownFigureError
from primus_mcp.inputs.explain_validation import did_you_mean
from primus_mcp.inputs.hardware import GpuProfile
from primus_mcp.inputs.hardware_files import (
    PRECISIONS,
    PROFILE_RATES,
    catalogue_document,
    gpu_aliases,
    gpu_names,
    gpu_profile,
    read_profile,
)
from primus_mcp.inputs.yaml_loader import is_file, load_yaml
from primus_mcp.units import TFLOPS

_WORDS: Mapping[str, tuple[object, ...]] = {
    "vendor": ("amd", "nvidia"),
    "network.node_topology": ("mesh", "switch"),
    "network.switch_topology": (True, False),
    "network.spans_nodes": (True, False),
    "supports_mxfp8": (True, False),
}
_FREE = frozenset({"based_on", "arch", "aliases"})
_ENTRY = frozenset({"value", "source", "range", "note"})
_BY_PEAK = "device.peak_tflops."
_ORIGAMI = frozenset({"device.shared_memory_kib", "device.l2_kib"})
"""Figures that a GPU which Origami models must state: read as 0 where they are absent, they would give wrong times."""
MAX_FIGURE = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnGpu:
    """`given` are the figures of the user's file, `filled` those taken over: (figure, the rule that filled it)."""

    profile: GpuProfile
    based_on: str | None
    given: tuple[str, ...]
    filled: tuple[tuple[str, str], ...]


def _figures(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(dotted path, entry) of every figure of a document."""
    for key, value in node.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and ("value" in value or "derived_from" in value):
            yield path, value
        elif isinstance(value, Mapping):
            yield from _figures(value, f"{path}.")


def _words(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in node.items():
        path = f"{prefix}{key}"
        if not isinstance(value, Mapping):
            yield path, value
        elif "value" not in value and "derived_from" not in value:
            yield from _words(value, f"{path}.")


def _check_entry(path: str, entry: Mapping[str, Any], where: str) -> None:
    unknown = sorted(set(entry) - _ENTRY)
    if unknown:
        raise InputError(f"{path} has an unknown key {unknown[0]!r}", where=where, remedy=did_you_mean(unknown[0], sorted(_ENTRY)))
    value = entry["value"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not 0 < value <= MAX_FIGURE:
        raise InputError(f"{path}.value is {value!r}", where=where, remedy="write a finite number above 0, in the unit of its name")
    if not isinstance(entry.get("source"), str) or not entry["source"].strip():
        raise InputError(
            f"{path} has no source", where=where, remedy='write where the number comes from, such as source: "own measurement"'
        )


def _generic(path: str, profile: str | None) -> str:
    """A path with the profile's own name replaced, so that profiles of different names can be compared."""
    return path.replace(f"profiles.{profile}.", "profiles.*.", 1) if profile else path


def _check_shape(document: Mapping[str, Any], like: Mapping[str, Any], own: str | None, other: str, where: str) -> None:
    """Every figure and word of the file is one that the catalogue knows."""
    known = {_generic(path, other) for path, _ in _figures(like)} | {f"profiles.*.{rate}" for rate in PROFILE_RATES}
    known |= {f"{block}.{precision}" for block in ("device.peak_tflops", "profiles.*.sustained_tflops") for precision in PRECISIONS}
    for path, entry in _figures(document):
        generic = _generic(path, own)
        if generic not in known and not generic.startswith("profiles.*.figures."):
            raise InputError(f"{path} is no figure of a GPU", where=where, remedy=did_you_mean(generic, sorted(known)))
        _check_entry(path, entry, where)
    for path, value in _words(document):
        if path in _FREE or path in (f"profiles.{own}.date", f"profiles.{own}.since"):
            continue
        if path not in _WORDS:
            hint = "write {value: N, source: TEXT}" if _generic(path, own) in known else did_you_mean(path, sorted(known | set(_WORDS)))
            raise InputError(f"{path} is {value!r}", where=where, remedy=hint)
        if not any(value == allowed and type(value) is type(allowed) for allowed in _WORDS[path]):
            options = ", ".join(str(allowed).lower() for allowed in _WORDS[path])
            raise InputError(f"{path} is {value!r}", where=where, remedy=f"write one of {options}")


def _base(document: Mapping[str, Any], where: str) -> str | None:
    named = document.get("based_on")
    if named is None:
        return None
    known = {**{name: name for name in gpu_names()}, **gpu_aliases()}
    if not isinstance(named, str) or named.lower() not in known:
        raise InputError(f"based_on is {named!r}", where=where, remedy=did_you_mean(str(named), sorted(known)))
    return known[named.lower()]


def _profile_name(document: Mapping[str, Any], where: str) -> str | None:
    profiles = document.get("profiles")
    if profiles is None:
        return None
    if not isinstance(profiles, Mapping) or len(profiles) != 1:
        raise InputError(
            "profiles does not hold exactly one software profile", where=where, remedy="write one, such as `profiles: {own: ...}`"
        )
    return str(next(iter(profiles)))


def _put(document: dict[str, Any], path: str, value: object) -> None:
    *folders, last = path.split(".")
    node = document
    for folder in folders:
        node = node.setdefault(folder, {})
    node[last] = value


def _has(document: Mapping[str, Any], path: str) -> bool:
    node: object = document
    for key in path.split("."):
        if not isinstance(node, Mapping) or key not in node:
            return False
        node = node[key]
    return True


def _newest(gpu: GpuProfile) -> Mapping[str, Any]:
    """The catalogue's document with the default profile alone: a GPU of one's own has one."""
    document = catalogue_document(gpu.name)
    return {**document, "profiles": {gpu.default_profile: document["profiles"][gpu.default_profile]}}


def _scale(path: str, document: Mapping[str, Any], base: GpuProfile) -> tuple[float, str]:
    """Rates of compute follow the BF16 (or own) peak where the file gives it; everything else is taken as it is."""
    if ".sustained_tflops." in path or path.endswith(("attention_forward_tflops", "attention_backward_tflops")):
        precision = path.rsplit(".", 1)[-1] if ".sustained_tflops." in path else "bf16"
        peaks = {str(key): value for key, value in base.peak_flops.items()}
        if precision in peaks and _has(document, f"{_BY_PEAK}{precision}.value"):
            own = document["device"]["peak_tflops"][precision]["value"] * TFLOPS
            return own / peaks[precision], f"by the ratio of {_BY_PEAK}{precision}"
    return 1.0, ""


def _resolved(base: GpuProfile, path: str, entry: Mapping[str, Any]) -> float:
    """The value of the base's figure, whatever rule it comes from itself."""
    if "value" in entry:
        return float(entry["value"])
    sibling = catalogue_document(str(entry["derived_from"]))
    value = _resolved(base, path, dict(_figures(sibling))[path])
    scale = entry.get("scale_with")
    if scale is None:
        return value
    own, other = dict(_figures(catalogue_document(base.name)))[str(scale)], dict(_figures(sibling))[str(scale)]
    return value * _resolved(base, str(scale), own) / _resolved(base, str(scale), other)


def _fill(document: dict[str, Any], base: GpuProfile, own: str, other: str) -> list[tuple[str, str]]:
    """Takes over what the file leaves out; a precision without a peak of its own stays unknown."""
    like, filled, peaks = _newest(base), [], _peaks_given(document)
    for path, entry in _figures(like):
        target = path.replace(f"profiles.{other}.", f"profiles.{own}.", 1)
        precision = path.rsplit(".", 1)[-1]
        rate = ".sustained_tflops." in path or path.startswith(_BY_PEAK)
        if _has(document, target) or (rate and peaks and precision not in peaks):
            continue
        factor, rule = _scale(path, document, base)
        text = f"as {base.name}" + (f" {rule}" if rule else "")
        _put(document, target, {"value": _resolved(base, path, entry) * factor, "source": f"not given: {text}"})
        filled.append((target, text))
    for path, value in _words(like):
        target = path.replace(f"profiles.{other}.", f"profiles.{own}.", 1)
        if path != "aliases" and not _has(document, target):
            _put(document, target, value)
    return filled


def _peaks_given(document: Mapping[str, Any]) -> tuple[str, ...]:
    peaks = document.get("device", {}).get("peak_tflops", {}) if isinstance(document.get("device"), Mapping) else {}
    return tuple(peaks) if isinstance(peaks, Mapping) else ()


def _missing(document: Mapping[str, Any], like: GpuProfile, profile: str) -> tuple[list[str], list[str]]:
    """(figures, what no GPU can be without: words such as the kind of links, BF16 rates, caches) that `like` has and the document lacks."""
    reference, rename = _newest(like), (f"profiles.{like.default_profile}.", f"profiles.{profile}.", 1)
    words = [path for path, _ in _words(reference) if path != "aliases" and not path.endswith(".since")]
    needed = [*words, f"{_BY_PEAK}bf16", f"profiles.{like.default_profile}.sustained_tflops.bf16"]
    needed += [path for path, _ in _figures(reference) if path in _ORIGAMI]
    lists = ([path.replace(*rename) for path in paths] for paths in ([path for path, _ in _figures(reference)], needed))
    figures, essential = ([path for path in paths if not _has(document, path)] for paths in lists)
    return figures, essential


def parse_gpu(document: Mapping[str, Any], name: str, where: str) -> OwnGpu:
    """Checks the document and fills it from its base. Raises InputError that names the first wrong figure, or all missing ones."""
    base_name, own = _base(document, where), _profile_name(document, where)
    vendor = document.get("vendor", "amd")
    like_name = base_name or ("b200" if vendor == "nvidia" else "mi355x")
    like = gpu_profile(like_name)
    _check_shape(document, catalogue_document(like_name), own, like.default_profile, where)
    whole, profile = deepcopy(dict(document)), own or like.default_profile
    given = tuple(path for path, _ in _figures(document))
    whole.pop("based_on", None)
    filled = _fill(whole, like, profile, like.default_profile) if base_name else []
    figures, essential = _missing(whole, like, profile)
    if base_name is not None and essential:
        raise InputError(
            f"lacks {', '.join(essential)}", where=where, remedy="give them: with peaks of its own, a GPU takes over those precisions only"
        )
    try:
        if not essential:
            return OwnGpu(profile=read_profile(name, whole), based_on=base_name, given=given, filled=tuple(filled))
    except UnknownFigureError:
        if base_name is not None:
            raise
    missing = dict.fromkeys((*figures, *essential))
    raise InputError(f"lacks {', '.join(missing)}", where=where, remedy=f"give them, or add `based_on: {like_name}` to take them over")


@lru_cache(maxsize=16)
def _read(path: Path, _stamp: tuple[int, int]) -> OwnGpu:
    return parse_gpu(load_yaml(path), path.stem, str(path))


def read_gpu_file(path: Path) -> OwnGpu:
    """A user's GPU file, read once while it does not change. Raises InputError."""
    try:
        status = path.stat()
        stamp = (status.st_mtime_ns, status.st_size)
    except (OSError, ValueError):
        stamp = (0, 0)
    return _read(path, stamp)


def any_gpu(name: str, base: Path | None) -> GpuProfile:
    """A GPU of the catalogue, or of a YAML file: absolute, in the working directory, or beside the cluster file (`base`)."""
    if not name.lower().endswith((".yaml", ".yml")):
        return gpu_profile(name)
    path = Path(name).expanduser()
    beside = base / path if base is not None else path
    return read_gpu_file(beside if not is_file(path) and is_file(beside) else path).profile
