"""A meta database on a real server behind a proxy, which may let nothing through while all connections stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from tests import mariadb, postgres
from tests.services.proxy import Proxy

NEW: dict[str, Callable[[], str]] = {"postgresql": postgres.new_database, "mysql": mariadb.new_database}


@contextmanager
def behind_a_proxy(kind: str) -> Iterator[tuple[str, Proxy]]:
    """The URL of a new database behind a proxy, and the proxy."""
    url = sa.make_url(NEW[kind]())
    port = postgres.port() if kind == "postgresql" else url.port
    assert port is not None
    with Proxy(("127.0.0.1", port)) as proxy:
        led = url.set(host=proxy.address, port=proxy.port, query={})
        yield led.render_as_string(hide_password=False), proxy
