"""Arguments of Megatron-LM's pretrain_gpt.py to trainer keys, and trainer keys to arguments.

Which arguments there are is in catalog/megatron_arguments.yaml. An argument that is not there, or that the engine cannot price, is named.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.argument_values import Arguments, default_arguments, start_arguments
from primus_mcp.inputs.catalogue import catalogue_yaml
from primus_mcp.inputs.findings import Finding
from primus_mcp.inputs.shell_words import Token

Kind = Literal["switch", "off", "value", "list", "free"]
_TEXTS = frozenset(
    {
        "tokenizer_type",
        "tokenizer_model",
        "pipeline_model_parallel_layout",
        "hybrid_override_pattern",
        "recompute_modules",
        "moe_layer_freq",
    }
)
_PAIRS = frozenset({"window_size"})
"""Keys whose one value is two numbers, as in `--window-size 128,0`."""
_MOST_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One argument: its trainer key, how many values it takes (`free`: as many as follow), and whether the engine prices it."""

    name: str
    key: str
    kind: Kind
    priced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronTable:
    """Every known argument by name; those that are refused with the reason; where Megatron-LM's defaults are its own."""

    flags: Mapping[str, Flag]
    not_priced: Mapping[str, str]
    defaults: Mapping[str, Any]
    reasons: Mapping[str, str]


def _key(flag: str) -> str:
    return flag.replace("-", "_")


@cache
def megatron_table() -> MegatronTable:
    """catalog/megatron_arguments.yaml."""
    data = catalogue_yaml("megatron_arguments.yaml")
    renamed = data["renamed"]
    flags: dict[str, Flag] = {}
    kinds: tuple[tuple[str, Kind], ...] = (("switches", "switch"), ("values", "value"), ("lists", "list"))
    for group, kind in kinds:
        flags |= {name: Flag(name=name, key=_key(name), kind=kind, priced=True) for name in data[group]}
    flags |= {name: Flag(name=name, key=key, kind="value", priced=True) for name, key in renamed.items()}
    flags |= {name: Flag(name=name, key=key, kind="off", priced=True) for name, key in data["off_switches"].items()}
    for names in data["no_cost"].values():
        flags |= {name: Flag(name=name, key=_key(name), kind="free", priced=False) for name in names}
    flags |= {name: Flag(name=name, key=key, kind="off", priced=False) for name, key in data["no_cost_off"].items()}
    return MegatronTable(
        flags=MappingProxyType(flags),
        not_priced=MappingProxyType(data["not_priced"]),
        defaults=MappingProxyType({**default_arguments(), **start_arguments(), **data["defaults"]}),
        reasons=MappingProxyType(
            {name: reason for reason, names in data["no_cost"].items() for name in names}
            | dict.fromkeys(data["no_cost_off"], "switches that the projection does not vary")
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadArguments:
    """`arguments`: every trainer key that the list sets. `findings` name what it holds beside."""

    arguments: Mapping[str, Any]
    findings: tuple[Finding, ...]


def _typed(text: str) -> Any:
    """A number, else the text itself: `none` and `true` are words to argparse."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else text
    return text


def _value(flag: Flag, text: str, where: str) -> Any:
    if flag.key in _TEXTS and not text.isdigit():
        return text
    if flag.key in _PAIRS:
        numbers = [_typed(part.strip()) for part in text.strip("()[] ").split(",")]
        if len(numbers) != 2 or not all(isinstance(number, int) for number in numbers):
            raise InputError(f"--{flag.name} is {text[:80]!r}", where=where, remedy='write two numbers such as "128,0"')
        return numbers
    return _typed(text)


def _unknown_error(unknown: Sequence[tuple[str, int]], where: str) -> InputError:
    """All of them at once, with the nearest known name of each."""
    table, parts = megatron_table(), []
    for name, line in unknown[:_MOST_NAMED]:
        near = get_close_matches(name, table.flags, n=1, cutoff=0.8)
        parts.append(f"--{name[:60]} (line {line}{f'; did you mean --{near[0]}?' if near else ''})")
    more = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
    problem = f"no arguments of Megatron-LM that are known here: {', '.join(parts)}{more}"
    return InputError(problem, where=where, remedy="correct them, or remove what changes neither memory nor time")


class _Reader:
    def __init__(self, tokens: Sequence[Token], where: str) -> None:
        self.tokens, self.where, self.at = tokens, where, 0
        self.arguments: dict[str, Any] = {}
        self.free: list[str] = []
        self.twice: list[str] = []
        self.left: list[str] = []
        self.unknown: list[tuple[str, int]] = []

    def _known(self, token: Token) -> str:
        if token.unknown is not None:
            remedy = f"give it with --define {token.unknown}=VALUE" if token.unknown.isidentifier() else "write the value itself"
            raise InputError(f"line {token.line}: the value of ${token.unknown} is not known", where=self.where, remedy=remedy)
        if "${" in token.text:
            problem = f"line {token.line}: {token.text[:80]!r} holds a variable in single quotes"
            raise InputError(problem, where=self.where, remedy="write the value itself")
        return token.text

    def _values(self) -> Iterator[Token]:
        while self.at < len(self.tokens) and not self.tokens[self.at].text.startswith("--"):
            self.at += 1
            yield self.tokens[self.at - 1]

    def read(self) -> None:
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            text = self._known(token)
            self.at += 1
            if not text.startswith("--"):
                problem = f"line {token.line}: {text[:80]!r} belongs to no argument"
                raise InputError(problem, where=self.where, remedy="give only --name, --name value and --name=value")
            name, equals, value = text[2:].partition("=")
            self._argument(name, token.line, [Token(text=value, line=token.line)] if equals else None)

    def _argument(self, name: str, line: int, given: list[Token] | None) -> None:
        table = megatron_table()
        if name in table.not_priced:
            raise UnsupportedFeatureError(f"line {line}: --{name}: {table.not_priced[name]} cannot be priced", where=self.where)
        flag = table.flags.get(name)
        if flag is None:
            self.unknown.append((name, line))
            list(self._values())
            return
        values = given if given is not None else list(self._values()) if flag.kind not in ("switch", "off") else []
        if flag.kind == "free":
            self._free(flag, values)
            return
        if flag.key in self.arguments:
            self.twice.append(flag.name)
        texts = [self._known(token) for token in values]
        if flag.kind in ("switch", "off"):
            if given is not None:
                raise InputError(f"line {line}: --{name} takes no value", where=self.where, remedy=f"write --{name} alone, or leave it out")
            self.arguments[flag.key] = flag.kind == "switch"
            self.free += [] if flag.priced else [flag.name]
        elif flag.kind == "value":
            if len(texts) != 1:
                problem = f"line {line}: --{name} has {len(texts)} values"
                raise InputError(problem, where=self.where, remedy="give exactly one, in quotes where it holds blanks")
            self.arguments[flag.key] = _value(flag, texts[0], self.where)
        else:
            self._list(flag, texts, line)

    def _list(self, flag: Flag, texts: list[str], line: int) -> None:
        if not texts:
            raise InputError(f"line {line}: --{flag.name} has no value", where=self.where, remedy="give one or more")
        items = [_value(flag, text, self.where) for text in texts]
        self.arguments[flag.key] = items[0] if flag.key == "cp_comm_type" and len(items) == 1 else items

    def _free(self, flag: Flag, values: list[Token]) -> None:
        if values and values[0].unknown is not None:
            self.left.append(f"--{flag.name} ({'' if values[0].unknown.startswith('$') else '$'}{values[0].unknown})")
            values = values[1:]
            if not values:
                return
        self.free.append(flag.name)
        texts = [_typed(self._known(token)) for token in values]
        self.arguments[flag.key] = True if not texts else texts[0] if len(texts) == 1 else texts


def _by_reason(names: Sequence[str]) -> str:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(megatron_table().reasons[name], []).append(f"--{name}")
    return "; ".join(f"{', '.join(flags)} ({reason})" for reason, flags in groups.items())


def parse_megatron(tokens: Sequence[Token], where: str) -> ReadArguments:
    """The words of a command to trainer keys. Raises InputError that names an unknown argument, value or variable."""
    reader = _Reader(tokens, where)
    reader.read()
    if reader.unknown:
        raise _unknown_error(reader.unknown, where)
    if not reader.arguments:
        raise InputError("holds no arguments", where=where, remedy="give the arguments of pretrain_gpt.py")
    found = []
    if reader.free:
        text = f"arguments that change neither memory nor time, taken over as they are: {_by_reason(reader.free)}"
        found.append(Finding(code="megatron-no-cost", text=text))
    if reader.left:
        text = f"left out, because nothing gives their value: {', '.join(reader.left)}"
        found.append(Finding(code="megatron-left-out", text=text))
    if reader.twice:
        names = ", ".join(f"--{name}" for name in dict.fromkeys(reader.twice))
        found.append(Finding(code="megatron-twice", text=f"given more than once, the last counts: {names}"))
    return ReadArguments(arguments=reader.arguments, findings=tuple(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenArguments:
    """`words`: one argument each. `not_megatron`: keys that Megatron-LM has no argument for, with their values."""

    words: tuple[str, ...]
    not_megatron: Mapping[str, Any]


def _text(key: str, value: Any) -> str:
    if key in _PAIRS:
        return f"{value[0]},{value[1]}"
    if isinstance(value, float):
        return repr(value)
    return str(value).replace(" ", "") if isinstance(value, list) else str(value)


def _written(flag: Flag, value: Any) -> str | None:
    """One argument; None: the value has no spelling. Primus takes 0 and 1 for switches."""
    if flag.kind in ("switch", "off") and value in (0, 1):
        value = bool(value)
    if flag.kind in ("switch", "free") and isinstance(value, bool):
        return f"--{flag.name}" if value else None
    if flag.kind == "off":
        return f"--{flag.name}" if value is False else None
    if flag.kind == "switch" or isinstance(value, bool) or value is None:
        return None
    items = value if isinstance(value, list) and flag.kind in ("list", "free") else [value]
    return " ".join([f"--{flag.name}", *(shlex.quote(_text(flag.key, item)) for item in items)])


def write_megatron(arguments: Arguments) -> WrittenArguments:
    """Complete trainer arguments as Megatron-LM's, in the order of the table. What equals Megatron-LM's own default is left out, but for
    the recipe of a run in FP8.
    """
    table = megatron_table()
    by_key: dict[str, list[Flag]] = {}
    for flag in table.flags.values():
        by_key.setdefault(flag.key, []).append(flag)
    words, other = [], {}
    for key in sorted(arguments, key=lambda key: (key not in by_key, key)):
        value = arguments[key]
        stated = key == "fp8_recipe" and arguments.get("fp8") is not None
        if key in table.defaults and str(value) == str(table.defaults[key]) and not stated:
            continue
        spelled = [word for flag in by_key.get(key, ()) if (word := _written(flag, value)) is not None]
        if spelled:
            words.append(spelled[0])
        elif not _is_default(by_key.get(key, ()), value) or table.defaults.get(key):
            other[key] = value
    return WrittenArguments(words=tuple(words), not_megatron=MappingProxyType(other))


def _is_default(flags: Sequence[Flag], value: Any) -> bool:
    """Whether leaving the argument out says the same: nothing and off, and on where an argument only switches off."""
    return value is None or value is False or value in ("", [], {}) or (value is True and any(flag.kind == "off" for flag in flags))
