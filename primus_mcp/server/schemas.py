"""Arguments of a tool: the model that checks them, the schema that clients see, and refusals that a model can act on."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from primus_mcp.errors import InputError
from primus_mcp.space.knobs import KNOBS
from primus_mcp.tools.configuration import ConfigJson
from primus_mcp.tools.registry import Tool
from primus_mcp.tools.results import Result

SESSION_ID = "session_id"
_SHOWN = 80
_BIG = 1_000_000
_UNSAID = ("title", "maxLength", "minLength", "maxItems", "minItems")
"""Checked, but not worth a client's tokens; so are bounds of a million and defaults of nothing."""


def session_parameter(required: bool) -> inspect.Parameter:
    """`session_id`: always needed over HTTP, optional on stdio while one session is open."""
    described = Annotated[str, Field(max_length=100)]
    default = inspect.Parameter.empty if required else ""
    return inspect.Parameter(SESSION_ID, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=described)


def argument_model(tool: Tool, *, session_required: bool) -> type[BaseModel]:
    """Pydantic model of what a client may send: unknown names are refused."""
    parameters = dict(tool.parameters)
    if tool.scope == "session" or SESSION_ID in parameters:
        parameters[SESSION_ID] = session_parameter(session_required)
    required = {name: p for name, p in parameters.items() if p.default is inspect.Parameter.empty}
    fields: dict[str, Any] = {name: (p.annotation, ...) for name, p in required.items()}
    fields |= {name: (p.annotation, p.default) for name, p in parameters.items() if name not in required}
    return create_model(tool.name, __config__=ConfigDict(extra="forbid", hide_input_in_errors=True), **fields)


def _small(schema: Any) -> Any:
    """A schema without what pydantic adds for people: titles, defaults that say nothing, and the empty choice, which Gemini refuses."""
    if isinstance(schema, list):
        return [_small(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if key in _UNSAID or (key == "default" and value in ("", None, 0, [])) or (key in ("maximum", "minimum") and abs(value) >= _BIG):
            continue
        if key == "enum":
            value = [choice for choice in value if choice != ""]
        kept[key] = {name: _small(item) for name, item in value.items()} if key == "properties" else _small(value)
    return kept


def input_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The model's JSON schema, flat and small; `additionalProperties` false."""
    schema: dict[str, Any] = _small(model.model_json_schema())
    schema.pop("description", None)
    return {
        "type": "object",
        "properties": schema.get("properties", {}),
        **({"required": schema["required"]} if schema.get("required") else {}),
        "additionalProperties": False,
    }


_JSON_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}


def _kinds(annotation: Any) -> list[str]:
    """JSON types that a field of a result may have."""
    if annotation in _JSON_TYPES:
        return [_JSON_TYPES[annotation]]
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kinds(get_args(annotation)[0])
    if origin in (list, dict, Literal):
        return [{list: "array", dict: "object", Literal: "string"}[origin]]
    return [kind for argument in get_args(annotation) for kind in _kinds(argument)]


def output_schema(result: type[Result]) -> dict[str, Any]:
    """Names and types of a result's published fields. Nothing is required and more may come. A list of types for one field would be
    shorter than anyOf, but clients that know a single type only may refuse it.
    """
    properties: dict[str, Any] = {}
    for name in result.published:
        kinds = [{"type": kind} for kind in _kinds(result.model_fields[name].annotation)]
        properties[name] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return {"type": "object", "properties": properties}


def output_type_name(annotation: Any) -> str:
    """The type of a field in words, for the docs."""
    return " or ".join(_kinds(annotation))


_LISTS = (list, Sequence)


def _from_text(value: Any, annotation: Any) -> Any:
    """Some clients send lists and objects as JSON text; numbers may come as text too."""
    if not isinstance(value, str) or get_origin(annotation) not in _LISTS:
        return value
    text = value.strip()
    try:
        return json.loads(text if text.startswith("[") else f"[{text}]")
    except (ValueError, RecursionError):
        return [word.strip() for word in text.split(",")] if get_args(annotation)[0] is str else value


def _refuse_unknown(tool: Tool, arguments: Mapping[str, Any], known: list[str]) -> None:
    for name in arguments:
        if name in known:
            continue
        shown = str(name)[:_SHOWN]
        if name in KNOBS and "config_json" in known:
            remedy = f'{shown} is a knob: put it into config_json, e.g. {{"config_json": {{"{shown}": ...}}}}'
        else:
            near = get_close_matches(shown, known, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else f"its arguments are {', '.join(known) or 'none'}"
        raise InputError(f"has no argument {shown!r}", where=tool.name, remedy=remedy)


def check_arguments(tool: Tool, model: type[BaseModel], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Checked values by name. Raises InputError that names the argument, what is wrong and what it takes.

    An explicit null means "not given" where there is a default. True and false are no numbers.
    """
    known = list(model.model_fields)
    _refuse_unknown(tool, arguments, known)
    given: dict[str, Any] = {}
    for name, value in arguments.items():
        field = model.model_fields[name]
        if value is None and not field.is_required():
            continue
        if isinstance(value, bool) and field.annotation in (int, float):
            raise InputError(f"is {str(value).lower()}", where=f"{tool.name}: {name}", remedy="write a number")
        if isinstance(value, list) and any(isinstance(item, bool) for item in value):
            raise InputError("holds true or false", where=f"{tool.name}: {name}", remedy="write numbers or names")
        given[name] = _from_text(value, field.annotation)
    try:
        checked = model.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "arguments"
        raise InputError(
            f"{first['msg'][0].lower()}{first['msg'][1:]}", where=f"{tool.name}: {place}", remedy=_takes(model, first["loc"])
        ) from None
    return {name: getattr(checked, name) for name in known}


def _takes(model: type[BaseModel], place: tuple[Any, ...]) -> str | None:
    schema = input_schema(model)["properties"].get(place[0] if place else "")
    if schema is None:
        return None
    if "enum" in schema:
        return f"it takes {', '.join(map(str, schema['enum']))}"
    limits = [f"{word} {schema[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in schema]
    return f"it takes {schema.get('type', 'a value')}" + (f" {' '.join(limits)}" if limits else "")


__all__ = ["ConfigJson", "argument_model", "check_arguments", "input_schema", "output_schema"]
