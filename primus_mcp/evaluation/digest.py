"""One digest for any record: equal content, equal digest, on every machine and Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from hashlib import sha256
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel, SecretStr

DIGEST_DIGITS = 16


def plain(value: Any) -> Any:
    """Records to JSON values with text keys, in a fixed order. Secrets become null, paths their text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, SecretStr):
        return None
    if isinstance(value, BaseModel):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Set):
        return sorted(plain(item) for item in value)
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    if isinstance(value, PurePath):
        return value.as_posix()
    raise TypeError(f"{type(value).__name__} has no place in a record")


def digest(*values: Any) -> str:
    """16 hex digits of SHA-256 over canonical JSON."""
    text = json.dumps(plain(values), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return sha256(text.encode("ascii")).hexdigest()[:DIGEST_DIGITS]
