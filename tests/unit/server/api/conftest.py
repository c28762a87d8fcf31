"""A real server of the HTTP API on loopback, its meta database a SQLite file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tailrace.local.ports import free_port
from tailrace_common.sections.server import ServerSettings
from tailrace_server.api.access import Access, RateLimit
from tailrace_server.api.app import application
from tailrace_server.api.listening import listening
from tailrace_server.meta.credentials import ApiKeys, Role
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.oidc.tokens import Tokens
from tailrace_server.operations.operations import DirectOperations
from tests.unit.server.requests import settings

MOST_BYTES = 10_000


@dataclass(frozen=True)
class Served:
    """Where it listens, and a key of each role."""

    url: str
    keys: dict[Role, str]


@contextmanager
def serving(
    tmp_path: Path,
    tokens: Tokens | None = None,
    limit: RateLimit | None = None,
    *,
    authentication: bool = True,
    ping: Callable[[], None] | None = None,
    proxies: tuple[str, ...] = (),
) -> Iterator[Served]:
    """A server, which takes these tokens beside API keys, and of each caller so many requests."""
    with MetaDatabase(f"sqlite:///{tmp_path / 'meta.db'}") as database:
        database.prepare()
        subscriptions, keys = Subscriptions(database), ApiKeys(database)

        def operations(name: str) -> DirectOperations:
            return DirectOperations(subscriptions, settings(), name)

        access = Access(keys=keys if authentication else None, tokens=tokens, limit=limit)
        app = application(operations, ping or database.ping, access, MOST_BYTES, "test")
        made = {role: keys.add(f"the-{role}", role) for role in Role}
        with listening(app, ServerSettings(port=free_port("127.0.0.1"), proxies=proxies)) as port:
            yield Served(f"http://127.0.0.1:{port}", made)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as started:
        yield started
