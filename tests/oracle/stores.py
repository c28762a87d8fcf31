"""Stores that merging sinks write, as the oracle reads them: each a new, empty one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tailrace_schemas.avro.names import avro_name
from tailrace_schemas.table import Table
from tailrace_spark.sinks.protocol import SweepingSink
from tests.oracle.comparison import Row, row_of
from tests.oracle.documents import stored
from tests.unit.spark.sinks.lake.stores import FollowedLake
from tests.unit.spark.sinks.opensearch.indexes import Searched, SearchedInTasks


class LakeTables:
    """Tables of a lake that follow."""

    def __init__(self, followed: FollowedLake) -> None:
        self._followed = followed

    def open(self, clock: Callable[[], float]) -> SweepingSink:
        return self._followed.open(clock)

    def rows(self, table: Table) -> list[Row]:
        """None yet where a state alone is there, as of a writer that is killed before it makes the table."""
        shown = self._followed.rows_of(self._followed.name(table)) if self._followed.follows(table) else None
        return [] if shown is None else [row_of(table, by_column(table, row), stored) for row in shown.to_pylist()]

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
