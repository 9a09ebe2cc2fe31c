"""A Primus workload file to the records that everything else works on: which model, which baseline, from which files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from primus_mcp.errors import UnsupportedFeatureError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.argument_values import Arguments, complete_arguments, default_arguments, is_one_of
from primus_mcp.inputs.built_model import read_architecture
from primus_mcp.inputs.catalogue import catalogue_yaml
from primus_mcp.inputs.findings import Finding
from primus_mcp.inputs.override_findings import unknown_overrides
from primus_mcp.inputs.presets import PresetReader, SourceFile, config_roots, deep_merge
from primus_mcp.inputs.published import differences, published_twin
from primus_mcp.inputs.trainer_arguments import read_training
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.inputs.training_findings import corrections_to_run, training_findings
from primus_mcp.inputs.vocabulary import Vocab
from primus_mcp.inputs.workload_file import FRAMEWORKS, PRETRAIN_MODULE, load_document, misplaced_keys, overrides_of, trainer_module
from primus_mcp.inputs.yaml_loader import substitute


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a workload file resolves to.

    `arguments` are the flattened, complete trainer arguments (module <- model <- overrides): a plain dict that nobody changes, because a
    trial is `read_training({**arguments, **changes}, architecture)` and unpacking a proxy is ten times slower. `document` is the raw
    file, placeholders included, for overlays. `corrections` are keys that must be written into every overlay, because the file as it
    stands would stop the trainer (they are part of `arguments`, each with a finding). `module` is the entry of `modules:` that trains.
    `digest` covers the arguments that the engine reads and the vocabulary, so that logging or learning-rate keys do not change it.
    """

    name: str
    path: Path | None
    architecture: Architecture
    baseline: TrainingConfig
    arguments: Mapping[str, Any]
    document: Mapping[str, Any]
    files: tuple[SourceFile, ...]
    findings: tuple[Finding, ...]
    digest: str
    corrections: Mapping[str, Any] = field(default_factory=dict)
    module: str = PRETRAIN_MODULE


@cache
def _unsupported() -> Mapping[str, Mapping[str, Any]]:
    return catalogue_yaml("primus/unsupported.yaml")


def _refuse_unpriced(arguments: Arguments, where: str) -> None:
    for key, rule in _unsupported().items():
        if key in arguments and not is_one_of(arguments[key], rule["priced"]):
            shown = str(arguments[key])
            shown = shown if len(shown) <= 40 else f"{shown[:40]}..."
            raise UnsupportedFeatureError(f"{rule['feature']} ({key}: {shown}) cannot be priced", where=where)


def _digest(arguments: Arguments, architecture: Architecture) -> str:
    relevant = {key: arguments[key] for key in sorted(default_arguments())}
    relevant["vocabulary"] = [architecture.vocab_size, architecture.vocab_source]
    return hashlib.sha256(json.dumps(relevant, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def workload_from_arguments(
    arguments: Arguments,
    name: str,
    *,
    vocab: Vocab = "as-run",
    path: Path | None = None,
    module: str = PRETRAIN_MODULE,
    document: Mapping[str, Any] | None = None,
    read: tuple[SourceFile, ...] = (),
    findings: tuple[Finding, ...] = (),
) -> Workload:
    """Flattened trainer arguments to a workload. `name` is the model's preset, by which its published twin is found."""
    complete = complete_arguments(arguments)
    _refuse_unpriced(complete, str(path) if path else name)
    corrections, corrected = corrections_to_run(complete)
    complete |= corrections
    architecture, told = read_architecture(complete, name, vocab)
    baseline = read_training(complete, architecture)
    published = published_twin(architecture, complete["tokenizer_model"])
    compared = differences(architecture, published) if published else []
    return Workload(
        name="".join(c if c.isprintable() else "_" for c in path.stem) if path else name,
        path=path,
        architecture=architecture,
        baseline=baseline,
        arguments=complete,
        module=module,
        document=document or {},
        files=read,
        corrections=corrections,
        findings=(*findings, *corrected, *told, *training_findings(complete, architecture, baseline), *compared),
        digest=_digest(complete, architecture),
    )


def read_workload(
    path: Path,
    *,
    primus_root: Path | None = None,
    vocab: Vocab = "as-run",
    environment: Mapping[str, str] | None = None,
    gbs: int | None = None,
) -> Workload:
    """A workload YAML to its records.

    The order is the trainer's: module presets, model presets (they share no key), overrides (AMD-AGI/Primus@fd1eeabb
    core/launcher/parser.py). `environment` fills `${VAR:default}` (default: the process's). `gbs` replaces the global batch size.
    Raises InputError for anything unreadable, UnsupportedFeatureError for what cannot be priced.
    """
    where = str(path)
    environment = os.environ if environment is None else environment
    raw, files_read = load_document(path)
    document = substitute(raw, environment, where)
    name, module = trainer_module(document, where)
    framework = FRAMEWORKS[module["framework"]]
    reader = PresetReader(roots=config_roots(path, primus_root), environment=environment)
    trainer = reader.flatten(module["config"], "modules", framework, f"{where}: modules.{name}.config")
    model = reader.flatten(module["model"], "models", framework, f"{where}: modules.{name}.model")
    presets = deep_merge(trainer, model)
    overrides = overrides_of(name, module, where)
    arguments = deep_merge(presets, overrides)
    if gbs is not None:
        arguments["global_batch_size"] = gbs
    return workload_from_arguments(
        arguments,
        PurePosixPath(module["model"]).name.removesuffix(".yaml").removesuffix(".yml"),
        vocab=vocab,
        path=path,
        module=name,
        document=raw,
        read=(*files_read, *reader.read),
        findings=(*misplaced_keys(document, name), *reader.findings, *unknown_overrides(overrides, presets)),
    )
