"""A table `shop.items` that is written to until a stream has all of it, and how its copies look."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from random import Random

from tailrace_schemas.change import Change, Marker
from tests.integration.feed import Feed
from tests.support.background import Background
from tests.support.waiting import until
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import table

ITEMS = table({"id": "int"}, regular={"v": "text", "w": "int"}, keyspace="shop", name="items")
LOG = Log(ITEMS)
IDS = 200
TTL_SECONDS = 2
LAST = 16
Row = tuple[int, str | None, int | None]


class Source:
    """One table as its writes leave it: each is newer than all before it. What has a time to live is never kept."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._written = int(time.time() * 1e6) - 3_600_000_000
        self._rows: dict[int, tuple[bool, str | None, int | None]] = {}

    def rows(self) -> list[Row]:
        """What SELECT shows once all that expires has."""
        live = {key: row for key, row in self._rows.items() if row != (False, None, None)}
        return sorted((key, v, w) for key, (_, v, w) in live.items())

    def statement(self) -> Change:
        """The next one's change."""
        self._written += 1
        key, at, number = self._random.randrange(IDS), self._written, self._random.randrange(1000)
        marked, v, w = self._rows.get(key, (False, None, None))
        match self._random.randrange(8):
            case 0:
                self._rows.pop(key, None)
                return LOG.delete((key,), (), at)
            case 1:
                return self._expiring(IDS + key, at)
            case 2 | 3:
                self._rows[key] = (marked, v, number)
                return LOG.update((key,), (), at, w=number)
            case 4:
                self._rows[key] = (marked, None, w)
                return LOG.update((key,), (), at, v=None)
            case _:
                self._rows[key] = (True, f"v{number}", number)
                return LOG.insert((key,), (), at, v=f"v{number}", w=number)

    def last(self) -> list[Change]:
        """Rows that are written behind all others, in every partition of the topic."""
        return [self._last(number) for number in range(2 * IDS, 2 * IDS + LAST)]

    def _last(self, key: int) -> Change:
        self._written += 1
        self._rows[key] = (True, "last", None)
        return LOG.insert((key,), (), self._written, v="last")

    def _expiring(self, key: int, at: int) -> Change:
        change, expires = LOG.insert((key,), (), at, v="soon gone"), int(time.time()) + TTL_SECONDS
        cells = tuple(replace(cell, ttl=TTL_SECONDS, expires=expires) for cell in change.cells)
        return replace(change, marker=Marker(at, TTL_SECONDS, expires), cells=cells)


class Load(Background):
    """Writes to the source, ten changes in a transaction every so many seconds, until the end of the `with`."""

    def __init__(self, feed: Feed, source: Source, seconds: float = 0.05) -> None:
        super().__init__(self._write, seconds)
        self._feed, self._source = feed, source
        self.sent = 0

    def until(self, more: int) -> None:
        """Wait until so many changes more were sent."""
        goal = self.sent + more
        until(lambda: self.sent >= goal, f"{more} more changes", 120, every=0.005)

    def _write(self) -> None:
        changes = [self._source.statement() for _ in range(10)]
        self._feed.publish(changes)
        self.sent += len(changes)


def rows(database: Database) -> list[Row]:
    if "shop_items" not in database.names():
        return []
    return sorted(database.select("SELECT id, v, w FROM shop_items"))


def are_last(keys: Iterable[int]) -> bool:
    """Whether these are the keys of a copy that has the source's last rows, and none any more that expires."""
    shown = list(keys)
    return sum(key >= 2 * IDS for key in shown) == LAST and not any(IDS <= key < 2 * IDS for key in shown)


def is_through(database: Database) -> bool:
    return are_last(key for key, _, _ in rows(database))
