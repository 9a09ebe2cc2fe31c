"""Pydantic errors to one InputError line: file, field, value, problem, remedy. A secret's value never appears."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from primus_mcp.errors import InputError

Model = TypeVar("Model", bound=BaseModel)
SECRET_FIELDS = frozenset({"api_key"})
_MAX_VALUE_CHARACTERS = 60
_BLOCK_WANTED = ("model_type", "dict_type", "model_attributes_type")


def _model_at(model: type[BaseModel], path: Sequence[int | str]) -> type[BaseModel] | None:
    """The model that a path leads to, following nested models, optional ones too, by field."""
    current: type[BaseModel] | None = model
    for key in path:
        field = current.model_fields.get(str(key)) if current else None
        annotation = field.annotation if field else None
        kinds = (annotation, *get_args(annotation))
        current = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
    return current


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """The remedy for an unknown name: the closest known one, else all of them."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"


def _shown(value: object, field: str) -> str:
    if field.rsplit(".", maxsplit=1)[-1] in SECRET_FIELDS:
        return "(hidden)"
    text = repr(value)
    return text if len(text) <= _MAX_VALUE_CHARACTERS else text[: _MAX_VALUE_CHARACTERS - 3] + "..."


def _remedy(error: Mapping[str, Any]) -> str:
    context: Mapping[str, Any] = error.get("ctx", {})
    bounds = {"ge": "at least {}", "gt": "more than {}", "le": "at most {}", "lt": "less than {}"}
    for key, text in bounds.items():
        if key in context:
            return f"write a number that is {text.format(context[key])}"
    if "expected" in context:
        return f"write one of {context['expected']}"
    wanted = {
        "int_type": "a whole number",
        "bool_type": "true or false",
        "string_type": "text",
        "list_type": "a list",
        "tuple_type": "a list",
    }
    kind = str(error["type"])
    if kind in wanted:
        return f"write {wanted[kind]}"
    if kind in _BLOCK_WANTED:
        return "write `key: value` lines under it"
    if kind.startswith("float"):
        return "write a finite number"
    return "correct the value"


def as_input_error(error: ValidationError, model: type[BaseModel], where: str) -> InputError:
    """The first problem of a validation as one line; further ones are counted."""
    problems = error.errors(include_url=False)
    first = next((item for item in problems if item["type"] == "extra_forbidden"), problems[0])
    field = ".".join(str(part) for part in first["loc"])
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    if first["type"] == "extra_forbidden":
        owner = _model_at(model, first["loc"][:-1])
        remedy = did_you_mean(str(first["loc"][-1]), list(owner.model_fields)) if owner else "remove it"
        return InputError(f"unknown key {field}{more}", where=where, remedy=remedy)
    if first["type"] == "missing":
        return InputError(f"{field} is missing{more}", where=where, remedy="add it")
    message = str(first["msg"]).removeprefix("Value error, ")
    shown = _shown(first["input"], field)
    text = f"{field} = {shown}: {message}{more}" if field else f"{message}{more}"
    remedy = "" if first["type"] == "value_error" else _remedy(first)
    if first["type"] in _BLOCK_WANTED and field and (block := _model_at(model, first["loc"])) is not None:
        text, remedy = f"{field} = {shown}: is no block of keys{more}", f"{remedy}: {', '.join(block.model_fields)}"
    return InputError(text, where=where, remedy=remedy or None)


def validated(model: type[Model], document: object, where: str) -> Model:
    """`document` as a frozen record of `model`. Raises InputError with the first problem."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise as_input_error(error, model, where) from None
