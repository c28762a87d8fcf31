"""The proxy: what it is told to do to connections is what a client sees."""

from __future__ import annotations

import gc
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

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


def test_everything_passes_at_first(proxy: Proxy) -> None:
    with client(proxy) as one, client(proxy) as other:
        assert (answer(one, b"a"), answer(other, b"b")) == (b"a", b"b")
    assert proxy.taken == 2


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


@pytest.mark.slow
def test_stalled_says_nothing_and_loses_nothing(proxy: Proxy) -> None:
    with client(proxy) as old:
        answer(old, b"a")
        proxy.stall()
        with client(proxy) as new:
            for one in (old, new):
                one.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    answer(one, b"b")
            proxy.flow()
            for one in (old, new):
                one.settimeout(60)
                assert one.recv(1000) == b"b"


def test_a_server_that_is_gone_ends_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    with Proxy(("127.0.0.1", port)) as proxy, suppress(ConnectionResetError), client(proxy) as one:
        assert one.recv(1000) == b""


@pytest.mark.slow
def test_its_end_closes_connections_that_are_being_made(server_address: tuple[str, int]) -> None:
    """Accepted by the system, by the loop, or on the way to the server: none is left to the garbage collector."""
    unraisable: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.unraisablehook", lambda hook: unraisable.append(f"{hook.object}: {hook.exc_value}"))
        for _ in range(20):
            with ExitStack() as stack, Proxy(server_address) as proxy:
                for _ in range(20):
                    connection = stack.enter_context(socket.socket())
                    connection.setblocking(False)
                    connection.connect_ex((proxy.address, proxy.port))
        gc.collect()
    assert unraisable == []
