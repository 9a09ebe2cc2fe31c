"""Texts that name flags of the command line, told in terms of tools."""

from __future__ import annotations

import re

_FLAGS = (
    (re.compile(r"raise it with --budget \S+"), "raise it with set_budget"),
    (
        re.compile(r"use another --out-dir, or --resume --reprice to price them again"),
        "open_session with reprice=true, or with another out_dir",
    ),
    (
        re.compile(r"; change them with --seq-length, --gbs and --pin mbs=N"),
        "; seq_length, global_batch_size and pin of open_session change them",
    ),
    (re.compile(r"--vocab tokenizer prices that"), "`primus-mcp tune --vocab tokenizer` prices that"),
    (re.compile(r"--out-dir"), "out_dir"),
    (re.compile(r"--pin\b"), "pin of open_session"),
    (re.compile(r"--seq-length"), "seq_length"),
    (re.compile(r", or --scale-gbs"), ""),
    (re.compile(r"--gbs( N)?"), "global_batch_size"),
)


def for_tools(text: str) -> str:
    """The same text for someone who calls tools."""
    for pattern, replacement in _FLAGS:
        text = pattern.sub(replacement, text)
    return text
