"""An HTTP endpoint on loopback that judges what arrives: signatures, ids, order, how much at once."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Answer = tuple[int, Mapping[str, str], bytes] | Literal["drop", "drop after"]
TAKEN: Answer = (204, {}, b"")


@dataclass(frozen=True, slots=True)
class Request:
    """One that arrived: its number from 0, its headers and what it says."""

    number: int
    headers: Mapping[str, str]
    body: bytes
    changes: tuple[dict[str, Any], ...]
    path: str = ""

    @property
    def identity(self) -> str:
        return self.headers["Idempotency-Key"]

    def signed_by(self, key: bytes) -> bool:
        """As a receiver of Standard Webhooks checks."""
        content = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + self.body
        wanted = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        return f"v1,{wanted}" in self.headers.get("webhook-signature", "").split(" ")


@dataclass
class Endpoint:
    """Takes requests; `answer` says what each gets. What is taken counts once for each id, however often it comes."""

    answer: Callable[[Request], Answer] = lambda _: TAKEN
    requests: list[Request] = field(default_factory=list)
    taken: list[dict[str, Any]] = field(default_factory=list)
    most_at_once: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: set[str] = set()
        self._at_once = 0
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = endpoint._arrived({**self.headers}, body, self.path)
                if isinstance(answer, str):
                    self.close_connection = True
                    return
                status, headers, said = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def do_OPTIONS(self) -> None:
                self.send_response(405)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/changes"

    def _arrived(self, headers: Mapping[str, str], body: bytes, path: str) -> Answer:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            request = Request(len(self.requests), headers, body, tuple(json.loads(body)["changes"]), path)
            self.requests.append(request)
        try:
            answer = self.answer(request)
        finally:
            with self._lock:
                self._at_once -= 1
        if answer == "drop after" or (isinstance(answer, tuple) and answer[0] < 300):
            with self._lock:
                if request.identity not in self._ids:
                    self._ids.add(request.identity)
                    self.taken += request.changes
        return answer

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
