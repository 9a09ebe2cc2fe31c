"""session.json: the resolved inputs of a run, without secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from primus_mcp.trials.log import Digests
from primus_mcp.trials.storage import RunDirectory

SESSION_NAME = "session.json"
REDACTED = "(not stored)"
_SECRET = re.compile(r"(^|_)(api_?key|key|secret|password|passwd|token|credentials?|auth)$", re.IGNORECASE)

_USER_INFO = re.compile(r"//[^/@\s]+@")
_QUERY = re.compile(r"(https?://[^\s?#]+)[?#]\S*")


def without_secrets(value: Any) -> Any:
    """The same document with the text of every key that names a secret, and what an address may hide, left out, at any depth."""
    if isinstance(value, Mapping):
        return {
            str(key): REDACTED if isinstance(item, str) and item and _SECRET.search(str(key)) else without_secrets(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets(item) for item in value]
    return _QUERY.sub(r"\1", _USER_INFO.sub("//", value)) if isinstance(value, str) else value


class SessionFile(BaseModel):
    """What is needed to understand, and to repeat, a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    digests: Digests
    mode: str
    evaluator: str = Field(description="identity of the evaluator: equal text, comparable numbers")
    seed: int = Field(description="the search draws nothing at random without it")
    pins: dict[str, Any] = Field(description="knobs that the search may not change")
    limits: dict[str, float | None]
    workload: dict[str, Any]
    cluster: dict[str, Any]

    def write(self, folder: RunDirectory) -> None:
        """Replace session.json."""
        content = without_secrets(self.model_dump(mode="json"))
        folder.write(SESSION_NAME, json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n")
