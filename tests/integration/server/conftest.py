"""What tests of servers share: a node's keyspace whose agent runs, databases to write into, a server to kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tailrace.local import LocalCassandra, LocalKafka
from tests import mariadb, postgres
from tests.integration.server.browser import CHROMIUM, FLAGS
from tests.integration.snapshot.following import Place, placed
from tests.mortal import Mortal
from tests.unit.spark.sinks.contract import Database, databases


@pytest.fixture(scope="module")
def place(cassandra: LocalCassandra, kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with placed(cassandra, kafka, tmp_path_factory.mktemp("place")) as new:
        yield new


@pytest.fixture(params=["postgresql", "mysql"])
def mortal(request: pytest.FixtureRequest) -> Iterator[Mortal]:
    """A server of the test's own."""
    if request.param == "mysql" and (trouble := mariadb.missing()):
        pytest.skip(trouble)
    new: dict[str, Callable[[], AbstractContextManager[Mortal]]] = {
        "postgresql": postgres.mortal,
        "mysql": mariadb.mortal,
    }
    with new[request.param]() as server:
        yield server


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[dict[str, Database]]:
    """Empty ones, by the name of their subscriber."""
    urls = {name: f"sqlite:///{tmp_path / name}.db" for name in ("left", "right")}
    with databases(urls.values()) as opened:
        yield dict(zip(urls, opened, strict=True))


@pytest.fixture
def chromium() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="pip install 'tailrace[browser]'")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no Chromium at {CHROMIUM}: install it, or set TAILRACE_CHROMIUM")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()
