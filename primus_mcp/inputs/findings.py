"""Findings: what a reader of inputs noticed that numbers cannot show. They become `warnings` of every answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`code` is stable and machine-readable, `text` is one line for people."""

    code: str
    text: str
