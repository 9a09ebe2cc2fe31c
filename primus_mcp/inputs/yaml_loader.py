"""YAML files to plain Python, defensively: every way in which a file can be unusable is one InputError with file, field and remedy.

Scalars follow YAML 1.1 as the trainer's PyYAML reads it (`1.0e-5` is a float, `1e-5` a string). Only plain data comes out: mappings with
string keys, lists, strings, booleans, integers, finite floats and null.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from primus_mcp.errors import InputError
from primus_mcp.inputs.regular_file import read_regular

MAX_BYTES = 2 * 1024 * 1024
MAX_DEPTH = 40
MAX_NODES = 100_000
MAX_INTEGER = 2**63

_PLACEHOLDER = re.compile(r"\$\{([^:{}]+)(?::([^}]*))?\}")
_INTEGER = re.compile(r"[-+]?\d+")
_WORDS: Mapping[str, bool | None] = {"null": None, "none": None, "~": None, "true": True, "false": False}
_SafeLoader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _PlainLoader(_SafeLoader):  # type: ignore[misc]
    """The safe loader, which also refuses a key written twice (PyYAML would keep the last one silently)."""


def _construct_mapping(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is written twice", key.start_mark)
            seen.add(key.value)
    loader.flatten_mapping(node)
    return {loader.construct_object(key, deep=True): loader.construct_object(value, deep=True) for key, value in node.value}


_PlainLoader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


def is_file(path: Path) -> bool:
    """Whether a regular file is there; a name that the file system cannot hold is not."""
    try:
        return path.is_file()
    except OSError:
        return False


def read_text(path: Path) -> str:
    """The text of a regular UTF-8 file of at most 2 MB, without a byte-order mark."""
    where = str(path)
    try:
        if path.is_dir():
            raise InputError("is a directory", where=where, remedy="name the YAML file in it")
        if not path.exists():
            raise InputError("does not exist", where=where, remedy="check the path")
        if not path.is_file():
            raise InputError("is not a regular file", where=where, remedy="save the YAML to a file")
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"has {path.stat().st_size:,} bytes, more than {MAX_BYTES:,}", where=where, remedy="this is no workload file")
        data = read_regular(path)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=where, remedy="check the path and its permissions") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start} is not UTF-8", where=where, remedy="save the file as UTF-8") from error


def _refuse_deep_nesting(text: str, where: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_PlainLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                line = event.start_mark.line + 1 if event.start_mark else 0
                raise InputError(f"line {line} nests deeper than {MAX_DEPTH} levels", where=where, remedy="flatten the file")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _problem(error: yaml.YAMLError, source: str) -> tuple[str, str]:
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    text = str(getattr(error, "problem", None) or error).splitlines()[0]
    lines = source.splitlines()
    at = lines[mark.line][mark.column :][:1] if mark and mark.line < len(lines) else ""
    if "written twice" in text:
        return place + text, "keep one of them"
    if "constructor for the tag" in text:
        return place + text, "remove the tag"
    if "\\t" in text or at == "\t":
        return place + "a tab where YAML wants spaces", "indent with spaces"
    return place + text, "correct the YAML"


def parse_text(text: str, where: str) -> dict[str, Any]:
    """YAML text to plain data. `where` names the source in errors."""
    try:
        _refuse_deep_nesting(text, where)
        document = yaml.load(text, Loader=_PlainLoader)  # noqa: S506 - a subclass of the safe loader
    except yaml.YAMLError as error:
        problem, remedy = _problem(error, text)
        raise InputError(problem, where=where, remedy=remedy) from error
    except (ValueError, RecursionError, TypeError) as error:
        raise InputError(f"holds a value that cannot be read ({error})", where=where, remedy="correct the YAML") from error
    if not isinstance(document, dict):
        found = "nothing" if document is None else f"a {type(document).__name__}"
        raise InputError(f"holds {found} instead of `key: value` lines", where=where, remedy="check that it is the right file")
    plain: dict[str, Any] = _Walk(where).plain(document, "", 0)
    return plain


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"key {key[:100]!r} is written twice")
        result[key] = value
    return result


def parse_json(text: str, where: str) -> dict[str, Any]:
    """A JSON object to plain data, under the rules of `parse_text`."""
    try:
        document = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no JSON ({str(error) or 'nested too deeply'})", where=where, remedy="correct the file") from error
    if not isinstance(document, dict):
        raise InputError(f"holds a {type(document).__name__}, not an object", where=where, remedy="check that it is the right file")
    return plain_data(document, where)


def plain_data(document: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A checked copy: bounded plain data with text keys and finite numbers. Raises InputError."""
    plain: dict[str, Any] = _Walk(where).plain(dict(document), "", 0)
    return plain


class _Walk:
    """Copies loaded data while checking it. The node budget bounds what aliases can expand to."""

    def __init__(self, where: str) -> None:
        self.where, self.nodes = where, 0

    def refuse(self, field: str, problem: str, remedy: str) -> InputError:
        return InputError(f"{field or 'the document'} {problem}", where=self.where, remedy=remedy)

    def plain(self, value: Any, field: str, depth: int) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise self.refuse(field.split(".")[0], "expands to too much data", "remove the YAML aliases (`&`, `*`)")
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise self.refuse(f"{field}.{key}".lstrip("."), "is a key that is no text", "quote the key")
            return {key: self.plain(item, f"{field}.{key}" if field else key, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [self.plain(item, f"{field}[{index}]", depth + 1) for index, item in enumerate(value)]
        if isinstance(value, float) and not math.isfinite(value):
            raise self.refuse(field, f"is {value}", "write a finite number")
        if isinstance(value, int) and abs(value) >= MAX_INTEGER:
            raise self.refuse(field, "is an integer beyond 64 bits", "write a smaller number")
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise self.refuse(field, f"is a {type(value).__name__}", "quote it, or write a number, a text or a list")


def load_yaml(path: Path) -> dict[str, Any]:
    """A YAML file to plain data, placeholders untouched. Raises InputError."""
    return parse_text(read_text(path), str(path))


def typed_text(text: str) -> Any:
    """What a substituted text means: null, a boolean, an integer, a float, else the text itself."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text) and len(text) < 20:
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def substitute(value: Any, environment: Mapping[str, str], where: str, field: str = "") -> Any:
    """Replaces `${VAR}` and `${VAR:default}` everywhere; a text that had a placeholder gets the type it then reads as.

    Raises InputError for a variable without value and default, and for nested placeholders, which the trainer cannot read either.
    """
    if isinstance(value, dict):
        return {key: substitute(item, environment, where, f"{field}.{key}" if field else key) for key, item in value.items()}
    if isinstance(value, list):
        return [substitute(item, environment, where, f"{field}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value

    def replacement(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        text = environment.get(name, default)
        if text is None:
            raise InputError(f"{field} needs the environment variable {name}", where=where, remedy=f"export {name}=VALUE")
        return text

    text = _PLACEHOLDER.sub(replacement, value)
    if "${" in text:
        raise InputError(f"{field} is {value!r}, which is no ${{VAR:default}}", where=where, remedy="write one plain placeholder")
    return typed_text(text)
