"""Mutations of real documents: what a slip of the editor, a wrong copy or malice makes of a YAML file."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    3,
    7,
    64,
    10**9,
    2**62,
    2**70,
    -(2**70),
    0.5,
    -0.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    " ",
    "x",
    "8",
    "null",
    "1e3",
    "${A}",
    "${A:3}",
    "${A:${B}}",
    "\x00",
    "\u00e9\u2028",
    "long " * 2000,
    [],
    [1],
    [[1], {"a": None}],
    {},
    {"a": {"b": [1]}},
    "Et*3|t*2|L",
    "([0]*3+[1]*58)",
    "[" * 60,
    "9" * 400,
    "../../../etc/passwd",
    "/dev/zero",
    "deepseek_v3.yaml",
    "full",
    "selective",
)
OPERATIONS = ("replace", "delete", "rename", "nest", "copy")


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path of a document but the root."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    found: list[tuple[Any, ...]] = []
    for key, value in items:
        found += [(*path, key), *places(value, (*path, key))]
    return found


def apply(document: Any, position: int, operation: str, value: Any) -> None:
    """One mutation in place; `position` is taken modulo the number of places."""
    found = places(document)
    if not found:
        return
    *folders, key = found[position % len(found)]
    parent = document
    for folder in folders:
        parent = parent[folder]
    if operation == "replace":
        parent[key] = deepcopy(value)
    elif operation == "delete":
        del parent[key]
    elif operation == "nest":
        parent[key] = {"extra": parent[key]}
    elif operation == "copy":
        parent[key] = deepcopy(document[next(iter(document))])
    elif isinstance(parent, dict):
        parent[str(value)[:50]] = parent.pop(key)


def mutations() -> st.SearchStrategy[list[tuple[int, str, Any]]]:
    """One to four mutations."""
    one = st.tuples(st.integers(0, 10_000), st.sampled_from(OPERATIONS), st.sampled_from(VALUES))
    return st.lists(one, min_size=1, max_size=4)


def mutated(document: Any, steps: list[tuple[int, str, Any]]) -> Any:
    """A copy of the document after the mutations."""
    copy = deepcopy(document)
    for step in steps:
        apply(copy, *step)
    return copy


def byte_edits() -> st.SearchStrategy[list[tuple[int, bytes]]]:
    """Where in a file, and what is written there instead of one byte."""
    texts = (
        b"\t",
        b"\r\n",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\x00",
        b": ",
        b"- ",
        b"*a",
        b"&a ",
        b"{",
        b"}",
        b"!!python/object:os.system ",
        b"---\n",
        b"#",
        b"'",
    )
    return st.lists(
        st.tuples(st.integers(0, 100_000), st.one_of(st.sampled_from(texts), st.binary(min_size=0, max_size=3))), min_size=1, max_size=5
    )


def edited(data: bytes, edits: list[tuple[int, bytes]]) -> bytes:
    """The file after the edits."""
    for position, text in edits:
        at = position % (len(data) + 1)
        data = data[:at] + text + data[at + 1 :]
    return data
