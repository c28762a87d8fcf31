"""Stores that merging sinks write, as the oracle reads them: each a new, empty one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tailrace_schemas.avro.names import avro_name
from tailrace_schemas.table import Table
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.protocol import SweepingSink
from tests.oracle.comparison import Row, row_of
from tests.oracle.documents import stored
from tests.unit.spark.sinks.delta.stores import FollowedDelta
from tests.unit.spark.sinks.iceberg.stores import FollowedIceberg
from tests.unit.spark.sinks.opensearch.indexes import Searched, SearchedInTasks


class DeltaTables:
    """Delta tables that follow, in a directory."""

    def __init__(self, settings: DeltaSinkSettings) -> None:
        self._followed = FollowedDelta(settings)

    def open(self, clock: Callable[[], float]) -> SweepingSink:
        return self._followed.open(clock)

    def rows(self, table: Table) -> list[Row]:
        if not self._followed.follows(table):
            return []
        found = self._followed.table(table).to_pyarrow_table().to_pylist()
        return [row_of(table, by_column(table, row), stored) for row in found]

    def set_aside(self) -> Sequence[tuple[str, str]]:
        return self._followed.letters.told()


class IcebergTables:
    """Iceberg tables that follow, in a directory."""

    def __init__(self, settings: IcebergSinkSettings) -> None:
        self._followed = FollowedIceberg(settings)

    def open(self, clock: Callable[[], float]) -> SweepingSink:
        return self._followed.open(clock)

    def rows(self, table: Table) -> list[Row]:
        if not self._followed.follows(table):
            return []
        found = self._followed.rows_of(self._followed.name(table))
        rows = [] if found is None else found.to_pylist()
        return [row_of(table, by_column(table, row), stored) for row in rows]

    def set_aside(self) -> Sequence[tuple[str, str]]:
        return self._followed.letters.told()


class SearchIndexes:
    """Indexes of an OpenSearch or Elasticsearch."""

    def __init__(self, url: str, *, by_tasks: bool = False) -> None:
        self._searched = SearchedInTasks(url) if by_tasks else Searched(url)
        self.settings = self._searched.settings
        self.version = self._searched.version

    def open(self, clock: Callable[[], float]) -> SweepingSink:
        return self._searched.open(clock)

    def rows(self, table: Table) -> list[Row]:
        if not self._searched.follows(table):
            return []
        return [row_of(table, by_column(table, row), stored) for row in self._searched.search(table)]

    def set_aside(self) -> Sequence[tuple[str, str]]:
        return self._searched.letters.told()


def by_column(table: Table, row: dict[str, object]) -> dict[str, object]:
    """A stored row by the names of the source's columns."""
    return {column.name: row.get(avro_name(column.name)) for column in (*table.key, *table.columns)}
