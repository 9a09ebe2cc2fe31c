"""An OpenAI-compatible server on loopback that answers from a script and remembers every request."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

Body = dict[str, Any]


@dataclass(frozen=True)
class Failure:
    """An HTTP status with headers; `kind` is the provider's error type."""

    status: int
    kind: str = "error"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Broken:
    """Bytes that are sent as they are after `silent_s`, before the connection ends; `reset`: without a goodbye."""

    data: bytes = b""
    silent_s: float = 0.0
    reset: bool = False


Item = str | Failure | Broken | Callable[[Body], str]


def answer(body: bytes, kind: str = "application/json", status: str = "200 OK") -> Broken:
    """A complete HTTP answer with this body."""
    return Broken(f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


def reply(**fields: str) -> str:
    """The fields of a DSPy chat reply as they go over the wire."""
    return "".join(f"[[ ## {name} ## ]]\n{text}\n\n" for name, text in fields.items()) + "[[ ## completed ## ]]\n"


def code(source: str, reasoning: str = "next step") -> str:
    """A step of a round: code to run."""
    return reply(reasoning=reasoning, code=f"```python\n{source}\n```")


class ScriptedServer:
    """Answers POSTs with the items of `script` in turn; `requests` holds what was asked. A script that is used up answers 500."""

    def __init__(self, script: Sequence[Item]) -> None:
        self.script = list(script)
        self.requests: list[Body] = []
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> ScriptedServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()

    def _next(self, request: Body) -> Item | None:
        with self._lock:
            self.requests.append(request)
            return self.script.pop(0) if self.script else None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                request["authorization"] = self.headers.get("Authorization")
                request["agent"] = self.headers.get("User-Agent")
                item = outer._next(request)
                if item is None:
                    item = Failure(500, "script used up")
                if isinstance(item, Failure):
                    self._send(item.status, {"error": {"message": item.kind, "type": item.kind}}, item.headers)
                    return
                if isinstance(item, Broken):
                    self._send_broken(item)
                    return
                text = item if isinstance(item, str) else item(request)
                prompt = sum(len(str(message["content"])) for message in request["messages"]) // 4
                usage = {"prompt_tokens": prompt, "completion_tokens": len(text) // 4, "total_tokens": prompt + len(text) // 4}
                choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
                body = {"id": "x", "object": "chat.completion", "created": 0, "model": request["model"]}
                self._send(200, {**body, "choices": [choice], "usage": usage}, {})

            def _send_broken(self, item: Broken) -> None:
                outer.ended.wait(item.silent_s)
                self.close_connection = True
                if item.reset:
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.connection.close()
                    return
                self.wfile.write(item.data)
                self.wfile.flush()

            def _send(self, status: int, body: Body, headers: dict[str, str]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

        return Handler
