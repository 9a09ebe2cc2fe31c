"""The published architectures (catalog/models/*.yaml), and where a model that would run differs from the one its name promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from primus_mcp.inputs.architecture import Architecture, LatentAttention, MixtureOfExperts
from primus_mcp.inputs.findings import Finding
from primus_mcp.inputs.yaml_loader import parse_text

_RUN_DEPENDENT = frozenset(
    {
        "name",
        "seq_length",
        "vocab_size",
        "vocab_source",
        "vocab_size_divisor",
        "max_position_embeddings",
        "hidden_dropout",
        "attention_dropout",
    }
)


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Architecture(_File):
    num_layers: int
    hidden_size: int
    ffn_hidden_size: int
    num_attention_heads: int
    num_query_groups: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    latent_attention: dict[str, int | None] | None = None
    experts: dict[str, Any] | None = None
    first_dense_layers: int = 0
    qk_norm: bool = False
    qkv_bias: bool = False
    linear_bias: bool = False
    attention_sinks: bool = False
    sliding_window: int | None = None
    windowed_layers: Literal["all", "even"] = "all"
    tied_embeddings: bool = False
    mtp_num_layers: int = 0


class _Model(_File):
    name: str
    hf_id: str
    tokenizer_length: int | None
    published_parameters: int
    published_includes_mtp: bool
    count_difference: int
    count_difference_reason: str | None = None
    sources: dict[str, str]
    architecture: _Architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """A model as its authors published it. `name` is the stem of Primus's preset.

    `published_parameters` is the exact public count; `count_difference` is our count minus it, explained by `count_difference_reason`.
    """

    name: str
    hf_id: str
    architecture: Architecture
    vocab_size: int
    tokenizer_length: int | None
    published_parameters: int
    published_includes_mtp: bool
    count_difference: int
    count_difference_reason: str | None
    sources: Mapping[str, str]


def _architecture(name: str, given: _Architecture) -> Architecture:
    layers = given.num_layers
    plain = given.model_dump(exclude={"latent_attention", "experts", "first_dense_layers", "windowed_layers"})
    windowed = tuple(given.windowed_layers == "all" or layer % 2 == 0 for layer in range(layers)) if given.sliding_window else ()
    return Architecture(
        **plain,
        name=name,
        seq_length=given.max_position_embeddings,
        vocab_source="tokenizer",
        latent_attention=LatentAttention(**given.latent_attention) if given.latent_attention else None,  # type: ignore[arg-type]
        experts=MixtureOfExperts(**given.experts) if given.experts else None,
        moe_layers=tuple(given.experts is not None and layer >= given.first_dense_layers for layer in range(layers)),
        windowed_layers=windowed,
    )


@cache
def published_models() -> Mapping[str, PublishedModel]:
    """Every published model of the catalogue, by the name of Primus's preset."""
    models = {}
    for file in sorted((files("primus_mcp.catalog") / "models").iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".yaml"):
            continue
        data = _Model.model_validate(parse_text(file.read_text(encoding="utf-8"), f"catalog/models/{file.name}"))
        models[data.name] = PublishedModel(
            architecture=_architecture(data.name, data.architecture),
            vocab_size=data.architecture.vocab_size,
            **data.model_dump(exclude={"architecture", "sources"}),
            sources=MappingProxyType(data.sources),
        )
    return MappingProxyType(models)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{sum(value)} of {len(value)} layers" if value else "no layers"
    if isinstance(value, LatentAttention | MixtureOfExperts):
        return ", ".join(f"{field.name} {getattr(value, field.name)}" for field in fields(value))
    return "none" if value is None else str(value)


def _compare(run: Any, published: Any, prefix: str, skip: frozenset[str]) -> list[tuple[str, str, str]]:
    """(field, value that runs, published value) of every field that differs; nested records field by field."""
    found = []
    for field in fields(run):
        ours, theirs = getattr(run, field.name), getattr(published, field.name)
        if field.name in skip or ours == theirs:
            continue
        nested = isinstance(ours, LatentAttention | MixtureOfExperts) and type(ours) is type(theirs)
        found += _compare(ours, theirs, f"{field.name}.", frozenset()) if nested else [(prefix + field.name, _shown(ours), _shown(theirs))]
    return found


def differences(architecture: Architecture, published: PublishedModel) -> list[Finding]:
    """Field by field, where the model that would run is not the published one. Widths that no layer uses are left out.

    The feed-forward width of a model whose layers are all MoE is unused, as are query groups and head width under MLA in both.
    """
    skip = set(_RUN_DEPENDENT)
    if all(architecture.moe_layers) and all(published.architecture.moe_layers):
        skip.add("ffn_hidden_size")
    if architecture.latent_attention and published.architecture.latent_attention:
        skip |= {"num_query_groups", "head_dim"}
    return [
        Finding(code="differs-from-published", text=f"{field}: {ours} would run, {published.hf_id} has {theirs}")
        for field, ours, theirs in _compare(architecture, published.architecture, "", frozenset(skip))
    ]


def published_twin(architecture: Architecture, tokenizer_model: str | None) -> PublishedModel | None:
    """The published model that a workload means: by the name of its preset, else by its tokenizer where depth and width agree too."""
    if (named := published_models().get(architecture.name)) is not None:
        return named
    for model in published_models().values():
        same = (model.architecture.num_layers, model.architecture.hidden_size) == (architecture.num_layers, architecture.hidden_size)
        if same and model.hf_id == tokenizer_model:
            return model
    return None
