"""The architecture of a row: its model's name looked up in the catalogue, or the shape that the row states."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from primus_mcp.errors import InputError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.catalogue import catalogue_yaml
from primus_mcp.inputs.published import PublishedModel, find_model, plain_spelling
from primus_mcp.validation.errors import NotScoredError
from primus_mcp.validation.rows import Row

_QUALIFIER = re.compile(r"\(([^)]*)\)")
_SLICE = re.compile(r",.*$")
_SIZE = re.compile(r"[\s_-]+([\d.]+)([BbTt])$")
_BILLION, _TRILLION = 1e9, 1e12
_SAME_SIZE = 0.15
"""How far the size behind a name may be from the published count: `DeepSeek-V3 671B` is it, `GPT3-5B` is not GPT-3 175B."""
_GPT_VOCABULARY = 51_200


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """`name` is the catalogue's where it has the model, else None: the shape is the row's own or that of catalog/measured/models.yaml."""

    name: str | None
    architecture: Architecture
    assumptions: tuple[str, ...] = ()


def bare_name(text: str) -> str:
    """A model's name without what is said in brackets or behind a comma (`(w/o MTP)`, `, 4 layers`)."""
    return _SLICE.sub("", _QUALIFIER.sub("", text)).strip()


def qualifiers(text: str) -> tuple[str, ...]:
    """What is said in brackets, in lower case."""
    return tuple(found.strip().lower() for found in _QUALIFIER.findall(text))


@cache
def _other_models() -> Mapping[str, Mapping[str, Any]]:
    entries = catalogue_yaml("measured/models.yaml")["models"]
    return {plain_spelling(name): entry for entry in entries for name in entry["names"]}


def _gpt(name: str, shape: Mapping[str, Any], seq_length: int) -> Architecture:
    """A GPT with learned positions, biases, GELU, LayerNorm and one head width: the shape gives depth, width, heads and vocabulary."""
    layers, hidden, heads = (int(shape[key]) for key in ("num_layers", "hidden", "heads"))
    return Architecture(
        name=name,
        num_layers=layers,
        hidden_size=hidden,
        ffn_hidden_size=int(shape.get("ffn") or 4 * hidden),
        num_attention_heads=heads,
        num_query_groups=heads,
        head_dim=hidden // heads,
        seq_length=seq_length,
        vocab_size=int(shape.get("vocab") or _GPT_VOCABULARY),
        vocab_source="explicit",
        moe_layers=(False,) * layers,
        gated_mlp=False,
        activation="gelu",
        normalization="LayerNorm",
        qkv_bias=True,
        linear_bias=True,
        position_embedding="learned",
        max_position_embeddings=seq_length,
        tied_embeddings=True,
    )


def _found(name: str) -> PublishedModel | None:
    try:
        return find_model(name)
    except InputError:
        return None


def _published(name: str) -> tuple[str, Architecture] | None:
    """The catalogue's model by its name, or by its name before a size that is the published one."""
    model = _found(name)
    suffix = _SIZE.search(name)
    if model is None and suffix is not None:
        stated = float(suffix[1]) * (_TRILLION if suffix[2] in "Tt" else _BILLION)
        candidate = _found(name[: suffix.start()])
        if candidate is not None and abs(stated / candidate.published_parameters - 1) < _SAME_SIZE:
            model = candidate
    if model is None:
        return None
    return model.name, replace(model.architecture, vocab_size=model.tokenizer_length or model.vocab_size)


def _with_layers(arch: Architecture, layers: int) -> Architecture:
    """The first layers of a model (a slice, as trained on few GPUs)."""
    return replace(
        arch,
        num_layers=layers,
        moe_layers=arch.moe_layers[:layers],
        windowed_layers=arch.windowed_layers[:layers],
        layer_kinds=arch.layer_kinds[:layers],
    )


def find_architecture(row: Row, seq_length: int) -> FoundModel:
    """The model that a row trained. Raises NotScoredError where neither the catalogue nor the row gives its shape."""
    shape = row.arch or {}
    name = bare_name(row.model)
    known = _published(name)
    if known is not None:
        arch = replace(known[1], seq_length=seq_length)
        layers = shape.get("num_layers")
        if isinstance(layers, int) and layers < arch.num_layers:
            arch = _with_layers(arch, layers)
        return FoundModel(name=known[0], architecture=arch)
    if {"num_layers", "hidden", "heads"} <= shape.keys() and not shape.get("num_experts"):
        vocabulary = () if shape.get("vocab") else (f"vocabulary {_GPT_VOCABULARY:,} (GPT-2, padded)",)
        return FoundModel(name=None, architecture=_gpt(row.model, shape, seq_length), assumptions=vocabulary)
    other = _other_models().get(plain_spelling(name))
    if other is not None:
        return FoundModel(name=None, architecture=_gpt(row.model, other, seq_length), assumptions=(f"architecture: {other['source']}",))
    raise NotScoredError("model is not in the catalogue")
