"""Preset files: where `model:` and `config:` of a workload are found, and how `extends:` chains flatten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from primus_mcp.errors import InputError
from primus_mcp.inputs.findings import Finding
from primus_mcp.inputs.yaml_loader import is_file, load_yaml, substitute

Origin = Literal["workload", "--primus-root", "checkout", "bundled"]
Kind = Literal["models", "modules"]

MAX_CHAIN = 32
MAX_FILES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file that was read: what for, its path, and where it was found."""

    role: str
    path: str
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRoot:
    """A folder with `models/` and `modules/` below it: `primus/configs` of a checkout, or the bundled catalogue."""

    path: Path
    origin: Origin


@cache
def bundled_root() -> ConfigRoot:
    """The presets that come with this package."""
    with as_file(files("primus_mcp.catalog") / "primus") as path:
        return ConfigRoot(path=path, origin="bundled")


def _checkout_root(workload: Path) -> ConfigRoot | None:
    for parent in workload.resolve().parents:
        candidate = parent / "primus" / "configs"
        if candidate.is_dir():
            return ConfigRoot(path=candidate, origin="checkout")
    return None


def config_roots(workload: Path | None, primus_root: Path | None) -> tuple[ConfigRoot, ...]:
    """Where presets are looked for, in order: --primus-root, the checkout that the workload lies in, the bundled catalogue."""
    roots = []
    if primus_root is not None:
        candidates = (primus_root / "primus" / "configs", primus_root / "configs", primus_root)
        found = next((path for path in candidates if (path / "models").is_dir()), None)
        if found is None:
            raise InputError(f"{primus_root} has no primus/configs", where="--primus-root", remedy="name a Primus checkout")
        roots.append(ConfigRoot(path=found, origin="--primus-root"))
    if workload is not None and (checkout := _checkout_root(workload)) is not None:
        roots.append(checkout)
    return (*roots, bundled_root())


def deep_merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` wins; nested mappings merge (AMD-AGI/Primus@fd1eeabb core/config/merge_utils.py)."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = deep_merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _relative(name: Any, folder: PurePosixPath, where: str) -> PurePosixPath:
    """A preset name to its path below a root, `..` resolved; leaving the root is refused."""
    if not isinstance(name, str) or not name.strip() or "\0" in name:
        raise InputError(f"names {name!r}", where=where, remedy="write a file name such as llama3.1_8B.yaml")
    text = name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
    parts: list[str] = []
    for part in (folder / text).parts:
        if part == "..":
            if not parts:
                raise InputError(f"{name!r} leaves primus/configs", where=where, remedy="keep presets below primus/configs")
            parts.pop()
        elif part != ".":
            parts.append(part)
    if text.startswith("/"):
        raise InputError(f"{name!r} is an absolute path", where=where, remedy="keep presets below primus/configs")
    return PurePosixPath(*parts)


@dataclass(slots=True, kw_only=True)
class PresetReader:
    """Reads presets from the roots and remembers which files it read and what it noticed."""

    roots: tuple[ConfigRoot, ...]
    environment: Mapping[str, str]
    read: list[SourceFile] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def flatten(self, name: Any, kind: Kind, framework: str, where: str) -> dict[str, Any]:
        """The preset with its `extends:` chain below it. Raises InputError naming what is missing and where it was looked for."""
        folder = PurePosixPath(kind, framework)
        return self._chase(_relative(name, folder, where), where, ())

    def _find(self, relative: PurePosixPath, where: str) -> tuple[Path, Origin]:
        for root in self.roots:
            path = root.path.joinpath(*relative.parts)
            if is_file(path):
                return path, root.origin
        looked = ", ".join(root.origin if root.origin == "bundled" else str(root.path) for root in self.roots)
        names = {path.name for root in self.roots for path in root.path.joinpath(*relative.parent.parts).glob("*.yaml")}
        near = get_close_matches(relative.name, sorted(names), n=1, cutoff=0.8)
        meant = f"correct the name (did you mean {near[0]}?), or " if near else ""
        remedy = f"{meant}name a Primus checkout with --primus-root"
        raise InputError(f"{relative} was not found (looked in: {looked})", where=where, remedy=remedy)

    def _chase(self, relative: PurePosixPath, where: str, chain: tuple[PurePosixPath, ...]) -> dict[str, Any]:
        if relative in chain:
            cycle = " -> ".join(map(str, (*chain[chain.index(relative) :], relative)))
            raise InputError(f"extends itself: {cycle}", where=where, remedy="break the cycle")
        if len(chain) >= MAX_CHAIN:
            raise InputError(f"extends more than {MAX_CHAIN} files deep", where=where, remedy="shorten the chain")
        if len(self.read) >= MAX_FILES:
            raise InputError(f"extends more than {MAX_FILES} files", where=where, remedy="extend fewer")
        path, origin = self._find(relative, where)
        own = substitute(load_yaml(path), self.environment, str(path))
        self.read.append(SourceFile(role=str(relative), path=str(path), origin=origin))
        if "bases" in own:
            text = f"{relative} writes `bases:`, which Primus ignores (it reads `extends:`): {own.pop('bases')} is not merged"
            self.findings.append(Finding(code="bases-ignored", text=text))
        bases = own.pop("extends", None) or []
        merged: dict[str, Any] = {}
        for base in [bases] if isinstance(bases, str) else _listed(bases, str(path)):
            merged = deep_merge(merged, self._chase(_relative(base, relative.parent, str(path)), str(path), (*chain, relative)))
        return deep_merge(merged, own)


def _listed(bases: Any, where: str) -> list[Any]:
    if not isinstance(bases, list):
        raise InputError(f"extends is {bases!r}", where=where, remedy="write a file name or a list of them")
    return bases
