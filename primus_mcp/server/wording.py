"""Texts that name flags of the command line, told in terms of tools."""

from __future__ import annotations

import re
from typing import Any

_WORD = re.compile(r"true|false|null|-?\d+(\.\d+)?")


def _pin(found: re.Match[str]) -> str:
    value = found[2] if _WORD.fullmatch(found[2]) else f'"{found[2]}"'
    return f'open_session(pin={{"{found[1]}":{value}}})'


_FLAGS: tuple[tuple[re.Pattern[str], Any], ...] = (
    (re.compile(r"raise it with --budget \S+"), "raise it with set_budget"),
    (
        re.compile(r"use another --out-dir, or --resume --reprice to (?:number and )?price (?:them|its trials) again"),
        "open_session with reprice=true, or with another out_dir",
    ),
    (
        re.compile(r"; change them with --seq-length, --gbs and --pin mbs=N"),
        "; seq_length, global_batch_size and pin of open_session change them",
    ),
    (re.compile(r"--vocab tokenizer prices that"), "`primus-mcp tune --vocab tokenizer` prices that"),
    (re.compile(r"\(--allow-policy lifts it\)"), "(a server started with --allow-policy lifts it)"),
    (re.compile(r"--profiling-mode benchmark but "), ""),
    (re.compile(r", or use --profiling-mode simulate \(over MCP: evaluate_simulate\)"), ", or call evaluate_simulate"),
    (re.compile(r"run again \(tune: with --resume\)"), "open the session again"),
    (re.compile(r"--pin (\w+)=(\w+)"), _pin),
    (re.compile(r"--out-dir"), "out_dir"),
    (re.compile(r"--where"), "where"),
    (re.compile(r"--pin\b"), "pin of open_session"),
    (re.compile(r"--seq-length"), "seq_length"),
    (re.compile(r", or --scale-gbs"), ""),
    (re.compile(r"--gbs( N)?"), "global_batch_size"),
)
SENTENCES = frozenset(
    {"block", "error", "findings", "how_sure", "note", "notes", "proof", "reason", "skipped", "summary", "violations", "warnings"}
)
"""Fields of results that hold sentences, which may name a flag."""


def for_tools(text: str) -> str:
    """The same text for someone who calls tools."""
    for pattern, replacement in _FLAGS:
        text = pattern.sub(replacement, text)
    return text


def result_for_tools(value: Any, *, sentence: bool = False) -> Any:
    """A result's JSON with its sentences told in terms of tools; commands, YAML and names stay as they are."""
    if isinstance(value, str):
        return for_tools(value) if sentence else value
    if isinstance(value, list):
        return [result_for_tools(item, sentence=sentence) for item in value]
    if isinstance(value, dict):
        return {key: result_for_tools(item, sentence=key in SENTENCES) for key, item in value.items()}
    return value
