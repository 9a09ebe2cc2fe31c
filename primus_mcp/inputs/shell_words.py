"""The arguments of the training command in a shell fragment: from a bare list to a whole launch script, read and never run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from primus_mcp.errors import InputError
from primus_mcp.inputs.shell_lexer import MAX_WORDS, Assignment, End, Lexer, Part, Word
from primus_mcp.inputs.yaml_loader import MAX_BYTES

_OPENING = frozenset({"if", "for", "while", "until", "case", "select", "function"})
_CLOSING = frozenset({"fi", "done", "esac"})
_BETWEEN = frozenset({"then", "else", "elif", "do"})
_DECLARING = frozenset({"export", "declare", "local", "readonly", "typeset"})
_MAX_DEPTH = 100
_TIE = "\0"
_BLANKS = re.compile(r"(\s+)")
_Mode = Literal["word", "split", "join"]
_SCRIPT = re.compile(r"[^\s=-][^\s=]*\.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One word of the command. `unknown`: what its value hangs on, where nothing gives it."""

    text: str
    line: int
    unknown: str | None = None


@dataclass(frozen=True, slots=True)
class _Value:
    words: tuple[Word, ...]
    array: bool
    undecided: str | None = None


@dataclass(slots=True)
class _Script:
    """`variables`: the newest value of each name; `values`: all of them, by number, as later words refer to them."""

    variables: dict[str, int] = field(default_factory=dict)
    values: list[_Value] = field(default_factory=list)
    statements: list[tuple[list[Word], bool]] = field(default_factory=list)

    def newest(self, name: str) -> _Value | None:
        number = self.variables.get(name)
        return None if number is None else self.values[number]

    def bound(self, word: Word) -> Word:
        """The word with each variable tied to the value that it has now, as a shell would expand it."""
        if not any(part.kind == "variable" and part.value in self.variables for part in word.parts):
            return word
        tied = (
            replace(part, value=f"{part.value}{_TIE}{self.variables[part.value]}") if part.value in self.variables else part
            for part in word.parts
        )
        return replace(word, parts=tuple(tied))


def _literal(item: Word | Assignment) -> str:
    return (item.literal or "") if isinstance(item, Word) else ""


def _assign(script: _Script, item: Assignment, depth: int) -> None:
    """A variable set inside `if` or a loop has no value that can be known here."""
    before = script.newest(item.name) if item.append else None
    words = tuple(script.bound(word) for word in item.words)
    if before and item.array:
        words = (*before.words, *words)
    elif before and before.words:
        words = (Word(parts=(*before.words[0].parts, *words[0].parts), line=item.line),)
    undecided = f"{item.name} (set under a condition in line {item.line})" if depth else before.undecided if before else None
    script.variables[item.name] = len(script.values)
    script.values.append(_Value(words, item.array, undecided))


def _statements(text: str, where: str) -> _Script:
    script, depth = _Script(), 0
    statement: list[Word] = []
    for item in Lexer(text, where).items():
        if isinstance(item, End):
            if statement:
                script.statements.append(([script.bound(word) for word in statement], depth > 0))
            statement = []
        elif isinstance(item, Assignment):
            if statement:  # behind a command it is an argument such as a=b
                parts = (Part(kind="text", value=f"{item.name}="), *(part for word in item.words for part in word.parts))
                statement.append(Word(parts=parts, line=item.line))
            else:
                _assign(script, item, depth)
        elif not statement and (word := _literal(item)) in _OPENING | _CLOSING | _BETWEEN | _DECLARING:
            depth += (word in _OPENING) - (word in _CLOSING)
        elif item.parts:
            statement.append(item)
    return script


class _Fields:
    """Words being built: text joins the last one until a blank of a split text closes it."""

    def __init__(self) -> None:
        self.items: list[tuple[list[str], str | None]] = []
        self.open = False
        self.length = 0

    def add(self, text: str, unknown: str | None = None, *, split: bool = False) -> None:
        """Raises InputError where variables expand to too much text."""
        if split:
            for piece in _BLANKS.split(text):
                if piece.isspace():
                    self.open = False
                elif piece:
                    self.add(piece)
            return
        self.length += 1 + len(text)
        if len(self.items) > MAX_WORDS or self.length > MAX_BYTES:
            raise InputError("its variables expand to too much text", where="arguments", remedy="give the arguments only")
        if self.open:
            pieces, missing = self.items[-1]
            pieces.append(text)
            self.items[-1] = pieces, missing or unknown
        else:
            self.items.append(([text], unknown))
        self.open = True


class _Expansion:
    """Fields of words. A variable's value is split at blanks where the variable stands outside of quotes."""

    def __init__(self, script: _Script, defines: Mapping[str, str]) -> None:
        self.script, self.defines, self.fields = script, defines, _Fields()

    def _part(self, part: Part, mode: _Mode, depth: int) -> None:
        inner: _Mode = "split" if mode == "split" or (mode == "word" and not part.quoted) else "join"
        if part.kind == "undecided":
            self.fields.add("", part.value)
            return
        name, _, number = part.value.partition(_TIE)
        value = self.script.values[int(number)] if number else None
        if name in self.defines:
            self.fields.add(self.defines[name], split=inner == "split")
        elif value is None or depth > _MAX_DEPTH:
            if part.default is None:
                self.fields.add("", name)
            else:
                self.fields.add(part.default, split=inner == "split")
        elif value.undecided is not None:
            self.fields.add("", value.undecided)
        else:
            for index, word in enumerate(value.words):
                self.fields.open = self.fields.open and not index
                self.word(word, "word" if value.array and inner == "split" else inner, depth + 1)

    def word(self, word: Word, mode: _Mode = "word", depth: int = 0) -> None:
        """Adds the fields of one word."""
        for part in word.parts:
            if part.kind == "text":
                self.fields.add(part.value, split=mode == "split")
            else:
                self._part(part, mode, depth)

    def tokens(self, words: list[Word]) -> Iterator[Token]:
        """Every field of every word."""
        for word in words:
            self.fields.items, self.fields.open = [], False
            self.word(word)
            yield from (Token(text="".join(pieces), line=word.line, unknown=unknown) for pieces, unknown in self.fields.items)


def _may_hold_arguments(words: list[Word]) -> bool:
    """Whether a statement of a script that starts no training is a list of arguments, not a command such as mkdir."""
    return any(_literal(word).startswith("--") for word in words) or all(word.literal is None for word in words)


def _command(script: _Script, where: str) -> list[Word]:
    """The words behind the training script; of a fragment without one, all words."""
    commands = []
    for words, conditional in script.statements:
        position = next((index for index, word in enumerate(words) if _SCRIPT.fullmatch(_literal(word))), None)
        if position is not None and len(words) > position + 1:
            commands.append((words[position + 1 :], conditional))
    if len(commands) > 1:
        lines = ", ".join(str(words[0].line) for words, _ in commands)
        raise InputError(f"starts several scripts (lines {lines})", where=where, remedy="give one command")
    if not commands:
        lists = [(words, under) for words, under in script.statements if not script.variables or _may_hold_arguments(words)]
        commands = [([word for words, _ in lists for word in words], any(under for _, under in lists))]
    words, conditional = commands[0]
    if conditional:
        raise InputError("arguments stand under an `if` or in a loop", where=where, remedy="paste the arguments that would run")
    return words


def read_words(text: str, defines: Mapping[str, str], where: str) -> list[Token]:
    """The arguments of the command in a shell fragment, variables replaced by `defines` and by what the fragment itself sets.

    Nothing is run, and no environment variable is read. Raises InputError for what is not closed, for several commands and for arguments
    under a condition.
    """
    clean = "".join(c if c.isprintable() or c in "\n\t\r" else " " for c in text)
    script = _statements(clean, where)
    words = _command(script, where)
    found = list(_Expansion(script, defines).tokens(words))
    if not found and script.variables:  # only assignments: one variable that holds the arguments
        newest = [value for name in script.variables if (value := script.newest(name)) is not None]
        holders = [value for value in newest if any((_literal(word) or "-").startswith("-") for word in value.words)]
        words = [word for value in holders for word in value.words]
        found = [token for word in words for token in _Expansion(script, defines).tokens([_unquoted(word)])]
    return found


def _unquoted(word: Word) -> Word:
    """A quoted list of arguments, as `ARGS="--a 1 --b 2"` holds it, split at blanks again."""
    if len(word.parts) and all(part.kind == "text" for part in word.parts) and " " in (word.literal or ""):
        return Word(parts=(Part(kind="variable", value="", default=word.literal),), line=word.line)
    return word
