"""The words of a shell script, read and never run: quotes, comments, continuations, arrays and variables as bash has them.

Whatever only a shell could decide (command substitution, arithmetic, positional parameters) becomes a part that says so, and is refused
where its value is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from primus_mcp.errors import InputError

MAX_WORDS = 20_000
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_BRACED = re.compile(r"([A-Za-z_]\w*)(\[[@*]\])?(?::?-([^{}$`]*))?")
_OPERATORS = ";&|<>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Text, a variable (`default`: what `${NAME:-default}` gives), or what only a shell could decide."""

    kind: Literal["text", "variable", "undecided"]
    value: str
    quoted: bool = False
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """Parts without space between them."""

    parts: tuple[Part, ...]
    line: int

    @property
    def literal(self) -> str | None:
        """The text, where no part is a variable."""
        return "".join(part.value for part in self.parts) if all(part.kind == "text" for part in self.parts) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """`NAME=word` or `NAME=(words)`, with `+=` to append."""

    name: str
    words: tuple[Word, ...]
    array: bool
    append: bool
    line: int


@dataclass(frozen=True, slots=True)
class End:
    """The end of a statement: a line break or an operator."""

    line: int


Item = Word | Assignment | End


def _joined(parts: list[Part]) -> Iterator[Part]:
    """The parts of a word, texts that follow each other as one: scanning makes a part a character."""
    for (text, quoted), run in groupby(parts, key=lambda part: (part.kind == "text", part.quoted)):
        if text:
            yield Part(kind="text", value="".join(part.value for part in run), quoted=quoted)
        else:
            yield from run


class Lexer:
    """One pass over a text. Raises InputError for quotes and parentheses that nobody closes."""

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text.replace("\r\n", "\n").replace("\\\n", " \x00"), where
        self.at, self.line = 0, 1

    def _fail(self, problem: str) -> InputError:
        return InputError(f"line {self.line}: {problem}", where=self.where, remedy="paste the arguments as the shell would read them")

    def _peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def _take(self) -> str:
        character = self._peek()
        self.at += 1
        self.line += character in ("\n", "\x00")
        return character

    def items(self) -> Iterator[Item]:
        """Words, assignments and ends of statements, in order."""
        count = 0
        while self.at < len(self.text):
            character = self._peek()
            if character in " \t\x00":
                self._take()
            elif character == "#":
                self._comment()
            elif character == "\n" or character in _OPERATORS:
                self._take()
                yield End(self.line)
            else:
                count += 1
                if count > MAX_WORDS:
                    raise InputError(f"has more than {MAX_WORDS:,} words", where=self.where, remedy="give the arguments only")
                yield self._assignment() or self._word("")
        yield End(self.line)

    def _comment(self) -> None:
        while self._peek() and self._peek() not in "\n\x00":
            self._take()

    def _assignment(self) -> Assignment | None:
        match = _ASSIGNMENT.match(self.text, self.at)
        if match is None:
            return None
        line, self.at = self.line, match.end()
        array = self._peek() == "("
        words = tuple(self._array()) if array else (self._word(""),)
        return Assignment(name=match[1], words=words, array=array, append=bool(match[2]), line=line)

    def _array(self) -> Iterator[Word]:
        self._take()
        for _ in range(MAX_WORDS):
            while self._peek() and self._peek() in " \t\n\x00":
                self._take()
            if self._peek() == "#":
                self._comment()
            elif self._peek() == ")":
                self._take()
                return
            elif not self._peek():
                raise self._fail("an array is not closed")
            else:
                yield self._word(")")
        raise self._fail("an array is too long")

    def _word(self, stops: str) -> Word:
        """Up to the next blank. A parenthesis inside is text, as in ([0]*3+[1]*58); `stops` ends the word unless one is open."""
        parts: list[Part] = []
        line, open_parentheses = self.line, 0
        while (character := self._peek()) and character not in " \t\n\x00" and character not in _OPERATORS:
            if character in stops and open_parentheses == 0:
                break
            if character == "'":
                parts.append(Part(kind="text", value=self._single(), quoted=True))
            elif character == '"':
                parts += self._double()
            elif character in "$`":
                parts.append(self._variable(quoted=False))
            else:
                open_parentheses += (character == "(") - (character == ")")
                self._take()
                parts.append(Part(kind="text", value=self._take() if character == "\\" and self._peek() else character))
        if character in "<>" and character and len(parts) == 1 and parts[0].value.isdigit():
            parts = []  # the number of a redirected stream, as in 2>&1
        return Word(parts=tuple(_joined(parts)), line=line)

    def _single(self) -> str:
        self._take()
        end = self.text.find("'", self.at)
        if end < 0:
            raise self._fail("a quote is not closed")
        text = self.text[self.at : end]
        self.line += text.count("\n") + text.count("\x00")
        self.at = end + 1
        return text.replace(" \x00", "\\\n")

    def _double(self) -> list[Part]:
        self._take()
        parts: list[Part] = [Part(kind="text", value="", quoted=True)]
        while (character := self._peek()) != '"':
            if not character:
                raise self._fail("a quote is not closed")
            if character in "$`":
                parts.append(self._variable(quoted=True))
                continue
            self._take()
            if character == "\\" and self._peek() and self._peek() in '"\\$`':
                character = self._take()
            parts.append(Part(kind="text", value="" if character == "\x00" else character, quoted=True))
        self._take()
        return parts

    def _variable(self, *, quoted: bool) -> Part:
        start, line = self.at, self.line
        if self._take() == "`":
            self._skip_to("`")
        elif self._peek() == "(":
            self._skip_parentheses()
        elif self._peek() == "{":
            self._skip_to("}")
            match = _BRACED.fullmatch(self.text[start + 2 : self.at - 1])
            if match is not None:
                return Part(kind="variable", value=match[1], default=match[3], quoted=quoted and match[2] is None)
        elif match := _NAME.match(self.text, self.at):
            self.at = match.end()
            return Part(kind="variable", value=match[0], quoted=quoted)
        elif self._peek() and self._peek() in "0123456789@*#?!$-":
            self._take()
        else:
            return Part(kind="text", value="$", quoted=quoted)
        return Part(kind="undecided", value=f"{self.text[start : min(self.at, start + 60)]} (line {line})", quoted=quoted)

    def _skip_to(self, end: str) -> None:
        while self._peek() and self._peek() != end:
            self._take()
        if not self._take():
            raise self._fail(f"{end} is missing")

    def _skip_parentheses(self) -> None:
        depth = 0
        while self._peek():
            character = self._take()
            depth += (character == "(") - (character == ")")
            if depth == 0:
                return
        raise self._fail(") is missing")
