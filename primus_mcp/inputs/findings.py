"""Findings: what a reader of inputs noticed that numbers cannot show. They become `warnings` of every answer."""

from __future__ import annotations

from dataclasses import dataclass

NOT_CARRIED = "not-carried"
"""What of a model no written file says."""
RESCALED = "hf-rescaled"
"""What of a config.json is another number in the trainer, which defines it otherwise."""
IN_FILES = (NOT_CARRIED, RESCALED, "differs-from-config", "hf-unknown-key")
"""Codes that a written file names in a comment at its top: trained as it is, it is another model."""
TOLD = (
    NOT_CARRIED,
    "model-defaults",
    "differs-from-published",
    "mtp-without-layout",
    "unknown-override",
    "key-not-priced",
    "key-of-old-primus",
    "differs-from-config",
    "hf-left-out",
    "hf-unknown-key",
    "hf-default",
)
"""Codes that change what an answer is about: every command says them before its numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`code` is stable and machine-readable, `text` is one line for people."""

    code: str
    text: str
