"""The published architectures (catalog/models/*.yaml), and where a model that would run differs from the one its name promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict

from primus_mcp.errors import InputError
from primus_mcp.inputs.architecture import (
    Activation,
    Architecture,
    GatedDeltaNet,
    LatentAttention,
    Mixer,
    MixtureOfExperts,
    Normalization,
    PositionEmbedding,
    QkNormScope,
    ShortConvolution,
    SparseIndexer,
)
from primus_mcp.inputs.catalogue import catalogue_names, catalogue_yaml
from primus_mcp.inputs.findings import Finding

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
    moe_layer_step: int = 1
    qk_norm: bool = False
    qk_norm_scope: QkNormScope = "head"
    norms_per_layer: int = 2
    qkv_bias: bool = False
    linear_bias: bool = False
    gated_mlp: bool = True
    activation: Activation = "silu"
    normalization: Normalization = "RMSNorm"
    position_embedding: PositionEmbedding = "rope"
    attention_sinks: bool = False
    scaled_rope: bool = False
    activation_clamp: float | None = None
    attention_output_gate: bool = False
    sliding_window: int | None = None
    attention_chunk: int | None = None
    full_attention_every: int | None = None
    sparse_indexer: dict[str, int] | None = None
    short_convolution: dict[str, int] | None = None
    gated_delta_net: dict[str, int] | None = None
    attention_layers: list[int] | None = None
    tied_embeddings: bool = False
    mtp_num_layers: int = 0


class _Run(_File):
    seq_length: int
    gbs: int
    mbs: int
    source: str


class _Model(_File):
    name: str
    aliases: tuple[str, ...] = ()
    hf_id: str | None
    tokenizer_length: int | None
    published_parameters: int
    published_exact: bool = True
    published_includes_mtp: bool = False
    count_difference: int
    count_difference_reason: str | None = None
    sources: dict[str, str]
    run: _Run
    architecture: _Architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDefaults:
    """Sequence length and batch that a model is priced with where the user gives none, and where they come from."""

    seq_length: int
    gbs: int
    mbs: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """A model as its authors published it. `name` is the stem of Primus's preset where there is one.

    `published_parameters` is the public count, `published_exact` says whether it is exact or only the figure in the model's name;
    `count_difference` is our count minus it, explained by `count_difference_reason`.
    """

    name: str
    aliases: tuple[str, ...]
    hf_id: str | None
    architecture: Architecture
    vocab_size: int
    tokenizer_length: int | None
    published_parameters: int
    published_exact: bool
    published_includes_mtp: bool
    count_difference: int
    count_difference_reason: str | None
    sources: Mapping[str, str]
    run: RunDefaults


_SHORTHAND = frozenset(
    {
        "latent_attention",
        "experts",
        "first_dense_layers",
        "moe_layer_step",
        "full_attention_every",
        "sparse_indexer",
        "short_convolution",
        "gated_delta_net",
        "attention_layers",
    }
)


def _mixer(given: _Architecture) -> Mixer | None:
    if given.short_convolution:
        return ShortConvolution(**given.short_convolution)
    return GatedDeltaNet(**given.gated_delta_net) if given.gated_delta_net else None


def _architecture(name: str, given: _Architecture) -> Architecture:
    layers, every, attending = range(given.num_layers), given.full_attention_every, given.attention_layers
    local = given.sliding_window or given.attention_chunk
    step, first = given.moe_layer_step, given.first_dense_layers
    return Architecture(
        **given.model_dump(exclude=set(_SHORTHAND)),
        name=name,
        seq_length=given.max_position_embeddings,
        vocab_source="tokenizer",
        latent_attention=LatentAttention(**given.latent_attention) if given.latent_attention else None,  # type: ignore[arg-type]
        experts=MixtureOfExperts(**given.experts) if given.experts else None,
        moe_layers=tuple(given.experts is not None and layer >= first and (layer - first) % step == 0 for layer in layers),
        windowed_layers=tuple(every is None or (layer + 1) % every != 0 for layer in layers) if local else (),
        sparse_indexer=SparseIndexer(**given.sparse_indexer) if given.sparse_indexer else None,
        layer_kinds=tuple("attention" if layer in attending else "mixer" for layer in layers) if attending else (),
        mixer=_mixer(given),
    )


@cache
def published_models() -> Mapping[str, PublishedModel]:
    """Every published model of the catalogue, by the name of Primus's preset."""
    models = {}
    for name in catalogue_names("models"):
        data = _Model.model_validate(catalogue_yaml(f"models/{name}.yaml"))
        models[data.name] = PublishedModel(
            architecture=_architecture(data.name, data.architecture),
            vocab_size=data.architecture.vocab_size,
            **data.model_dump(exclude={"architecture", "sources", "run"}),
            sources=MappingProxyType(data.sources),
            run=RunDefaults(**data.run.model_dump()),
        )
    return MappingProxyType(models)


def plain_spelling(name: str) -> str:
    """A name as it is compared: lower case, letters and digits only."""
    return "".join(character for character in name.lower() if character.isalnum())


@cache
def _spellings() -> Mapping[str, str]:
    """Plain spelling (lower case, letters and digits only) of every name, alias, Hugging Face id and repository name -> model."""
    spellings: dict[str, str] = {}
    for model in published_models().values():
        names = (model.name, *model.aliases, *((model.hf_id, model.hf_id.split("/")[-1]) if model.hf_id else ()))
        for name in reversed(names):
            spellings[plain_spelling(name)] = model.name
    return spellings


def is_model(name: str) -> bool:
    """Whether `find_model` knows the name."""
    return plain_spelling(name) in _spellings()


def find_model(name: str) -> PublishedModel:
    """A model of the catalogue by any spelling of its name. Raises InputError with the nearest names."""
    found = _spellings().get(plain_spelling(name))
    if found is not None:
        return published_models()[found]
    near = get_close_matches(plain_spelling(name), _spellings(), n=3, cutoff=0.6)
    likely = list(dict.fromkeys(_spellings()[spelling] for spelling in near))
    remedy = f"did you mean {' or '.join(likely)}?" if likely else "see `primus-mcp models`"
    raise InputError(f"{name!r} is not in the catalogue", where="model", remedy=remedy)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        count = sum(1 for item in value if item not in (False, "attention"))
        return f"{count} of {len(value)} layers" if value else "no layers"
    if isinstance(value, LatentAttention | MixtureOfExperts | SparseIndexer | Mixer):
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


def architecture_differences(built: Architecture, wanted: Architecture) -> list[tuple[str, str, str]]:
    """(field, what would run, what is wanted), field by field. What depends on the run and widths that no layer uses are left out.

    The feed-forward width of a model whose layers are all MoE is unused, as are query groups and head width under MLA in both.
    """
    skip = set(_RUN_DEPENDENT)
    if all(built.moe_layers) and all(wanted.moe_layers):
        skip.add("ffn_hidden_size")
    if built.latent_attention and wanted.latent_attention:
        skip |= {"num_query_groups", "head_dim"}
    return _compare(built, wanted, "", frozenset(skip))


def differences(architecture: Architecture, published: PublishedModel) -> list[Finding]:
    """Field by field, where the model that would run is not the published one."""
    return [
        Finding(code="differs-from-published", text=f"{field}: {ours} would run, {published.hf_id or published.name} has {theirs}")
        for field, ours, theirs in architecture_differences(architecture, published.architecture)
    ]


def same_model(architecture: Architecture) -> PublishedModel | None:
    """The catalogue's model with this very architecture, embedding rows and longest sequence; None: it has none, or several."""
    found = [
        model
        for model in published_models().values()
        if (model.vocab_size, model.architecture.max_position_embeddings) == (architecture.vocab_size, architecture.max_position_embeddings)
        and not architecture_differences(architecture, model.architecture)
    ]
    return found[0] if len(found) == 1 else None


def published_twin(architecture: Architecture, tokenizer_model: str | None) -> PublishedModel | None:
    """The published model that a workload means: by the name of its preset, else by its tokenizer where depth and width agree too."""
    if (named := published_models().get(architecture.name)) is not None:
        return named
    for model in published_models().values():
        same = (model.architecture.num_layers, model.architecture.hidden_size) == (architecture.num_layers, architecture.hidden_size)
        if same and model.hf_id == tokenizer_model:
            return model
    return None
