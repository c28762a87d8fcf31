"""Serves the application from a thread of its own, over HTTPS where a certificate is set."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn

from tailrace_common.http_server import PortTakenError
from tailrace_common.sections.server import ServerSettings
from tailrace_schemas.errors import SettingsError

_MOST_REQUESTS: Final = 64
_IDLE_SECONDS: Final = 10
_END_SECONDS: Final = 5


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
            limit_concurrency=_MOST_REQUESTS,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_END_SECONDS,
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
