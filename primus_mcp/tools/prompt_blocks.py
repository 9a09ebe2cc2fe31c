"""Generated blocks of `prompts/`: knobs and tools, between `<!-- begin NAME -->` and `<!-- end NAME -->` lines.

`python -m primus_mcp.tools.prompt_blocks` brings the files of a checkout up to date; a test keeps them current.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from primus_mcp.space.knobs import KNOBS
from primus_mcp.tools import TOOLS
from primus_mcp.tools.configuration import ConfigJson

NOT_FOR_SEARCH = frozenset({"seed_trials", "sweep", "set_budget", "plot_trials", "write_report", "export_best"})
"""Verbs over a session that a searching model does not get: it may not move its limits, spend the seeds' or write the artefacts."""
_BLOCK = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)
_MARK = re.compile(r"^<!-- (?:begin|end) \w+ -->\n?", re.MULTILINE)


def search_tools() -> tuple[str, ...]:
    """Names of the verbs that a searching model may use, in their order."""
    return tuple(name for name, entry in TOOLS.items() if entry.scope == "session" and name not in NOT_FOR_SEARCH)


def _knobs() -> str:
    lines = []
    for group in dict.fromkeys(knob.group for knob in KNOBS.values()):
        lines.append(f"{group}:")
        for knob in (knob for knob in KNOBS.values() if knob.group == group):
            moe = " (MoE)" if knob.moe_only else ""
            lines.append(f"- `{knob.name}`{moe} {knob.values_text}: {knob.description}. Legal: {knob.legal}.")
    return "\n".join(lines)


def _knob_names() -> str:
    return "Knobs: " + ", ".join(f"`{name}`" for name in KNOBS) + "."


def _type_text(annotation: Any) -> str:
    if annotation == ConfigJson:
        return "object"
    plain = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    if get_origin(plain) is Literal:
        return "|".join(repr(value) for value in get_args(plain))
    return str(getattr(plain, "__name__", plain)) if not get_args(plain) else str(plain)


def _parameter(parameter: inspect.Parameter) -> str:
    default = "" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}"
    return f"{parameter.name}: {_type_text(parameter.annotation)}{default}"


def _tools() -> str:
    lines = []
    for name in search_tools():
        entry = TOOLS[name]
        lines.append(f"- `{name}({', '.join(_parameter(parameter) for parameter in entry.parameters.values())})`: {entry.description}")
    return "\n".join(lines)


BLOCKS: dict[str, Callable[[], str]] = {"knobs": _knobs, "knob_names": _knob_names, "tools": _tools}


def with_blocks(text: str) -> str:
    """The text with every block made anew."""
    return _BLOCK.sub(lambda found: f"{found[1]}{BLOCKS[found[2]]()}\n{found[3]}", text)


def without_marks(text: str) -> str:
    """The text as a model reads it."""
    return _MARK.sub("", text)


def update_prompts(folder: Path) -> None:
    """Bring the files of a folder up to date."""
    for path in sorted(folder.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (fresh := with_blocks(text)) != text:
            path.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    update_prompts(Path("prompts"))
