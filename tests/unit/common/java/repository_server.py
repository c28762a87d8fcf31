"""A Maven repository on loopback that misbehaves as told."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tailrace_common.java.jars import Jar, MavenRepository
from tests.support.loopback_server import LoopbackServer


def jar_of(coordinate: str, content: bytes) -> Jar:
    """The lock's entry for a content."""
    return Jar(coordinate, hashlib.sha256(content).hexdigest(), len(content))


@dataclass(slots=True)
class RepositoryServer:
    """`contents` by path. `breaks`: how many bytes of each of the next bodies are sent before the connection ends.

    `statuses`: answered to the next requests, first in first out. `ranges` False: the Range header is ignored.
    `requests`: the path, Range and Authorization of every request that came.
    """

    contents: dict[str, bytes] = field(default_factory=dict)
    breaks: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    ranges: bool = True
    chunked: bool = False
    go: threading.Event = field(default_factory=threading.Event)
    requests: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    address: str = ""

    def add(self, coordinate: str, content: bytes) -> Jar:
        """Serve a jar, and give its entry of the lock."""
        jar = jar_of(coordinate, content)
        self.contents["/root/" + jar.path] = content
        return jar

    @property
    def url(self) -> str:
        return f"{self.address}/root"

    @property
    def repository(self) -> MavenRepository:
        """The same, as `fetch` takes it."""
        return MavenRepository.of(self.url, "the test")

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """One GET."""
        asked = handler.headers.get("Range")
        self.requests.append((handler.path, asked, handler.headers.get("Authorization")))
        self.go.wait(60)
        content = self.contents.get(handler.path)
        status = self.statuses.pop(0) if self.statuses else 200 if content is not None else 404
        if status >= 300 or content is None:
            handler.send_response(status)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.ranges else 0
        body = content[start:]
        handler.send_response(206 if start else 200)
        if not self.chunked:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: self.breaks.pop(0)] if self.breaks else body)


@contextmanager
def serving() -> Iterator[RepositoryServer]:
    """A server that runs until the block ends; it answers at once unless the test clears `go`."""
    state = RepositoryServer()
    state.go.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    with LoopbackServer(Handler, "repository") as server:
        state.address = server.address
        try:
            yield state
        finally:
            state.go.set()
