"""Stands before a search server: passes requests on, or answers for it, loses answers, asks for TLS and a password."""

from __future__ import annotations

import base64
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

import httpx2

from tests.services.certificates import Authority

Answer = tuple[int, Mapping[str, str], bytes] | Literal["pass", "drop", "drop after"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, by its number from 0."""

    number: int
    method: str
    path: str
    body: bytes


@dataclass
class SearchProxy:
    """Before `url`. `answer` says what becomes of each request: "drop after" means that only its answer is lost."""

    url: str
    answer: Callable[[Asked], Answer] = lambda _: "pass"
    secured: Path | None = None
    """A directory for certificates: with it, it speaks TLS, and answers user and password alone."""
    username: str = "reader"
    password: str = "hunter2"  # noqa: S105 - of a server on loopback, for as long as a test runs
    asked: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        proxy = self
        client = httpx2.Client(base_url=self.url, timeout=60)
        login = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except (ConnectionError, ssl.SSLError):
                    self.close_connection = True

            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if proxy.secured is not None and self.headers.get("Authorization") != f"Basic {login}":
                    return self._give(401, {}, b'{"error":"who are you?"}')
                asked = Asked(len(proxy.asked), self.command, self.path, body)
                proxy.asked.append(asked)
                answer = proxy.answer(asked)
                if answer == "drop":
                    self.close_connection = True
                    return None
                if isinstance(answer, tuple):
                    return self._give(*answer)
                kind = {"Content-Type": self.headers.get("Content-Type", "application/json")}
                try:
                    said = client.request(self.command, self.path, content=body, headers=kind)
                except httpx2.RequestError:
                    self.close_connection = True
                    return None
                if answer == "drop after":
                    self.close_connection = True
                    return None
                return self._give(said.status_code, {"Content-Type": "application/json"}, said.content)

            do_GET = do_PUT = do_POST = do_DELETE = _pass

            def _give(self, status: int, headers: Mapping[str, str], said: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._client = client
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if self.secured is not None:
            authority = Authority()
            issued = authority.issue("search")
            (self.secured / "ca.pem").write_text(authority.certificate)
            (self.secured / "server.pem").write_text(issued.certificate + issued.key)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.secured / "server.pem")
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def address(self) -> str:
        """What the sink is given as its url."""
        scheme = "http" if self.secured is None else "https"
        return f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._client.close()


def dying(limit: int, lost: Answer = "drop") -> Callable[[Asked], Answer]:
    """From a request on nothing arrives; of that one perhaps only the answer is lost."""
    return lambda asked: "pass" if asked.number < limit else lost if asked.number == limit else "drop"
