"""Iceberg stores for tests: tables in a directory or on S3, behind a store that can die, and their readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tailrace_common.settings.sinks.iceberg import IcebergSinkSettings
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.iceberg.catalog import CATALOG
from tailrace_spark.sinks.iceberg.store import IcebergStore
from tailrace_spark.sinks.lake.current import LakeCurrent
from tailrace_spark.sinks.lake.history import DEAD_LETTERS, LakeHistory
from tailrace_spark.sinks.lake.records import change_records
from tailrace_spark.sinks.lake.visible_rows import HIDDEN
from tests.held import jar_version
from tests.unit.spark.sinks.delta.stores import Following
from tests.unit.spark.sinks.merging_contract import Row, by_repr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


NARROW: Final = {"int8": "int32", "int16": "int32"}
"""Numbers that Iceberg has nothing as narrow for."""
ICEBERG_VERSION: Final = jar_version("iceberg", "iceberg-spark-runtime-4.1_2.13")


class Dying(IcebergStore):
    """Another store until so many steps have been made: each write is three, before it, staged, and when it is done."""

    def __init__(
        self, settings: IcebergSinkSettings, session: Callable[[], SparkSession], steps: int, *, revives: bool = False
    ) -> None:
        """With `revives` one step fails alone, as of a store that does not answer for a moment."""
        super().__init__(settings, session)
        self._left = steps
        self._revives = revives

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        self._step()
        with super()._writing(name):
            yield
        self._step()

    def _staging(self, *args: Any, **named: Any) -> str:
        staged = super()._staging(*args, **named)
        self._step()
        return staged

    def _step(self) -> None:
        if self._left == 0:
            self._left -= self._revives
            raise ServiceError("the process is dead")
        self._left -= 1


class Lake:
    """A path that an iceberg sink writes below, as Spark reads it."""

    def __init__(self, settings: IcebergSinkSettings, spark: SparkSession) -> None:
        self.settings = settings
        self.spark = spark
        self.store = IcebergStore(settings, lambda: spark)

    def opened(self, dies_after: int | None = None, *, revives: bool = False) -> IcebergStore:
        """The store of another process."""
        if dies_after is None:
            return IcebergStore(self.settings, lambda: self.spark)
        return Dying(self.settings, lambda: self.spark, dies_after, revives=revives)

    def rows_of(self, name: str) -> Any | None:
        """A pyarrow Table of all rows; None where there is no such table."""
        if self.store.open(name) is None:
            return None
        return self.store._catalog.session.table(self.store._quoted(name)).toArrow()

    def dead_letter_rows(self) -> Sequence[Mapping[str, Any]]:
        rows = self.rows_of(DEAD_LETTERS)
        return [] if rows is None else rows.to_pylist()

    def sql(self, text: str) -> list[Any]:
        """What a statement answers; `{0}` is the catalog."""
        return self.store._catalog.session.sql(text.format(CATALOG)).collect()


class IcebergHistory(Lake):
    """Histories there."""

    exactly_once = True

    def open(self, dies_after: int | None = None, *, revives: bool = False) -> ChangeLogSink:
        return ChangeLogSink(LakeHistory(self.opened(dies_after, revives=revives)))

    def rows(self, name: str) -> Any:
        """All rows in the order of their places; None where there is no such table."""
        places = [(column, "ascending") for column in ("topic", "partition", "offset")]
        found = self.rows_of(name)
        return None if found is None else found.sort_by(places)

    def days(self, name: str) -> set[str]:
        return {str(row[0]["day"]) for row in self.sql(f"SELECT partition FROM {self.store._quoted(name)}.partitions")}

    def records(self) -> Sequence[Mapping[str, Any]]:
        names = [name for name in self.store.names() if name != DEAD_LETTERS]
        return [record for name in names for record in change_records(name, self.rows(name))]

    def dead_letters(self) -> Sequence[Mapping[str, Any]]:
        return [{**row, "message": row["message"].hex()} for row in self.dead_letter_rows()]


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
    ) -> LakeCurrent:
        store = self.opened(dies_after, revives=revives)
        return LakeCurrent(store, self.settings.buckets, ring_delay=ring_delay, clock=clock or (lambda: 0))

    def rows(self, of: Table, *columns: str) -> list[Row]:
        found = self.rows_of(self.name(of))
        assert found is not None
        return by_repr(zip(*(found[column].to_pylist() for column in columns), strict=True))

    def columns(self, of: Table) -> list[str]:
        found = self.rows_of(self.name(of))
        assert found is not None
        return [name for name in found.schema.names if name not in HIDDEN]

    def everything(self) -> object:
        """By name the newest snapshot and all rows."""
        found = {}
        for name in self.store.names():
            table, rows = self.store.open(name), self.rows_of(name)
            assert table is not None
            assert rows is not None
            found[name] = (table.metadata_file, by_repr(tuple(row.items()) for row in rows.to_pylist()))
        return found

    def compact(self) -> None:
        for name in self.store.names():
            self.store.compact(name)
            self.store.expire(name, 0, dry_run=False)

    def histories(self) -> IcebergHistory:
        return IcebergHistory(self.settings, self.spark)

    def dead_letters(self) -> int:
        return len(self.dead_letter_rows())
