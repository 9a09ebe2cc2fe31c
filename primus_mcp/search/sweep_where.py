"""`--where "tp<=8 and memory_per_gpu_gb<200"`: a small language of its own, read by a tokenizer and a recursive parser. No Python is run.

condition := conjunction ("or" conjunction)* ; conjunction := term ("and" term)* ; term := "not" term | "(" condition ")" | comparison
comparison := side (("<" | "<=" | ">" | ">=" | "==" | "=" | "!=") side)+ ; side := NAME | NUMBER | WORD in quotes | true | false | null
An unknown word on the right of a comparison is text (`fp8 != none`), which must be one that the name on the left can be.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn, get_args

import numpy as np

from primus_mcp.errors import InputError
from primus_mcp.projection.memory.verdict import Fit
from primus_mcp.space.knobs import KNOBS

MAX_CHARACTERS, MAX_DEPTH = 1000, 20
FIGURES = (
    "memory_per_gpu_gb",
    "memory_upper_gb",
    "tokens_per_s_per_gpu",
    "iteration_ms",
    "mfu",
    "bubble_ratio",
    "tflops_per_s_per_gpu",
    "comm_exposed_ms",
    "expert_dp",
    "micro_batches",
    "recompute_num_layers",
    "fits_physically",
)
"""What only pricing tells."""
_KNOB_NAMES = [name for name in KNOBS if name not in ("enable_zero_bubble", "target_ep_size")]
NAMES = tuple(dict.fromkeys((*_KNOB_NAMES, "dp", "nodes", "gpus", *FIGURES)))
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_-]*)|(?P<text>'[^']*'|\"[^\"]*\")|(?P<sign><=|>=|==|!=|<|>|=|\(|\)))"
)
_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "none": "none"}
Node = tuple[str, Any, Any]
"""("and" | "or", left, right), ("not", term, None), (sign, side, side); a side is ("name", name, None) or ("value", value, None)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A parsed condition. `always`: there is none."""

    text: str
    node: Node | None

    @property
    def always(self) -> bool:
        """Whether nothing is excluded."""
        return self.node is None

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it holds for one priced configuration. A figure that is null fulfils no ordering."""
        return self.node is None or bool(_judge(self.node, values, unknown=False))

    @property
    def least_rate(self) -> float:
        """Tokens/s/GPU below which it never holds; 0 where it does not say."""
        return 0.0 - _most(self.node, "tokens_per_s_per_gpu", -1, nothing=0.0)

    @property
    def most_memory_gb(self) -> float:
        """Memory above which it never holds; infinite where it does not say."""
        return _most(self.node, "memory_per_gpu_gb", 1, nothing=math.inf)

    def partial(self, values: Mapping[str, Any]) -> Any:
        """True where it may still hold, for arrays of the names that are known."""
        return True if self.node is None else _judge(self.node, values, unknown=True)


def _judge(node: Node, values: Mapping[str, Any], *, unknown: bool) -> Any:
    """The truth of a node; comparisons with names that have no value yet count as `unknown`, also below `not`."""
    kind, left, right = node
    if kind == "not":
        return np.logical_not(_judge(left, values, unknown=not unknown))
    if kind in ("and", "or"):
        join = np.logical_and if kind == "and" else np.logical_or
        return join(_judge(left, values, unknown=unknown), _judge(right, values, unknown=unknown))
    first, second = (_value(side, values) for side in (left, right))
    if first is _MISSING or second is _MISSING:
        return unknown
    return _compare(kind, first, second)


def _most(node: Node | None, name: str, sign: int, *, nothing: float) -> float:
    """The largest value of sign x `name` at which a condition can hold, from comparisons with a number; `nothing` where there is none."""
    if node is None or node[0] == "not":
        return nothing
    kind, left, right = node
    if kind in ("and", "or"):
        sides = [_most(side, name, sign, nothing=nothing) for side in (left, right)]
        return min(sides) if kind == "and" else max(sides)
    upper, lower = (("<", "<="), (">", ">=")) if sign > 0 else ((">", ">="), ("<", "<="))
    for side, other, signs in ((left, right, upper), (right, left, lower)):
        if side[:2] == ("name", name) and other[0] == "value" and type(other[1]) in (int, float) and kind in (*signs, "=", "=="):
            return sign * float(other[1])
    return nothing


_MISSING = object()


def _value(side: Node, values: Mapping[str, Any]) -> Any:
    return values.get(side[1], _MISSING) if side[0] == "name" else side[1]


def _compare(sign: str, first: Any, second: Any) -> Any:
    def one(a: Any, b: Any) -> bool:
        if sign in ("=", "==", "!="):
            return bool(_SIGNS[sign](a, b))
        return isinstance(a, int | float) and isinstance(b, int | float) and bool(_SIGNS[sign](a, b))

    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.frompyfunc(one, 2, 1)(first, second).astype(bool)
    return one(first, second)


def _fail(problem: str) -> NoReturn:
    raise InputError(problem, where="--where", remedy="write for example: tp<=8 and memory_per_gpu_gb<200")


def _tokens(text: str) -> list[tuple[str, str]]:
    if len(text) > MAX_CHARACTERS:
        _fail(f"is {len(text)} characters long, at most {MAX_CHARACTERS} are read")
    found, place = [], 0
    while place < len(text.rstrip()):
        match = _TOKEN.match(text, place)
        if match is None:
            _fail(f"cannot read {text[place:].strip()[:20]!r}")
        found.append((str(match.lastgroup), match.group(match.lastgroup or 0)))
        place = match.end()
    return found


def _check(sign: str, left: Node, right: Node) -> None:
    """Refuse what can never be true or never be false: a word that the name never is, an order of words."""
    for side, other in ((left, right), (right, left)):
        (kind, name, _), (other_kind, value, _) = side, other
        if kind != "name" or other_kind != "value" or value is None:
            continue
        choices = _choices(name)
        words = [choice for choice in choices if isinstance(choice, str)]
        if isinstance(value, str) and value not in words:
            allowed = ", ".join(words) or ("true or false" if choices == (True, False) else "a number")
            _fail(f"{name} is never {value!r} (it is {allowed})")
        if words and (not isinstance(value, str) or sign not in ("=", "==", "!=")):
            _fail(f"{name} is a word, {sign} {value} says nothing about it")


def _choices(name: str) -> tuple[Any, ...]:
    """What a name can be; empty for numbers."""
    if name == "fits_physically":
        return get_args(Fit)
    return (KNOBS[name].choices or ()) if name in KNOBS else ()


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens, self.place, self.depth = tokens, 0, 0

    def next(self) -> tuple[str, str]:
        return self.tokens[self.place] if self.place < len(self.tokens) else ("end", "the end")

    def takes(self, *words: str) -> str | None:
        kind, text = self.next()
        if kind != "text" and text in words:
            self.place += 1
            return text
        return None

    def condition(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            _fail(f"is nested deeper than {MAX_DEPTH}")
        node = self.conjunction()
        while self.takes("or"):
            node = ("or", node, self.conjunction())
        self.depth -= 1
        return node

    def conjunction(self) -> Node:
        node = self.term()
        while self.takes("and"):
            node = ("and", node, self.term())
        return node

    def term(self) -> Node:
        negations = 0
        while self.takes("not"):
            negations += 1
        if self.takes("("):
            node = self.condition()
            if not self.takes(")"):
                _fail(f"a ) is missing before {self.next()[1]}")
        else:
            node = self.comparison()
        return ("not", node, None) if negations % 2 else node

    def comparison(self) -> Node:
        left, node = self.side(first=True), None
        while sign := self.takes(*_SIGNS):
            right = self.side(first=False)
            _check(sign, left, right)
            part: Node = (sign, left, right)
            node = part if node is None else ("and", node, part)
            left = right
        if node is None:
            _fail(f"a comparison is missing before {self.next()[1]}")
        return node

    def side(self, *, first: bool) -> Node:
        kind, text = self.next()
        self.place += 1
        if kind == "number":
            return "value", float(text) if any(sign in text for sign in ".eE") else int(text), None
        if kind == "text":
            return "value", text[1:-1], None
        if kind == "name" and text not in ("and", "or", "not"):
            if text in NAMES:
                return "name", text, None
            if text.lower() in _WORDS:
                return "value", _WORDS[text.lower()], None
            if not first:
                return "value", text, None
            near = get_close_matches(text, NAMES, n=1)
            _fail(f"does not know {text!r}" + (f"; did you mean {near[0]}?" if near else f"; names are {', '.join(NAMES)}"))
        _fail(f"expected a name or a number, found {text!r}")


def parse_where(text: str | None) -> Condition:
    """The condition. Raises InputError with what is wrong."""
    if text is None or not text.strip():
        return Condition(text="", node=None)
    parser = _Parser(_tokens(text))
    node = parser.condition()
    if parser.place < len(parser.tokens):
        _fail(f"does not expect {parser.next()[1]!r}")
    return Condition(text=text.strip(), node=node)
