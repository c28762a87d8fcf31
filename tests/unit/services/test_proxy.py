"""The proxy: what it is told to do to connections is what a client sees."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.services.proxy import Proxy


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with suppress(ConnectionResetError):
            while data := self.request.recv(1000):
                self.request.sendall(data)


@pytest.fixture
def server_address() -> Iterator[tuple[str, int]]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield "127.0.0.1", server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(server_address: tuple[str, int]) -> Iterator[Proxy]:
    with Proxy(server_address) as proxy:
        yield proxy


def client(proxy: Proxy) -> socket.socket:
    return socket.create_connection((proxy.address, proxy.port), timeout=60)


def answer(connection: socket.socket, text: bytes) -> bytes:
    connection.sendall(text)
    return connection.recv(1000)


def test_cut_ends_what_stands_and_takes_new_ones(proxy: Proxy) -> None:
    with client(proxy) as one:
        answer(one, b"a")
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            one.recv(1000)
        with client(proxy) as other:
            assert answer(other, b"b") == b"b"


def test_refused_at_once_until_it_flows(proxy: Proxy) -> None:
    with client(proxy) as one:
        answer(one, b"a")
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            client(proxy)
    proxy.flow()
    with client(proxy) as other:
        assert answer(other, b"b") == b"b"


def test_a_server_that_is_gone_ends_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    with Proxy(("127.0.0.1", port)) as proxy, suppress(ConnectionResetError), client(proxy) as one:
        assert one.recv(1000) == b""
