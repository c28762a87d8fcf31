"""Updates of a table, by the host and place of their mutation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tailrace_schemas.change import Change, Origin, Source
from tailrace_schemas.position import Position
from tailrace_spark.batch.delivery import Delivered
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

TABLE = table({"pk": "int"}, regular={"v": "int", "m": "map<int, int>"})
BARE = Log(TABLE).update((1,), (), 5, v=1)


def change(host: str, mutation: int, index: int, count: int, flags: int = 0, origin: Origin = Origin.LOG) -> Change:
    return replace(BARE, source=Source(host, "dc", Position(1, 7, mutation), index, count, origin, flags=flags))


def whole(host: str, mutation: int, count: int) -> list[Change]:
    return [change(host, mutation, index, count) for index in range(count)]


def told(update: Iterable[Delivered]) -> tuple[str, int, tuple[int, ...]]:
    sources = [one.change.source for one in update if one.change.source is not None]
    return sources[0].host, sources[0].position.offset, tuple(source.index for source in sources)
