"""Texts in `prompts/`: Markdown with a YAML head between `---` lines. The MCP prompts and the driver read the same files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import yaml

from primus_mcp.errors import InputError

_HEAD = re.compile(r"\A---\n(.*?)\n---\n(.*)\Z", re.DOTALL)
_FIELD = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptArgument:
    """An argument of a prompt; `default` is what stands in the text without it."""

    name: str
    description: str
    required: bool
    default: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFile:
    """A prompt: its head and its text with `{{argument}}` fields."""

    name: str
    title: str
    description: str
    arguments: tuple[PromptArgument, ...]
    text: str

    def render(self, values: Mapping[str, str]) -> str:
        """The text with its fields filled. Raises InputError for an unknown or missing argument."""
        known = {argument.name: argument for argument in self.arguments}
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise InputError(f"has no argument {unknown[0]!r}", where=f"prompt {self.name}", remedy=f"its arguments are {', '.join(known)}")
        missing = [name for name, argument in known.items() if argument.required and not values.get(name)]
        if missing:
            raise InputError(f"needs {missing[0]}", where=f"prompt {self.name}", remedy=known[missing[0]].description)
        filled = {name: values.get(name) or argument.default for name, argument in known.items()}
        return _FIELD.sub(lambda field: filled[field[1]], self.text)


@cache
def prompt_folder() -> Traversable:
    """In the wheel beside the code, in a checkout at its top."""
    packaged = files("primus_mcp") / "_prompts"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "prompts"


@cache
def prompt_text(name: str) -> str:
    """A text of `prompts/` without its head."""
    text = (prompt_folder() / f"{name}.md").read_text(encoding="utf-8")
    return found[2].strip() if (found := _HEAD.match(text)) else text.strip()


@cache
def prompt_file(name: str) -> PromptFile:
    """One prompt of `prompts/`."""
    found = _HEAD.match((prompt_folder() / f"{name}.md").read_text(encoding="utf-8"))
    assert found is not None, f"prompts/{name}.md has no head"
    head = yaml.safe_load(found[1])
    arguments = tuple(
        PromptArgument(
            name=entry["name"],
            description=entry["description"],
            required=bool(entry.get("required", False)),
            default=str(entry.get("default", "")),
        )
        for entry in head.get("arguments", [])
    )
    fields, known = set(_FIELD.findall(found[2])), {argument.name for argument in arguments}
    assert fields == known, f"prompts/{name}.md: fields {sorted(fields)}, arguments {sorted(known)}"
    return PromptFile(name=name, title=head["title"], description=head["description"], arguments=arguments, text=found[2].strip())
