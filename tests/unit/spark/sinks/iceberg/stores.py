"""Iceberg stores for tests: tables in a directory or on S3, behind a store that can die, and their readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from pyiceberg.table import Table as PyIcebergTable

from tailrace_schemas.table import Table
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.iceberg.files import read_rows
from tailrace_spark.sinks.iceberg.maintenance import Maintenance
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.iceberg.store import IcebergStore
from tailrace_spark.sinks.lake.current import LakeCurrent
from tailrace_spark.sinks.lake.history import LakeHistory, history_sink
from tailrace_spark.sinks.lake.store import LakeStore
from tailrace_spark.sinks.lake.visible_rows import HIDDEN
from tailrace_spark.sinks.protocol import Sink, SweepingSink
from tests.support.history_records import change_records
from tests.support.letters import MemoryLetters
from tests.unit.spark.sinks.delta.stores import Dying, Following, whose
from tests.unit.spark.sinks.in_tasks import InTasks, LogInTasks
from tests.unit.spark.sinks.merging_contract import Row, by_repr

NARROW: Final = {"int8": "int32", "int16": "int32"}
"""Numbers that Iceberg has nothing as narrow for."""


class Lake:
    """A path that an iceberg sink writes below, as any reader sees it."""

    def __init__(self, settings: IcebergSinkSettings) -> None:
        self.settings = settings
        self.store = IcebergStore(settings)
        self.maintenance = Maintenance(self.store)
        self.letters = MemoryLetters()

    def opened(self, dies_after: int | None = None, *, revives: bool = False) -> LakeStore:
        """The store of another process."""
        store: LakeStore = IcebergStore(self.settings)
        return store if dies_after is None else cast("LakeStore", Dying(store, dies_after, revives=revives))

    def table(self, name: str) -> PyIcebergTable:
        """As anybody else opens it."""
        opened = self.store.open(name)
        assert opened is not None
        return opened.iceberg

    def rows_of(self, name: str) -> Any | None:
        """A pyarrow Table of all rows; None where there is no such table."""
        opened = self.store.open(name)
        if opened is None:
            return None
        return read_rows(opened.iceberg)


class IcebergHistory(Lake):
    """Histories there."""

    exactly_once = True

    def open(self, dies_after: int | None = None, *, revives: bool = False) -> Sink:
        return ChangeLogSink(LakeHistory(self.opened(dies_after, revives=revives), letters=self.letters))

    def rows(self, name: str) -> Any:
        """All rows in the order of their places; None where there is no such table."""
        places = [(column, "ascending") for column in ("topic", "partition", "offset")]
        found = self.rows_of(name)
        return None if found is None else found.sort_by(places)

    def days(self, name: str) -> set[str]:
        return {str(row["partition"]["day"]) for row in self.table(name).inspect.partitions().to_pylist()}

    def records(self) -> Sequence[Mapping[str, Any]]:
        found = [(whose(self.store.open(name)), self.rows(name)) for name in self.store.names()]
        return [record for table, rows in found for record in change_records(table, rows)]


class IcebergInTasks(IcebergHistory):
    """Histories that tasks write."""

    def open(self, dies_after: int | None = None, *, revives: bool = False) -> Sink:
        return LogInTasks(history_sink(LakeHistory(self.opened(dies_after, revives=revives), letters=self.letters)))


class FollowedIceberg(Lake, Following):
    """Tables there that follow."""

    store: IcebergStore

    def open(
        self,
        clock: Callable[[], float] | None = None,
        ring_delay: float = 0.0,
        *,
        dies_after: int | None = None,
        revives: bool = False,
    ) -> SweepingSink:
        store = self.opened(dies_after, revives=revives)
        time = clock or (lambda: 0)
        return LakeCurrent(store, self.settings.buckets, ring_delay=ring_delay, clock=time, letters=self.letters)

    def rows(self, of: Table, *columns: str) -> list[Row]:
        found = self.rows_of(self.name(of))
        assert found is not None
        return by_repr(zip(*(found[column].to_pylist() for column in columns), strict=True))

    def columns(self, of: Table) -> list[str]:
        found = self.rows_of(self.name(of))
        assert found is not None
        return [name for name in found.schema.names if name not in HIDDEN]

    def everything(self) -> object:
        """By name the newest metadata and all rows."""
        found = {}
        for name in self.store.names():
            rows = self.rows_of(name)
            assert rows is not None
            found[name] = (self.table(name).metadata_location, by_repr(tuple(row.items()) for row in rows.to_pylist()))
        return found

    def compact(self) -> None:
        for name in self.store.names():
            self.maintenance.compact(name)
            self.maintenance.expire(name, 0, dry_run=False)

    def histories(self) -> IcebergHistory:
        return IcebergHistory(self.settings)


class IcebergCurrentInTasks(FollowedIceberg):
    """Tables there that follow, written by tasks."""

    def open(
        self,
        clock: Callable[[], float] | None = None,
        ring_delay: float = 0.0,
        *,
        dies_after: int | None = None,
        revives: bool = False,
    ) -> SweepingSink:
        return InTasks(super().open(clock, ring_delay, dies_after=dies_after, revives=revives))
