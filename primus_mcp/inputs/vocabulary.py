"""The vocabulary that runs: mock data replaces the tokenizer, and a Hugging Face tokenizer ignores `vocab_size`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from primus_mcp.errors import InputError
from primus_mcp.inputs.architecture import VocabSource
from primus_mcp.inputs.argument_values import Arguments, flag, optional_count, optional_text
from primus_mcp.inputs.catalogue import catalogue_yaml
from primus_mcp.inputs.findings import Finding
from primus_mcp.inputs.published import published_models

Vocab = Literal["as-run", "tokenizer"]

MOCK_TOKENS = 131_072
"""NullTokenizer size under mock_data where the model sets none (AMD-AGI/Primus@fd1eeabb patches/args/mock_data_patches.py:10)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """`size` before padding; `findings` say where it comes from."""

    size: int
    source: VocabSource
    findings: tuple[Finding, ...] = ()


@cache
def tokenizer_lengths() -> Mapping[str, int]:
    """len(tokenizer) by Hugging Face id (catalog/tokenizers.yaml)."""
    return catalogue_yaml("tokenizers.yaml")


def _null_tokenizer_size(tokens: int) -> int:
    """NullTokenizer reports one more than its size, the end-of-document token (Megatron-LM@d3528a21; upstream fixed it in c9dfe34798)."""
    return tokens + 1


def _own(arguments: Arguments) -> Vocabulary | None:
    """The vocabulary of the model's own tokenizer, or None where no source gives it."""
    model, explicit = optional_text(arguments, "tokenizer_model"), optional_count(arguments, "vocab_size")
    if arguments["tokenizer_type"] == "NullTokenizer" and explicit is not None:
        return Vocabulary(size=_null_tokenizer_size(explicit), source="explicit")
    if model is not None and model in tokenizer_lengths():
        return Vocabulary(size=tokenizer_lengths()[model], source="tokenizer")
    if explicit is not None:
        return Vocabulary(size=explicit, source="explicit")
    if model is None:
        return None
    rows = {published.hf_id: published.vocab_size for published in published_models().values() if published.hf_id}
    if model in rows:
        text = f"len(tokenizer) of {model} is not in the catalogue; the {rows[model]:,} rows of its published embedding are used"
        return Vocabulary(size=rows[model], source="tokenizer", findings=(Finding(code="vocabulary-from-embedding", text=text),))
    return _by_repository(model, rows)


def _by_repository(model: str, rows: Mapping[str, int]) -> Vocabulary | None:
    """A copy of a known tokenizer (a mirror, a local folder) by the last part of its path."""
    known = {name.split("/")[-1].lower(): name for name in (*rows, *tokenizer_lengths())}
    original = known.get(model.rstrip("/").split("/")[-1].lower())
    if original is None:
        return None
    size = tokenizer_lengths().get(original) or rows[original]
    text = f"{model} is taken for a copy of {original}: {size:,} vocabulary entries"
    return Vocabulary(size=size, source="tokenizer", findings=(Finding(code="vocabulary-by-name", text=text),))


def resolve_vocabulary(arguments: Arguments, vocab: Vocab) -> Vocabulary:
    """Entries that the run's tokenizer reports. Padding to a multiple of divisor x TP is `Architecture.padded_vocab_size`.

    as-run with `mock_data`: vocab_size of the model, else 131,072, plus 1. Otherwise, and with vocab="tokenizer": len(tokenizer) from the
    catalogue, else vocab_size, else the published embedding rows. Raises InputError where none is known.
    """
    own = _own(arguments)
    if flag(arguments, "mock_data") and vocab == "as-run":
        size = _null_tokenizer_size(optional_count(arguments, "vocab_size") or MOCK_TOKENS)
        if own is not None and abs(own.size - size) <= 1:
            return Vocabulary(size=size, source="mock_data")
        if own is None:
            change = "the size of the model's own tokenizer is not known"
        else:
            change = f"the model's own tokenizer has {own.size:,} ({(own.size - size) / size:+.1%}; --vocab tokenizer prices that)"
        text = f"mock_data: true replaces the tokenizer: {size:,} vocabulary entries run; {change}"
        return Vocabulary(size=size, source="mock_data", findings=(Finding(code="vocabulary-mock-data", text=text),))
    if own is None:
        raise InputError(
            f"the vocabulary of {arguments['tokenizer_model']!r} is not known",
            where="tokenizer_model",
            remedy="add `vocab_size: N` to the overrides, or use --vocab as-run with mock_data: true",
        )
    return own
