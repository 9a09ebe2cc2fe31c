"""The workload file itself: what it extends, which trainer module it has, and what at its top level nobody reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.argument_values import default_arguments, start_arguments
from primus_mcp.inputs.findings import Finding
from primus_mcp.inputs.presets import MAX_CHAIN, MAX_FILES, SourceFile, deep_merge
from primus_mcp.inputs.yaml_loader import load_yaml

PRETRAIN_MODULE = "pre_trainer"
TRAINER_MODULES = (PRETRAIN_MODULE, "post_trainer")
FRAMEWORKS: Mapping[str, str] = {"megatron": "megatron", "light-megatron": "megatron"}


def load_document(path: Path, chain: tuple[Path, ...] = ()) -> tuple[dict[str, Any], tuple[SourceFile, ...]]:
    """The file over the files that it extends (in its own folder or below), and every file read, the outermost first.

    Raises InputError for an unreadable file, a cycle, more than 32 files deep, or a file elsewhere.
    """
    own = load_yaml(path)
    resolved = path.resolve() if not path.is_symlink() else path.absolute()
    if resolved in chain:
        raise InputError(
            f"extends itself: {' -> '.join(item.name for item in (*chain, resolved))}", where=str(path), remedy="break the cycle"
        )
    if len(chain) >= MAX_CHAIN:
        raise InputError(f"extends more than {MAX_CHAIN} files deep", where=str(path), remedy="shorten the chain")
    read: tuple[SourceFile, ...] = (SourceFile(role="workload", path=str(path), origin="workload"),)
    bases = own.pop("extends", None) or []
    names = [bases] if isinstance(bases, str) else bases
    if not isinstance(names, list) or not all(isinstance(name, str) and name and "\0" not in name for name in names):
        raise InputError(f"extends is {bases!r}", where=str(path), remedy="write a file name or a list of them")
    merged: dict[str, Any] = {}
    for name in names:
        if PurePath(name).is_absolute() or ".." in PurePath(name).parts or PureWindowsPath(name).drive:
            raise InputError(f"extends {name[:200]!r}, outside of its own folder", where=str(path), remedy="keep both files in one folder")
        base, more = load_document(path.parent / name, (*chain, resolved))
        merged, read = deep_merge(merged, base), (*read, *more)
        if len(read) > MAX_FILES:
            raise InputError(f"extends more than {MAX_FILES} files", where=str(path), remedy="extend fewer")
    return deep_merge(merged, own), read


def trainer_module(document: Mapping[str, Any], where: str) -> tuple[str, Mapping[str, Any]]:
    """Name and content of the one trainer of a Megatron workload; everything else is named in the refusal."""
    modules = document.get("modules")
    if not isinstance(modules, dict) or not modules:
        raise InputError("has no `modules:`", where=where, remedy="name a Primus workload file (modules.pre_trainer)")
    name = next((name for name in TRAINER_MODULES if name in modules), None)
    if name is None:
        raise InputError(f"has no modules.pre_trainer, only {', '.join(modules)}", where=where, remedy="name a pretraining workload")
    if len(modules) > 1:
        raise UnsupportedFeatureError(f"several modules ({', '.join(modules)}) cannot be priced together", where=where)
    module = modules[name]
    if not isinstance(module, dict):
        raise InputError(f"modules.{name} is no mapping", where=where, remedy="write framework, config, model and overrides below it")
    for key in ("framework", "config", "model"):
        if not isinstance(module.get(key), str):
            raise InputError(f"modules.{name}.{key} is {module.get(key)!r}", where=where, remedy=f"write the {key} as a text")
    if module["framework"] not in FRAMEWORKS:
        raise UnsupportedFeatureError(f"the framework {module['framework']!r} cannot be priced", where=where, remedy="use megatron")
    return name, module


def overrides_of(name: str, module: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The module's overrides; none where it has none."""
    overrides = module.get("overrides")
    if overrides is None:
        return {}
    if not isinstance(overrides, dict):
        raise InputError(f"modules.{name}.overrides is no mapping", where=where, remedy="write `key: value` lines below it")
    return overrides


def misplaced_keys(document: Mapping[str, Any], name: str) -> tuple[Finding, ...]:
    """Trainer arguments at the top level of the file, where Primus reads none of them."""
    misplaced = [key for key in document if key in {*default_arguments(), *start_arguments()}]
    if not misplaced:
        return ()
    text = f"{', '.join(misplaced)} at the top level of the file are not read; write them into modules.{name}.overrides"
    return (Finding(code="misplaced-keys", text=text),)
