"""Megatron's `pipeline_model_parallel_layout` grammar.

text   := text with every ',' removed; pass 1: '(' X ')*' n repeats X (no nesting); pass 2: c '*' n repeats one character
stages := expanded.split('|'); stage := (E | t | m | L)*    E embedding, t decoder layer, m MTP layer, L loss
Source: NVIDIA/Megatron-LM@d3528a21 megatron/core/transformer/pipeline_parallel_layer_layout.py:94-135,282-321.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from primus_mcp.errors import InputError

MAX_EXPANDED_CHARACTERS = 20_000
_GROUP = re.compile(r"\(([^()]*)\)\*(\d+)")
_SINGLE = re.compile(r"(.)\*(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One virtual pipeline stage, in model order: global decoder layer ids, and what else lives on it."""

    layers: tuple[int, ...]
    embedding: bool = False
    mtp_layers: int = 0
    loss: bool = False


def _repeat(match: re.Match[str]) -> str:
    count = int(match[2])
    if len(match[1]) * count > MAX_EXPANDED_CHARACTERS:
        raise InputError(f"repeats {match[1]!r} {count} times", where="pipeline_model_parallel_layout", remedy="use fewer stages")
    return match[1] * count


@lru_cache(maxsize=4096)
def parse_layout(text: str) -> tuple[Chunk, ...]:
    """Layout text to chunks in model order. Raises InputError where the trainer would assert (rules L15-L17)."""
    expanded = _SINGLE.sub(_repeat, _GROUP.sub(_repeat, text.replace(",", "")))
    where = "pipeline_model_parallel_layout"
    stray = sorted(set(expanded) - set("EtmL|"))
    if stray:
        raise InputError(f"character {stray[0]!r} in {text!r}", where=where, remedy="use only E t m L | ( ) * and digits")
    for letter, meaning in (("E", "embedding"), ("L", "loss")):
        if expanded.count(letter) != 1:
            raise InputError(
                f"{expanded.count(letter)} times {letter} ({meaning}) in {text!r}", where=where, remedy=f"write {letter} exactly once"
            )
    if not expanded.startswith("E") or not expanded.endswith("L"):
        raise InputError(f"{text!r} does not begin with E and end with L", where=where, remedy="move E first and L last")
    if "m" in expanded and expanded.rindex("t") > expanded.index("m"):
        raise InputError(f"an MTP layer (m) stands before a decoder layer (t) in {text!r}", where=where, remedy="move every m behind")
    chunks: list[Chunk] = []
    first = 0
    for stage in expanded.split("|"):
        count = stage.count("t")
        chunks.append(
            Chunk(layers=tuple(range(first, first + count)), embedding="E" in stage, mtp_layers=stage.count("m"), loss="L" in stage)
        )
        first += count
    return tuple(chunks)


def layout_text(layers_per_chunk: tuple[int, ...], mtp_layers: int = 0) -> str:
    """Decoder layers per chunk, in model order, to a layout string with embedding first, MTP and loss last."""
    stages = [f"t*{n}" if n > 1 else "t" * n for n in layers_per_chunk]
    stages[0] = "E" + stages[0]
    tail = "m" * mtp_layers + "L"
    stages[-1] = stages[-1] + tail
    return "|".join(stages)
