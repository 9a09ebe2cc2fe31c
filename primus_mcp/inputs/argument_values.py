"""Typed reading of flattened trainer arguments: the values that hold where no file sets a key, and one InputError for a wrong type.

Arguments are always complete (`complete_arguments`), so that reading a key is one dictionary access.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from primus_mcp.errors import InputError
from primus_mcp.inputs.catalogue import catalogue_yaml

Arguments = Mapping[str, Any]

MAX_LAYERS = 10_000
MAX_COUNT = 2**40


@cache
def default_arguments() -> Mapping[str, Any]:
    """Every trainer argument that changes memory or time, with Megatron's or Primus's default (catalog/primus/defaults.yaml)."""
    return MappingProxyType(catalogue_yaml("primus/defaults.yaml"))


@cache
def start_arguments() -> Mapping[str, Any]:
    """Every other trainer argument that a rule reads, with its default (catalog/primus/start_defaults.yaml)."""
    return MappingProxyType(catalogue_yaml("primus/start_defaults.yaml"))


def complete_arguments(arguments: Arguments) -> dict[str, Any]:
    """The arguments over the defaults."""
    return {**default_arguments(), **start_arguments(), **arguments}


def is_one_of(value: Any, values: list[Any]) -> bool:
    """Whether a value is in the list as the trainer takes it: an empty text or list means null, 0 and 1 mean false and true."""
    if None in values and value in ("", [], {}):
        return True
    if type(value) is int and any(isinstance(item, bool) for item in values):
        value = bool(value)
    return any(value == item and type(value) is type(item) for item in values)


def _wrong(key: str, value: Any, wanted: str) -> InputError:
    return InputError(f"is {value!r}", where=key, remedy=f"write {wanted}")


def flag(arguments: Arguments, key: str) -> bool:
    """A boolean; 0, 1 and null as the trainer takes them."""
    value = arguments[key]
    if value is True or value is False:
        return value
    if value is None or value == 0:
        return False
    if value == 1:
        return True
    raise _wrong(key, value, "true or false")


def count(arguments: Arguments, key: str, minimum: int = 1) -> int:
    """A whole number of at least `minimum`."""
    value = arguments[key]
    if type(value) is int and minimum <= value <= MAX_COUNT:
        return value
    if isinstance(value, float) and value.is_integer() and minimum <= value <= MAX_COUNT:
        return int(value)
    raise _wrong(key, value, f"a whole number of at least {minimum}")


def optional_count(arguments: Arguments, key: str, minimum: int = 1) -> int | None:
    """A whole number, or null."""
    return None if arguments[key] is None else count(arguments, key, minimum)


def fraction(arguments: Arguments, key: str) -> float:
    """A number from 0 to 1."""
    value = arguments[key]
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise _wrong(key, value, "a number from 0 to 1")


def choice(arguments: Arguments, key: str, allowed: Mapping[str, Any]) -> Any:
    """The meaning of one of the allowed texts."""
    value = arguments[key]
    if isinstance(value, str) and value in allowed:
        return allowed[value]
    raise _wrong(key, value, f"one of {', '.join(allowed)}")


def optional_text(arguments: Arguments, key: str) -> str | None:
    """A text, or null."""
    value = arguments[key]
    if value is None or isinstance(value, str):
        return value
    raise _wrong(key, value, "a text or null")


def _evaluate(node: ast.expr, budget: int) -> int | list[Any]:
    """Integers, lists, `+` and `*` only; no list grows beyond `budget` entries."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.List):
        return [_evaluate(item, budget) for item in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _evaluate(node.left, budget), _evaluate(node.right, budget)
        if isinstance(node.op, ast.Add):
            if isinstance(left, list) and isinstance(right, list) and len(left) + len(right) <= budget:
                return left + right
        else:
            items, times = (left, right) if isinstance(left, list) else (right, left)
            if isinstance(items, list) and isinstance(times, int) and 0 <= len(items) * times <= budget:
                return items * times
    raise ValueError("neither an integer nor a list of 0 and 1")


def layer_pattern(arguments: Arguments, key: str, num_layers: int) -> int | tuple[int, ...]:
    """A per-layer pattern: an integer N, a list of 0 and 1, or either as text such as `([0]*3+[1]*58)`.

    A list must have one entry a layer (rule E28). Source: Megatron-LM@d3528a21 megatron/training/arguments.py moe_freq_type.
    """
    value = arguments[key]
    wanted = f"an integer, or {num_layers} entries of 0 and 1 such as ([0]*1+[1]*{num_layers - 1})"
    if isinstance(value, str):
        try:
            value = _evaluate(ast.parse(value.strip()[:1000], mode="eval").body, MAX_LAYERS)
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            raise _wrong(key, arguments[key], wanted) from error
    if type(value) is int and value >= 1:
        return value
    if isinstance(value, list) and all(item in (0, 1) and type(item) is int for item in value):
        if len(value) == num_layers:
            return tuple(value)
        raise InputError(f"has {len(value)} entries, the model has {num_layers} layers", where=key, remedy=f"write {num_layers} entries")
    raise _wrong(key, arguments[key], wanted)
