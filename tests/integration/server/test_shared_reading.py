"""Subscriptions that read a topic together: other filters, a sink that stands still, one that is paused meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.local import LocalKafka
from tailrace_server.operations.asking import Asked
from tailrace_spark.job.sharing import NEAR
from tests import postgres
from tests.integration.feed import Feed
from tests.integration.items import IDS, ITEMS, LAST, LOG, Load, Row, Source, rows
from tests.integration.letters import letters_in
from tests.integration.server.servers import ServerProcess, Site
from tests.integration.targets import POSTGRESQL, TARGETS, Target
from tests.integration.ways import Ground
from tests.unit.spark.sinks.contract import Database, databases

FILTERED = 1_000
"""Members of all kinds leave out rows from here on."""
_BOUND = 2 * IDS + LAST // 2
"""Below it are half of the last rows."""
FILTERS = {"all": None, "lower": f"id < {_BOUND}", "paused": None, "stalled": None}


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[dict[str, Database]]:
    """Empty ones, by the name of their subscriber."""
    urls = {name: f"sqlite:///{tmp_path / name}.db" for name in FILTERS} | {"stalled": postgres.new_database()}
    with databases(urls.values()) as opened:
        yield dict(zip(urls, opened, strict=True))


@contextmanager
def standing_still(database: Database) -> Iterator[None]:
    """While inside, nobody writes rows of `shop.items` into a database: whoever does waits.

    It holds one lock alone: with two it could wait for the sink's transaction, which waits for it.
    """
    with database.engine.begin() as connection:
        connection.exec_driver_sql("LOCK TABLE shop_items IN EXCLUSIVE MODE")
        yield


def expected(name: str, source: Source) -> list[Row]:
    return [row for row in source.rows() if FILTERS[name] is None or row[0] < _BOUND]


def is_through(name: str, database: Database) -> bool:
    shown = [key for key, _, _ in rows(database)]
    last = LAST if FILTERS[name] is None else LAST // 2
    return sum(key >= 2 * IDS for key in shown) == last and not any(IDS <= key < 2 * IDS for key in shown)


def shares(worker: ServerProcess, name: str) -> int:
    return worker.log.read_text().count(f"shop.items/{name} shares the reading")


def left(worker: ServerProcess, name: str) -> bool:
    """Whether the others go on without it: they have left it behind, or its database has refused to wait longer."""
    words = worker.log.read_text()
    return f"shop.items/{name} is left behind" in words or f"shop.items/{name} goes on alone" in words


@pytest.mark.promise("subscription.isolated", "subscription.shared-reading")
@pytest.mark.timeout(600)
def test_members_come_out_equal_while_one_stands_still_and_another_is_paused(
    tmp_path: Path, kafka: LocalKafka, prefix: str, feed: Feed, stores: dict[str, Database]
) -> None:
    site = Site(tmp_path, kafka, prefix, f"sqlite:///{tmp_path / 'meta.db'}", share_reading=True)
    source = Source(5)
    for name, database in stores.items():
        site.subscribe(name, "shop.items", database.url, where=FILTERS[name])
    with site.server("worker") as worker:
        with Load(feed, source, seconds=0.2):
            worker.until(lambda: all(shares(worker, name) for name in stores))
            worker.until(lambda: all(rows(database) for database in stores.values()))
            assert [name for name in stores if left(worker, name)] == [], worker.words()
            with site.operations() as operations:
                operations.pause("paused")
            worker.until(lambda: site.states()["paused"]["owner"] is None)
            with standing_still(stores["stalled"]):
                worker.until(lambda: left(worker, "stalled"), 120)
        with standing_still(stores["stalled"]):
            feed.publish(source.last())
            for name in ("all", "lower"):
                worker.until(lambda name=name: is_through(name, stores[name]))  # type: ignore[misc]  # as elsewhere
                assert rows(stores[name]) == expected(name, source)
            assert not is_through("stalled", stores["stalled"])
        with site.operations() as operations:
            operations.resume("paused")
        for name, database in stores.items():
            worker.until(lambda name=name, database=database: is_through(name, database))  # type: ignore[misc]
            assert rows(database) == expected(name, source)
        worker.until(lambda: shares(worker, "paused") == 2)
        assert worker.stop() == 0, worker.words()
    assert site.owners() == {None}
    assert not list((tmp_path / "checkpoints" / "shared").iterdir())
    # With whatever checkpoint, alone and together, each has written under one name: a later worker fences all of it.
    names = [database.select("SELECT stream FROM tailrace_fences") for database in stores.values()]
    assert [len(some) for some in names] == [1] * len(stores), names


def together(ground: Ground) -> dict[str, Target]:
    """New targets of all kinds that can read together and have their servers here, by the subscriber's name."""
    ways = {"postgresql": POSTGRESQL, **TARGETS}
    del ways["log-tables"]  # which want updates whole, and read alone
    return {re.sub(r"\W+", "_", name): way.new(ground) for name, way in ways.items() if way.missing() is None}


@pytest.mark.promise("subscription.shared-reading")
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_members_of_all_kinds_of_sinks_write_together(
    tmp_path: Path, kafka: LocalKafka, prefix: str, feed: Feed, ground: Ground
) -> None:
    """Each begins alone, as there is much to read, which filters leave out; it takes a seat, and stays there."""
    # The first batches keep the interpreter busy for longer than other tests' leases last.
    site = Site(tmp_path, kafka, prefix, f"sqlite:///{tmp_path / 'meta.db'}", share_reading=True, lease_seconds=60)
    targets, published = together(ground), list[Row]()
    for name, target in targets.items():
        site.declare(name, target.section)
    with site.operations() as operations:
        for name in targets:
            operations.subscribe(Asked(table="shop.items", name=name, target=name, where=f"id < {FILTERED}"))

    def publish(count: int) -> None:
        rows = [(key, f"of {key}", 2 * key) for key in range(len(published), len(published) + count)]
        feed.publish([LOG.insert((key,), (), 5_000_000 + key, v=v, w=w) for key, v, w in rows])
        published.extend(rows)

    def is_equal(target: Target) -> bool:
        return target.arrived(len(published)) and sorted(target.rows(ITEMS)) == published

    publish(20)
    feed.publish([LOG.insert((FILTERED + key,), (), 5_000_000, v="", w=0) for key in range(NEAR + 1)])
    with site.server("worker") as worker:
        worker.until(lambda: all(shares(worker, name) for name in targets), 600)
        for _ in range(3):
            publish(20)
            for target in targets.values():
                worker.until(lambda target=target: is_equal(target))  # type: ignore[misc]  # as elsewhere
        assert [name for name in targets if left(worker, name) or shares(worker, name) > 1] == [], worker.words()
        assert {row["state"] for row in site.states().values()} == {"active"}
        assert worker.stop() == 0, worker.words()
    for target in targets.values():
        target.require(len(published))
    assert letters_in(kafka, prefix) == []
