"""Serves the application from a thread of its own, over HTTPS where a certificate is set."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tailrace_common.http_server import PortTakenError
from tailrace_common.sections.server import ServerSettings
from tailrace_schemas.errors import SettingsError

_MOST_REQUESTS: Final = 64
_MOST_OF_AN_ADDRESS: Final = _MOST_REQUESTS // 2
_IDLE_SECONDS: Final = 5
_END_SECONDS: Final = 5


class Impatient(H11Protocol):
    """Ends a connection that has no whole head of a request in time: else a few that say nothing shut everybody out.

    So does one more of an address that has many. Behind a proxy are many clients: their requests are counted each.
    """

    seconds: ClassVar[float] = _IDLE_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as theirs
        """The first request is awaited."""
        super().connection_made(transport)
        host = self.client[0] if self.client else ""
        hosts = [each.client[0] for each in self.connections if isinstance(each, Impatient) and each.client]
        if hosts.count(host) > _MOST_OF_AN_ADDRESS and host not in getattr(self.app, "trusted_hosts", ()):
            transport.close()
        self._await_request()

    def on_response_complete(self) -> None:
        """The next one is."""
        super().on_response_complete()
        self._await_request()

    def _await_request(self) -> None:
        answered = self.cycle
        self.loop.call_later(self.seconds, lambda: self.transport.close() if self.cycle is answered else None)


@contextmanager
def listening(app: Any, settings: ServerSettings) -> Iterator[int]:
    """While inside, requests are answered; the port.

    Raises PortTakenError, or SettingsError where it cannot listen there."""
    with _socket(settings.address, settings.port) as listener:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            http=Impatient,
            limit_concurrency=_MOST_REQUESTS,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_END_SECONDS,
            proxy_headers=bool(settings.proxies),
            forwarded_allow_ips=list(settings.proxies),
            ssl_certfile=settings.tls_certificate_file,
            ssl_keyfile=settings.tls_key_file,
        )
        try:
            config.load()
        except OSError as error:  # SSL's errors are of this kind
            raise SettingsError(f"server.tls_certificate_file, server.tls_key_file: {error}") from None
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="http", daemon=True)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(2 * _END_SECONDS)


def _socket(address: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((address, port), family=family)
    except OSError as error:
        kind = PortTakenError if error.errno == errno.EADDRINUSE else SettingsError
        raise kind(f"server.address: cannot listen on {address}, port {port}: {error.strerror}") from None
