"""A Hugging Face `config.json` as a workload, so that any decoder that transformers knows needs no Primus file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.argument_values import default_arguments
from primus_mcp.inputs.findings import Finding
from primus_mcp.inputs.huggingface import read_hf_config
from primus_mcp.inputs.model_workload import PLAIN_MODEL, ModelRun, default_findings, positive, workload_of
from primus_mcp.inputs.published import architecture_differences, same_model
from primus_mcp.inputs.workload import Workload
from primus_mcp.inputs.yaml_loader import parse_json, plain_data, read_text

CONFIG_NAME = "config.json"
_HF_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_SOURCE = "the trainer's own defaults"


def _read(source: Path | Mapping[str, Any]) -> tuple[Mapping[str, Any], str, str]:
    """(plain data, where, a name): the file's, or its folder's where the file is called config.json."""
    if not isinstance(source, Path):
        return plain_data(source, CONFIG_NAME), CONFIG_NAME, str(source.get("model_type", "model"))
    path = source / CONFIG_NAME if source.is_dir() else source
    stem = path.stem if path.name != CONFIG_NAME else path.absolute().parent.name
    return parse_json(read_text(path), str(path)), str(path), stem


def _tokenizer(document: Mapping[str, Any]) -> str | None:
    """The model's id on the hub where the file says it."""
    named = document.get("_name_or_path")
    return named if isinstance(named, str) and _HF_ID.fullmatch(named) else None


def _twin_finding(architecture: Architecture) -> tuple[Finding, ...]:
    twin = same_model(architecture)
    if twin is None:
        return ()
    text = f"the architecture is that of {twin.name} in the catalogue; --model {twin.name} also takes its batch, sequence and tokenizer"
    return (Finding(code="hf-catalogue-twin", text=text),)


def _not_built(built: Architecture, wanted: Architecture) -> tuple[Finding, ...]:
    """What Megatron has no argument for."""
    return tuple(
        Finding(code="differs-from-config", text=f"{field}: {ours} would run, config.json has {theirs}")
        for field, ours, theirs in architecture_differences(built, wanted)
    )


def _plain_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._-")[:100] or "model"


def workload_from_hf(
    source: Path | Mapping[str, Any],
    *,
    name: str | None = None,
    seq_length: int | None = None,
    gbs: int | None = None,
    mbs: int | None = None,
) -> Workload:
    """A config.json (a file, its folder, or its content) as a workload on one GPU's worth of parallelism.

    Sequence and batch that are None are the trainer's own defaults, the sequence at most the model's longest; the answer says so. The
    vocabulary is the rows of the embedding. The document is a complete Primus workload on mock data. Raises InputError for what cannot be
    understood, UnsupportedFeatureError for what cannot be priced.
    """
    document, where, own = _read(source)
    label = _plain_name(name or own)
    defaults = default_arguments()
    wanted = positive(seq_length, 1, "seq_length")
    model = read_hf_config(document, label, where, seq_length=wanted)
    arch = model.architecture
    usual = min(int(defaults["seq_length"]), arch.seq_length)
    run = ModelRun(
        name=label,
        architecture=arch,
        vocab_size=arch.vocab_size,
        tokenizer=_tokenizer(document),
        seq_length=usual if seq_length is None else wanted,
        gbs=positive(gbs, int(defaults["global_batch_size"]), "gbs"),
        mbs=positive(mbs, int(defaults["micro_batch_size"]), "mbs"),
        numbers=model.numbers,
    )
    taken = [("sequence", run.seq_length, seq_length), ("GBS", run.gbs, gbs), ("MBS", run.mbs, mbs)]
    findings = (*model.findings, *_twin_finding(arch), *default_findings(label, taken, _SOURCE))
    built = workload_of(run, preset=PLAIN_MODEL, findings=findings)
    return replace(built, findings=(*built.findings, *_not_built(built.architecture, arch)))
