"""A real server of the pages on loopback, its meta database a SQLite file, and browsers without scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Mount

from tailrace.local.ports import free_port
from tailrace_common.settings import Settings, settings_from
from tailrace_server.api.access import Access, RateLimit
from tailrace_server.api.app import application
from tailrace_server.api.listening import listening
from tailrace_server.meta.credentials import ApiKeys, Role
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.oidc.discovery import Discovery, IssuerKeys
from tailrace_server.oidc.sign_in import SignIn
from tailrace_server.oidc.tokens import Tokens
from tailrace_server.operations.operations import DirectOperations
from tailrace_server.web.access import Site, site_of
from tailrace_server.web.app import install
from tests.support.clock import ManualClock
from tests.unit.server.requests import TARGETS

MOST_BYTES = 20_000


@dataclass
class Served:
    """Where it listens, a key of each role, and what is behind it."""

    url: str
    keys: dict[Role, str]
    site: Site
    database: MetaDatabase
    clock: ManualClock
    operations: DirectOperations
    app: FastAPI


def routes_of(app: FastAPI, below: str) -> list[tuple[set[str], str]]:
    """Methods and paths of an application and of those that are mounted in it."""
    routes: list[tuple[set[str], str]] = []
    for route in app.routes:
        if isinstance(route, APIRoute) and route.path.startswith(below):
            routes.append((set(route.methods or ()), route.path))
        elif isinstance(route, Mount) and isinstance(route.app, FastAPI):
            routes += routes_of(route.app, below)
    return routes


@dataclass
class Browser:
    """Keeps cookies, follows redirects, and sends the forms of the pages that it shows."""

    url: str
    client: httpx2.Client
    page: httpx2.Response = field(init=False)

    def get(self, path: str, **more: Any) -> httpx2.Response:
        self.page = self.client.get(self.url + path, **more)
        return self.page

    def post(self, path: str, **values: str) -> httpx2.Response:
        """With the token of the page."""
        return self.send(path, {"token": self.token, **values})

    def alter(self, one: str, **values: str) -> httpx2.Response:
        """A form that was loaded, whatever its checks say; with its revision."""
        match = re.search(r'name="revision" value="([^"]+)"', self.page.text)
        assert match is not None
        return self.post(f"{one}/alter", revision=match[1], anyway="1", **values)

    def send(self, path: str, values: dict[str, str], **headers: str) -> httpx2.Response:
        self.page = self.client.post(self.url + path, data=values, headers=headers)
        return self.page

    @property
    def token(self) -> str:
        match = re.search(r'name="token" value="([^"]+)"', self.page.text)
        return "" if match is None else match[1]

    def sign_in(self, key: str) -> None:
        self.get("/login")
        assert self.post("/login", key=key, to="/subscriptions").status_code == 200
        assert self.page.url.path == "/subscriptions"


@contextmanager
def serving(tmp_path: Path, **server: Any) -> Iterator[Served]:
    """A server with these settings of [server]; the second one on a meta database has the keys of the first."""
    given = {
        "most_body_bytes": MOST_BYTES,
        "port": free_port("127.0.0.1"),
        **server,
    }
    settings: Settings = settings_from({"server": given, "sink": {**TARGETS}}, "test")
    with MetaDatabase(f"sqlite:///{tmp_path / 'meta.db'}") as database, ExitStack() as stack:
        database.prepare()
        subscriptions, keys = Subscriptions(database), ApiKeys(database)
        clock = ManualClock(1_800_000_000.0)
        limit = RateLimit(settings.server.requests_per_second, settings.server.requests_burst, clock)
        sign_in = None
        if (oidc := settings.server.oidc) is not None:
            issuer = stack.enter_context(Discovery(oidc))
            sign_in = SignIn(oidc, issuer, Tokens(oidc, IssuerKeys(issuer.keys, 600, clock), clock), clock)
        access = Access(keys=keys if settings.server.authentication else None, sign_in=sign_in, limit=limit)
        site = site_of(settings, database, subscriptions, "1.2.3", access, clock)
        app = application(site.operations, database.ping, access, MOST_BYTES, "1.2.3")
        install(app, site)
        made = {} if keys.all() else {role: keys.add(f"the-{role}", role) for role in Role}
        with listening(app, settings.server) as port:
            operations = DirectOperations(subscriptions, settings, "test")
            yield Served(f"http://127.0.0.1:{port}", made, site, database, clock, operations, app)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as started:
        yield started


NewBrowser = Callable[..., Browser]


@pytest.fixture
def browser(served: Served) -> Iterator[NewBrowser]:
    """Opens browsers, signed in with a role or not."""
    opened: list[httpx2.Client] = []

    def new(role: Role | None = None) -> Browser:
        client = httpx2.Client(follow_redirects=True, timeout=60)
        opened.append(client)
        started = Browser(served.url, client)
        if role is not None:
            started.sign_in(served.keys[role])
        return started

    yield new
    for client in opened:
        client.close()
