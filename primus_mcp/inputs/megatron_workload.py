"""A Megatron-LM argument list as a workload, and a workload as a Megatron-LM argument list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.argument_values import Arguments, complete_arguments, default_arguments
from primus_mcp.inputs.built_model import read_architecture, turbo_sinks
from primus_mcp.inputs.findings import Finding
from primus_mcp.inputs.megatron_arguments import WrittenArguments, megatron_table, parse_megatron, write_megatron
from primus_mcp.inputs.model_workload import PLAIN_MODEL, bundled_presets, primus_document
from primus_mcp.inputs.presets import deep_merge
from primus_mcp.inputs.shell_words import read_words
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.inputs.vocabulary import resolve_vocabulary
from primus_mcp.inputs.workload import Workload, workload_from_arguments

_REQUIRED = ("micro_batch_size", "global_batch_size", "seq_length")
NULL_TOKENIZER = "NullTokenizer"


def _required(arguments: Arguments, where: str) -> None:
    for key in _REQUIRED:
        if arguments[key] is None:
            raise InputError(f"has no --{key.replace('_', '-')}", where=where, remedy="add it; a size is never guessed")
    if arguments["bf16"] is not True:
        raise InputError("has no --bf16: the run would be in fp32, which cannot be priced", where=where, remedy="add --bf16")


def _with_vocabulary(arguments: dict[str, Any], where: str) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Primus's mock data brings its own tokenizer, of `vocab_size` + 1 entries; Megatron-LM's keeps the one of the arguments."""
    plain = {**arguments, "mock_data": False}
    try:
        vocabulary = resolve_vocabulary(plain, "as-run")
    except InputError as error:
        remedy = "add --vocab-size N with --tokenizer-type NullTokenizer, or a tokenizer whose size is known"
        raise InputError(error.problem, where=f"{where}: --tokenizer-model", remedy=remedy) from None
    if arguments["mock_data"] is True:
        return {**arguments, "vocab_size": vocabulary.size - 1}, vocabulary.findings
    return arguments, vocabulary.findings


def workload_from_megatron(
    text: str, *, name: str = "megatron", where: str = "arguments", defines: Mapping[str, str] | None = None
) -> Workload:
    """The arguments of pretrain_gpt.py in a shell fragment as a workload with its Primus document.

    What the arguments leave out is Megatron-LM's own default, not Primus's. Variables come from `defines` and from the fragment; nothing
    is run. Arguments without effect on memory and time are taken over into the document. Raises InputError for an unknown argument or
    variable, UnsupportedFeatureError for what cannot be priced.
    """
    read = parse_megatron(read_words(text, defines or {}, where), where)
    given = complete_arguments({**megatron_table().defaults, **read.arguments})
    _required(given, where)
    given, told = _with_vocabulary(given, where)
    read_architecture(given, name)
    presets, reader = bundled_presets(name)
    known = complete_arguments(presets)
    overrides = {
        key: value for key, value in given.items() if key not in known or known[key] != value or type(known[key]) is not type(value)
    }
    return workload_from_arguments(
        deep_merge(presets, overrides),
        name,
        document=primus_document(name, PLAIN_MODEL, overrides),
        read=tuple(reader.read),
        findings=(*read.findings, *told),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronExport:
    """A configuration as Megatron-LM's arguments.

    `not_megatron`: keys that Megatron-LM has no argument for. `changed`: (field, what was asked for, what Megatron-LM would run without
    them); empty where the list runs exactly the configuration.
    """

    words: tuple[str, ...]
    not_megatron: Mapping[str, Any]
    changed: tuple[tuple[str, Any, Any], ...]

    def text(self, title: str, remarks: Sequence[str] = ()) -> str:
        """A shell fragment, one argument a line; what is left out is named in comments above, and so are the remarks."""
        lines = [f"# {title}", *(f"# {remark}" for remark in remarks)]
        lines += [f"# no argument of Megatron-LM, left out: {key} = {value}" for key, value in self.not_megatron.items()]
        lines += [f"# so it would run {field} {theirs} instead of {ours}" for field, ours, theirs in self.changed]
        return "\n".join("".join(c if c.isprintable() else " " for c in line) for line in lines) + "\n" + " \\\n".join(self.words) + "\n"


def _fragment(arguments: Arguments, vocab_size: int) -> WrittenArguments:
    """The arguments with the vocabulary that runs: mock data replaces it in Primus, and in Megatron-LM does not.

    Without tensor parallelism there is no sequence parallelism, whatever the switch says (T10): it is not written. Sinks of Primus-Turbo
    over whole rows are Megatron's learned softmax.
    """
    shown = dict(arguments)
    if turbo_sinks(arguments) and not arguments["sink_sliding_window"]:
        shown["softmax_type"] = "learnable"
    if shown["tensor_model_parallel_size"] == 1:
        shown["sequence_parallel"] = False
    if shown["mock_data"] is True:
        shown |= {"tokenizer_type": NULL_TOKENIZER, "tokenizer_model": None, "vocab_size": vocab_size - 1}
    return write_megatron(shown)


def export_megatron(arguments: Arguments, architecture: Architecture, config: TrainingConfig) -> MegatronExport:
    """Complete trainer arguments (those that built `architecture` and `config`) as Megatron-LM's, read again to see what they would run.

    Raises UnsupportedFeatureError where Megatron-LM has no argument for a part of the model: another model is never written.
    """
    written = _fragment(arguments, architecture.vocab_size)
    try:
        again = workload_from_megatron(" ".join(written.words), name=architecture.name)
    except InputError as error:
        raise UnsupportedFeatureError(f"Megatron-LM's pretrain_gpt.py cannot run this: {error}", where="convert") from None
    others = [field.name for field in fields(architecture) if field.name not in ("name", "vocab_source")]
    wrong = [name for name in others if getattr(architecture, name) != getattr(again.architecture, name)]
    if wrong:
        keys = ", ".join(key for key in written.not_megatron if key in default_arguments())
        raise UnsupportedFeatureError(f"Megatron-LM has no arguments for {', '.join(wrong)} of this model ({keys})", where="convert")
    changed = [(field.name, getattr(config, field.name), getattr(again.baseline, field.name)) for field in fields(config)]
    return MegatronExport(
        words=written.words,
        not_megatron=written.not_megatron,
        changed=tuple((name, ours, theirs) for name, ours, theirs in changed if ours != theirs and name != "a2a_ep_size"),
    )
