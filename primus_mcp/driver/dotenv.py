"""`.env` files: NAME=value lines. Read, never executed; the environment always wins over them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from primus_mcp.errors import InputError
from primus_mcp.inputs.regular_file import read_regular

FILE_NAME = ".env"
MAX_BYTES = 100_000
_LINE = re.compile(r"^\s*(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?P<value>.*?)\s*$")
_QUOTED = re.compile(r"""^(?P<quote>['"])(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)\s*(?:#.*)?$""")
_ESCAPE = re.compile(r"\\(.)")
_MEANING = {"n": "\n", "t": "\t", "r": "\r"}


def parse_dotenv(text: str) -> dict[str, str]:
    """Names and values. Single quotes keep text as it is, double quotes know backslash escapes, ` #` starts a comment outside quotes.

    A line that is no assignment is left out: the file belongs to the user, and other programs read it too.
    """
    found: dict[str, str] = {}
    for line in text.removeprefix("\ufeff").splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        raw = match["value"]
        quoted = _QUOTED.match(raw)
        if quoted is None:
            value = re.split(r"(?:^|\s)#", raw, maxsplit=1)[0].rstrip()
        elif quoted["quote"] == "'":
            value = quoted["text"]
        else:
            value = _ESCAPE.sub(lambda escape: _MEANING.get(escape[1], escape[1]), quoted["text"])
        found[match["name"]] = value
    return found


def read_dotenv(path: Path) -> dict[str, str]:
    """Names and values of a file; nothing where there is none. Raises InputError for one that cannot be read (its text is not shown)."""
    try:
        if not path.is_file():
            return {}
        data = read_regular(path)
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror or error}", where=str(path), remedy="correct its permissions, or remove it"
        ) from None
    if len(data) > MAX_BYTES:
        raise InputError(f"has more than {MAX_BYTES:,} bytes", where=str(path), remedy="this is no .env file")
    return parse_dotenv(data.decode("utf-8", "replace"))


def dotenv_values(folders: Iterable[Path]) -> dict[str, tuple[str, Path]]:
    """Every name with its value and the file it stands in; the first folder that has a name wins."""
    found: dict[str, tuple[str, Path]] = {}
    for path in dict.fromkeys((folder / FILE_NAME).absolute() for folder in folders):
        for name, value in read_dotenv(path).items():
            found.setdefault(name, (value, path))
    return found
