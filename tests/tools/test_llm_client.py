"""query_llm's client: what it sends, what it tells, and where a key never goes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from primus_mcp.errors import InputError
from primus_mcp.tools.llm import LlmClient, llm_client

KEY = "canary-key-1b7f"


class Provider:
    """A provider on loopback: answers what it is told to and keeps what it was sent."""

    def __init__(self) -> None:
        self.status, self.answer, self.location = 200, b"{}", ""
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(outer.status)
                if outer.location:
                    self.send_header("location", outer.location)
                self.send_header("content-length", str(len(outer.answer)))
                self.end_headers()
                self.wfile.write(outer.answer)

            def log_message(self, *_: object) -> None:
                return

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def provider() -> Iterator[Provider]:
    running = Provider()
    yield running
    running.http.shutdown()
    running.http.server_close()


def openai(provider: Provider) -> LlmClient:
    client = llm_client({"LLM_MODEL": "openai/gpt-x", "OPENAI_API_KEY": KEY, "OPENAI_API_BASE": f"{provider.url}/v1/"})
    assert client is not None
    return client


def test_an_openai_compatible_endpoint_gets_the_question_and_its_usage_is_told(provider: Provider) -> None:
    provider.answer = json.dumps(
        {"choices": [{"message": {"content": "use EP 8"}}], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    ).encode()
    reply = openai(provider).ask("which EP?", "be brief")
    assert (reply.text, reply.input_tokens, reply.output_tokens, reply.usd) == ("use EP 8", 7, 3, None)
    path, headers, body = provider.requests[0]
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert body["model"] == "gpt-x"
    assert [message["role"] for message in body["messages"]] == ["system", "user"]


def test_anthropic_gets_its_own_form(provider: Provider) -> None:
    provider.answer = json.dumps({"content": [{"type": "text", "text": "PP 4"}], "usage": {"input_tokens": 5, "output_tokens": 2}}).encode()
    client = LlmClient(provider="anthropic", model="claude-x", url=provider.url, key=KEY)
    assert client.ask("which PP?", "").text == "PP 4"
    path, headers, body = provider.requests[0]
    assert path == "/messages"
    assert headers["x-api-key"] == KEY
    assert "system" not in body


@pytest.mark.parametrize(
    ("status", "answer"),
    [(429, b"{}"), (500, b"boom"), (401, KEY.encode()), (200, b"not json"), (200, b"[]"), (200, b'{"choices": []}'), (200, b"null")],
)
def test_a_provider_that_fails_is_one_line_without_the_key_or_its_words(provider: Provider, status: int, answer: bytes) -> None:
    provider.status, provider.answer = status, answer
    with pytest.raises(InputError) as caught:
        openai(provider).ask("hello", "")
    assert KEY not in str(caught.value)
    assert "boom" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_redirect_does_not_carry_the_key_elsewhere(provider: Provider) -> None:
    other = Provider()
    try:
        provider.status, provider.location = 302, f"{other.url}/v1/chat/completions"
        with pytest.raises(InputError, match="302"):
            openai(provider).ask("hello", "")
        assert other.requests == []
    finally:
        other.http.shutdown()
        other.http.server_close()


def test_nothing_listens_is_one_line() -> None:
    client = LlmClient(provider="openai", model="x", url="http://127.0.0.1:9", key=KEY)
    with pytest.raises(InputError, match="did not answer"):
        client.ask("hello", "")


@pytest.mark.parametrize(
    "environment", [{}, {"LLM_MODEL": "openai/x"}, {"OPENAI_API_KEY": KEY}, {"LLM_MODEL": "anthropic/x", "OPENAI_API_KEY": KEY}]
)
def test_without_model_or_key_there_is_no_client(environment: dict[str, str]) -> None:
    assert llm_client(environment) is None


def test_a_provider_or_address_that_cannot_be_used_is_named() -> None:
    with pytest.raises(InputError, match="anthropic/NAME"):
        llm_client({"LLM_MODEL": "bedrock/x", "OPENAI_API_KEY": KEY})
    with pytest.raises(InputError, match="OPENAI_API_BASE"):
        llm_client({"LLM_MODEL": "openai/x", "OPENAI_API_KEY": KEY, "OPENAI_API_BASE": "file:///etc/passwd"})
