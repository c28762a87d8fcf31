"""Log rows as statements that do the same to another table, with the same write times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cassandra.cluster import Session
from cassandra.metadata import TableMetadata
from cassandra.query import BatchStatement, BatchType, PreparedStatement

from examples.log_reader.reader import LogRow, write_time

UPDATE, INSERT, ROW_DELETE, PARTITION_DELETE = 1, 2, 3, 4
RANGE_STARTS, RANGE_ENDS = {5: True, 6: False}, {7: True, 8: False}

Statement = tuple[str, list[Any]]


class CannotReplicateError(Exception):
    """What no statement of CQL's repeats with the same cells: edits within lists, whose cells have ids of their own."""


class Replicator:
    """Applies writes to `target`, a table of the log's own table's definition. A write may be applied twice."""

    def __init__(self, session: Session, target: TableMetadata) -> None:
        self._session = session
        self._name = f'{target.keyspace_name}."{target.name}"'
        self._partition = [column.name for column in target.partition_key]
        self._clustering = [column.name for column in target.clustering_key]
        self._descending = {column.name for column in target.clustering_key if column.is_reversed}
        keys = {*self._partition, *self._clustering}
        self._columns = {name: column.cql_type for name, column in target.columns.items() if name not in keys}
        types = session.cluster.metadata.keyspaces[target.keyspace_name].user_types
        self._fields = {name: types[kind].field_names for name, kind in self._columns.items() if kind in types}
        self._prepared: dict[str, PreparedStatement] = {}

    def __call__(self, write: Sequence[LogRow]) -> None:
        """Apply one write: all of its rows are of one partition, and so one mutation again."""
        batch = BatchStatement(batch_type=BatchType.UNLOGGED)
        for text, values in self._statements(write):
            statement = self._prepared.get(text)
            if statement is None:
                statement = self._prepared[text] = self._session.prepare(text)
            batch.add(statement, values)
        self._session.execute(batch)

    def _statements(self, write: Sequence[LogRow]) -> Iterator[Statement]:
        rows = iter(write)
        for row in rows:
            at, operation = write_time(row), row["cdc$operation"]
            if operation in (UPDATE, INSERT):
                yield from self._data(row, at, operation == INSERT)
            elif operation in (ROW_DELETE, PARTITION_DELETE):
                yield self._delete(at, self._equals(row, self._partition + self._clustering))
            elif operation in RANGE_STARTS:
                yield self._delete(at, self._range(row, next(rows)))

    def _data(self, row: LogRow, at: int, insert: bool) -> Iterator[Statement]:
        """An INSERT, which writes a row marker too, or an UPDATE; and what one of them cannot say together."""
        columns: list[str] = []
        values: list[Any] = []
        assignments: list[tuple[str, list[Any]]] = []
        for name, kind in self._columns.items():
            value, deleted = row.get(name), row.get(f"cdc$deleted_{name}")
            removed = row.get(f"cdc$deleted_elements_{name}")
            if deleted or (value is not None and f"cdc$deleted_elements_{name}" not in row):
                columns.append(name)
                values.append(self._whole(kind, value))
            elif value is not None:
                assignments += self._added(name, kind, value)
            if removed:
                assignments += self._removed(name, kind, removed)
        if insert:
            key = [name for name in self._partition + self._clustering if row[name] is not None]
            names = ", ".join(f'"{name}"' for name in [*key, *columns])
            marks = ", ".join("?" * (len(key) + len(columns)))
            using, times = _using(at, row["cdc$ttl"])
            text = f"INSERT INTO {self._name} ({names}) VALUES ({marks}){using}"
            yield text, [*(row[name] for name in key), *values, *times]
        elif columns:
            yield self._update(row, at, [(f'"{name}" = ?', [one]) for name, one in zip(columns, values, strict=True)])
        for assignment in assignments:
            yield self._update(row, at, [assignment])

    def _update(self, row: LogRow, at: int, assignments: list[tuple[str, list[Any]]]) -> Statement:
        using, times = _using(at, row["cdc$ttl"])
        where, keys = self._equals(row, self._partition + self._clustering)
        told = ", ".join(text for text, _ in assignments)
        values = [value for _, some in assignments for value in some]
        return f"UPDATE {self._name}{using} SET {told} WHERE {where}", [*times, *values, *keys]

    def _whole(self, kind: str, value: Any) -> Any:
        """A column's value; a list comes as the map of its cells, by the ids that order them."""
        if kind.startswith("list<") and value is not None:
            return [value[cell] for cell in sorted(value, key=lambda cell: cell.time)]
        return value

    def _added(self, name: str, kind: str, value: Any) -> list[tuple[str, list[Any]]]:
        if name in self._fields:
            fields = zip(self._fields[name], value, strict=True)
            return [(f'"{name}"."{field}" = ?', [one]) for field, one in fields if one is not None]
        if kind.startswith("list<"):
            raise CannotReplicateError(f"cells of list {name} have been added")
        return [(f'"{name}" = "{name}" + ?', [value])]

    def _removed(self, name: str, kind: str, removed: Any) -> list[tuple[str, list[Any]]]:
        if name in self._fields:
            return [(f'"{name}"."{self._fields[name][number]}" = ?', [None]) for number in removed]
        if kind.startswith("list<"):
            raise CannotReplicateError(f"cells of list {name} have been removed")
        return [(f'"{name}" = "{name}" - ?', [set(removed)])]

    def _delete(self, at: int, where: Statement) -> Statement:
        return f"DELETE FROM {self._name} USING TIMESTAMP ? WHERE {where[0]}", [at, *where[1]]

    def _equals(self, row: LogRow, names: Sequence[str]) -> Statement:
        """The key's columns that the row has: static rows and partition deletions have no clustering columns."""
        there = [name for name in names if row[name] is not None]
        return " AND ".join(f'"{name}" = ?' for name in there), [row[name] for name in there]

    def _range(self, start: LogRow, end: LogRow) -> Statement:
        """The columns that both ends have in common, and the bounds of the one behind them."""
        common = list(self._partition)
        for name in self._clustering:
            if start[name] is None or start[name] != end[name]:
                break
            common.append(name)
        where, values = self._equals(start, common)
        behind = [name for name in self._clustering if name not in common][:1]
        for row, inclusive, left in (
            (start, RANGE_STARTS[start["cdc$operation"]], True),
            (end, RANGE_ENDS[end["cdc$operation"]], False),
        ):
            for name in behind:
                if row[name] is not None:
                    sign = ">" if left != (name in self._descending) else "<"
                    where += f' AND "{name}" {sign}{"=" if inclusive else ""} ?'
                    values.append(row[name])
        return where, values


def _using(at: int, ttl: int | None) -> tuple[str, list[int]]:
    """USING ...: a deleted cell has no TTL, so neither has a log row of nothing but those."""
    return (" USING TIMESTAMP ?", [at]) if ttl is None else (" USING TIMESTAMP ? AND TTL ?", [at, ttl])
