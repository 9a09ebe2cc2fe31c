"""One question to a language model over HTTPS: OpenAI-compatible endpoints and Anthropic. Settings come from the environment only.

Neither an endpoint nor a key is ever taken from a file or an argument that a client supplies: with a key of the host, that would let a
client send it anywhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from primus_mcp.errors import InputError
from primus_mcp.tools.registry import LlmReply

NO_LLM = "no language model is set up"
NO_LLM_REMEDY = "start the server with LLM_MODEL (openai/NAME or anthropic/NAME) and OPENAI_API_KEY or ANTHROPIC_API_KEY in its environment"
TIMEOUT_S = 45.0
MAX_OUTPUT_TOKENS = 1_500
MAX_REPLY_BYTES = 2_000_000
OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com/v1"
ANTHROPIC_VERSION = "2023-06-01"


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmClient:
    """`ask` sends one request. The key appears in no repr and no message."""

    provider: str
    model: str
    url: str
    key: str = field(repr=False)

    def ask(self, prompt: str, system: str) -> LlmReply:
        """The model's reply. Raises InputError naming the provider and the status."""
        anthropic = self.provider == "anthropic"
        body = _anthropic_body(self.model, prompt, system) if anthropic else _openai_body(self.model, prompt, system)
        headers = {"content-type": "application/json"}
        headers |= {"x-api-key": self.key, "anthropic-version": ANTHROPIC_VERSION} if anthropic else {"authorization": f"Bearer {self.key}"}
        path = "messages" if anthropic else "chat/completions"
        data = self._post(f"{self.url.rstrip('/')}/{path}", body, headers)
        try:
            return _anthropic_reply(self.model, data) if anthropic else _openai_reply(self.model, data)
        except (AttributeError, KeyError, IndexError, TypeError) as error:
            raise self._failed("its reply has another form than expected") from error

    def _failed(self, what: str) -> InputError:
        return InputError(
            f"{self.provider} did not answer: {what}", where="query_llm", remedy="go on without it, or check LLM_MODEL and its key"
        )

    def _post(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        import urllib.error
        import urllib.request

        class NoRedirect(urllib.request.HTTPRedirectHandler):
            """A redirect would carry the key to another host."""

            def redirect_request(self, *_: Any) -> None:
                """Refuse."""
                return

        request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=dict(headers), method="POST")  # noqa: S310
        try:
            with urllib.request.build_opener(NoRedirect).open(request, timeout=TIMEOUT_S) as reply:
                return json.loads(reply.read(MAX_REPLY_BYTES))
        except urllib.error.HTTPError as error:
            raise self._failed(f"HTTP status {error.code}") from None
        except (OSError, ValueError) as error:
            raise self._failed(type(error).__name__) from None


def _openai_body(model: str, prompt: str, system: str) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}] if system else []
    return {"model": model, "messages": [*messages, {"role": "user", "content": prompt}], "max_completion_tokens": MAX_OUTPUT_TOKENS}


def _openai_reply(model: str, data: Any) -> LlmReply:
    usage = data.get("usage") or {}
    text = data["choices"][0]["message"]["content"] or ""
    return LlmReply(model=model, text=text, input_tokens=usage.get("prompt_tokens"), output_tokens=usage.get("completion_tokens"))


def _anthropic_body(model: str, prompt: str, system: str) -> dict[str, Any]:
    body: dict[str, Any] = {"model": model, "max_tokens": MAX_OUTPUT_TOKENS, "messages": [{"role": "user", "content": prompt}]}
    return body | ({"system": system} if system else {})


def _anthropic_reply(model: str, data: Any) -> LlmReply:
    text = "".join(part["text"] for part in data["content"] if part.get("type") == "text")
    usage = data.get("usage") or {}
    return LlmReply(model=model, text=text, input_tokens=usage.get("input_tokens"), output_tokens=usage.get("output_tokens"))


def llm_client(environment: Mapping[str, str] | None = None) -> LlmClient | None:
    """The client that LLM_MODEL and its key describe; None when either is missing. Raises InputError for what it cannot use."""
    env = os.environ if environment is None else environment
    provider, _, model = env.get("LLM_MODEL", "").partition("/")
    if not model:
        return None
    if provider not in ("openai", "anthropic"):
        raise InputError(f"{provider}/... is not served by query_llm", where="LLM_MODEL", remedy="write openai/NAME or anthropic/NAME")
    key = env.get("ANTHROPIC_API_KEY" if provider == "anthropic" else "OPENAI_API_KEY", "")
    url = ANTHROPIC_URL if provider == "anthropic" else env.get("OPENAI_API_BASE") or env.get("OPENAI_BASE_URL") or OPENAI_URL
    if urlsplit(url).scheme not in ("http", "https"):
        raise InputError("is not an http(s) URL", where="OPENAI_API_BASE", remedy="write for example http://127.0.0.1:11434/v1")
    return LlmClient(provider=provider, model=model, url=url, key=key) if key else None
