"""Iceberg stores for tests: tables in a directory or on S3, and their readers."""

from __future__ import annotations

from typing import Any, Final

from pyiceberg.table import Table as PyIcebergTable

from tailrace_spark.sinks.iceberg.files import read_rows
from tailrace_spark.sinks.iceberg.maintenance import Maintenance
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.iceberg.store import IcebergStore
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.lake.stores import FollowedLake, Histories, Lake
from tests.unit.spark.sinks.merging_contract import write

NARROW: Final = {"int8": "int32", "int16": "int32"}
"""Numbers that Iceberg has nothing as narrow for."""


class IcebergLake(Lake):
    """A path that an iceberg sink writes below, as any reader sees it."""

    settings: IcebergSinkSettings
    store: IcebergStore

    @property
    def maintenance(self) -> Maintenance:
        return Maintenance(self.store)

    def another_store(self) -> IcebergStore:
        return IcebergStore(self.settings)

    def table(self, name: str) -> PyIcebergTable:
        """As anybody else opens it."""
        opened = self.store.open(name)
        assert opened is not None
        return opened.iceberg

    def rows_of(self, name: str) -> Any | None:
        opened = self.store.open(name)
        return None if opened is None else read_rows(opened.iceberg)


class IcebergHistory(IcebergLake, Histories):
    """Histories there."""

    def __init__(self, settings: IcebergSinkSettings) -> None:
        super().__init__(IcebergStore(settings))
        self.settings = settings

    def days(self, name: str) -> set[str]:
        return {str(row["partition"]["day"]) for row in self.table(name).inspect.partitions().to_pylist()}


class IcebergInTasks(IcebergHistory):
    """Histories that tasks write."""

    by_tasks = True


class FollowedIceberg(IcebergLake, FollowedLake):
    """Tables there that follow."""

    def __init__(self, settings: IcebergSinkSettings, **options: Any) -> None:
        super().__init__(IcebergStore(settings), settings.buckets, **options)
        self.settings = settings

    def version_of(self, name: str) -> object:
        return self.table(name).metadata_location

    def compact(self) -> None:
        for name in self.store.names():
            self.maintenance.compact(name)
            self.maintenance.expire(name, 0, dry_run=False)

    def histories(self) -> IcebergHistory:
        return IcebergHistory(self.settings)


class IcebergCurrentInTasks(FollowedIceberg):
    """Tables there that follow, written by tasks."""

    by_tasks = True


def require_followed(followed: FollowedIceberg) -> None:
    """Also behind compaction and expiry, whatever the catalog; in a namespace where nothing else is."""
    log = Log(PLAIN)
    write(followed, log.insert((1,), (), 1, v="a"), log.insert((2,), (), 1, v="b"))
    write(followed, log.update((1,), (), 2, w=5), log.delete((2,), (), 2), log.insert((3,), (), 2, v="c"))
    write(followed, log.update((1,), (), 1, v="late"))
    assert followed.rows(PLAIN, "id", "v", "w") == [(1, "late", 5), (3, "c", None)]
    assert followed.store.names() == ["shop.plain", "shop.plain-state"]
    for name in followed.store.names():
        followed.maintenance.compact(name)
        assert followed.maintenance.expire(name, 0, dry_run=False)["orphans"] == 0
    write(followed, log.update((3,), (), 3, w=7))
    assert followed.rows(PLAIN, "id", "v", "w") == [(1, "late", 5), (3, "c", 7)]
