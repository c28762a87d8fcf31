"""A change as CQL statements with its own write times, which leave the same cells in another cluster. No I/O.

What Cassandra keeps of a change is cells, a row marker and deletions, each with its time; what CQL has for each:

- A marker is an INSERT, with the plain cells of its time. Other plain cells are an UPDATE for each time and TTL.
- An element is `c = c + ?` or `c = c - ?`, a field of a user type `c.f = ?`. None deletes the other elements.
- A deleted collection is a DELETE of the column; rows, partitions and ranges are DELETEs, USING TIMESTAMP too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from tailrace_schemas.change import Bound, Cell, Change, Marker, Op
from tailrace_schemas.cql.order import sortable
from tailrace_schemas.cql.types import COLLECTIONS, FIXED_SIZES, CqlType, quote_identifier
from tailrace_schemas.cql.values import split_key
from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.table import Column, Table

_Times = tuple[int, int]
"""Write time in microseconds, and seconds to live, 0 for ever."""
_LISTS: Final = "a list that is not frozen: CQL cannot write its elements at their places"
_BRIEFLY: Final = 1
# Beside values: the write time, TTL and expiry of a cell (Cell.dataSize; 16 before 5.0), of a row and of a deletion.
_CELL_BYTES: Final = 20
_ROW_BYTES: Final = 48
_LONGEST: Final = 630_720_000  # Attributes.MAX_TTL, which a clock that is behind would exceed: it is refused


class Absent(Enum):
    """The one value ABSENT: of a column that a statement leaves as it is."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
Value = bytes | Absent | None
"""Cassandra's bytes, None to delete."""
Part = tuple[str, tuple[Value, ...]]
"""A statement and its values."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """Statements of one partition, which the cluster takes as one.

    `token` is the partition's place on the ring. `size` counts the bytes of all values: about those of the mutation
    that the cluster makes of them. `weight` is at least what it counts of them in a batch (PartitionUpdate.dataSize).
    """

    statements: tuple[Part, ...]
    token: int
    size: int
    weight: int


def mutation_of(statements: tuple[Part, ...], token: int, cells: int, *, slices: bool = False) -> Mutation:
    """That of these statements, which write or delete so many cells, elements of collections included.

    `slices`: they delete slices, of which the cluster counts the shared first columns in both bounds.
    """
    size = 0
    for _, values in statements:
        for value in values:
            if isinstance(value, bytes):
                size += len(value)
    counted = 2 * size if slices else size
    return Mutation(statements, token, size, counted + _ROW_BYTES * len(statements) + _CELL_BYTES * cells)


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows whose first clustering columns have these values, and the next one is within the bounds, in CQL's order.

    A bound is a value and whether it is in the slice itself; None: open.
    """

    prefix: tuple[bytes, ...]
    lower: tuple[bytes, bool] | None = None
    upper: tuple[bytes, bool] | None = None


def target_type(cql_type: CqlType) -> CqlType:
    """The type of a column there: a list that is not frozen is the map of its elements by their time UUIDs."""
    if cql_type.kind == "list" and cql_type.multicell:
        return CqlType("map", (CqlType("timeuuid"), cql_type.args[0]))
    return cql_type


def check_writable(table: Table, *, lists: bool) -> None:
    """Raises UnsupportedError for a table that CQL cannot write as it is, in words that say why; `lists`: as maps."""
    if table.is_counter:
        raise UnsupportedError(f"{table}: counters cannot be written with a time; leave the table out of the stream")
    if table.is_strict:
        raise UnsupportedError(f"{table}: a materialized view, whose rows go with their marker; write its base table")
    compact = "compound" not in table.flags or {"dense", "super"} & table.flags
    if compact or any(column.type.kind == "empty" for column in table.columns):
        raise UnsupportedError(f"{table}: a table of COMPACT STORAGE, which CQL cannot make elsewhere")
    lists_by_index = [column.name for column in table.columns if column.type.kind == "list" and column.type.multicell]
    if lists_by_index and not lists:
        raise UnsupportedError(
            f'{table}: {", ".join(lists_by_index)} is {_LISTS}; lists = "map" makes it a map by time UUID'
        )


class Writes:
    """Makes the statements for changes of one definition; `name` is the table's there, quoted where it must be."""

    def __init__(self, table: Table, name: str) -> None:
        self._table = table
        self._name = name
        self._types = [column.type for column in table.partition_key]
        self._simple = {
            static: [column for column in columns if not column.type.multicell]
            for static, columns in ((True, table.static), (False, table.regular))
        }
        self._live = {column.name_bytes for column in table.columns}
        self._dropped = {dropped.column.name_bytes: dropped.dropped_at for dropped in table.dropped}
        keys = [quote_identifier(column.name) for column in table.key]
        self._where = {
            static: " AND ".join(f"{name} = ?" for name in (keys[: len(self._types)] if static else keys))
            for static in (True, False)
        }
        columns = [*keys, *(quote_identifier(column.name) for column in self._simple[False])]
        marks = ", ".join("?" * len(columns))
        self._insert = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks}) USING TIMESTAMP ? AND TTL ?"  # noqa: S608 - names are quoted

    def mutation(self, change: Change, now: int) -> Mutation | None:
        """The change's statements, None where nothing of it is left; `now` in seconds since the epoch.

        A cell that expires has the seconds that are left; one that has expired is deleted at its write time. A row
        marker cannot be deleted so: it is written to expire at once. Raises UnsupportedError for what CQL cannot say.
        """
        parts = tuple(self._parts(change, now))
        if not parts:
            return None
        return mutation_of(parts, change.token, len(change.cells), slices=change.start is not None)

    def _parts(self, change: Change, now: int) -> Iterator[Part]:
        if change.op is Op.TRUNCATE or change.key is None:
            raise UnsupportedError("a truncation, which CQL has no time for: truncate the table there by hand")
        partition = tuple(split_key(self._types, change.key))
        if change.deletion is not None:
            yield from self._deletion(change, partition, change.deletion.written)
        if change.clustering is None and not change.static:
            return
        key = partition if change.static else (*partition, *_bound(change.clustering or ()))
        yield from self._columns(change, key)
        yield from self._row(change, key, now)
        yield from self._elements(change, key, now)

    # -- deletions

    def _deletion(self, change: Change, partition: tuple[bytes, ...], written: int) -> Iterator[Part]:
        timestamp = struct.pack(">q", written)
        if change.start is not None and change.end is not None:
            for deleted_slice in slices(self._table, change.start, change.end):
                condition, values = self._slice(deleted_slice)
                yield f"DELETE FROM {self._name} USING TIMESTAMP ? WHERE {condition}", (timestamp, *partition, *values)  # noqa: S608 - names are quoted
            return
        is_partition = change.clustering is None
        values = () if is_partition else _bound(change.clustering or ())
        condition = self._where[is_partition]
        yield f"DELETE FROM {self._name} USING TIMESTAMP ? WHERE {condition}", (timestamp, *partition, *values)  # noqa: S608 - names are quoted

    def _slice(self, key_slice: Slice) -> tuple[str, tuple[bytes, ...]]:
        names = [quote_identifier(column.name) for column in self._table.clustering]
        conditions = [self._where[True], *(f"{name} = ?" for name in names[: len(key_slice.prefix)])]
        values = list(key_slice.prefix)
        for bound, sign in ((key_slice.lower, ">"), (key_slice.upper, "<")):
            if bound is not None:
                conditions.append(f"{names[len(key_slice.prefix)]} {sign}{'=' if bound[1] else ''} ?")
                values.append(bound[0])
        return " AND ".join(conditions), tuple(values)

    def _columns(self, change: Change, key: tuple[bytes, ...]) -> Iterator[Part]:
        for deleted in change.column_deletions:
            if self._is_live(deleted.column, deleted.deletion.written):
                timestamp = struct.pack(">q", deleted.deletion.written)
                column = quote_identifier(deleted.column.name)
                yield (
                    f"DELETE {column} FROM {self._name} USING TIMESTAMP ? WHERE {self._where[change.static]}",
                    (timestamp, *key),
                )

    # -- plain cells

    def _row(self, change: Change, key: tuple[bytes, ...], now: int) -> Iterator[Part]:
        """The marker with the plain cells of its time, and those of other times."""
        groups: dict[_Times, dict[bytes, bytes | None]] = {}
        marked = None if change.marker is None else _marked(change.marker, now)
        if marked is not None:
            groups[marked] = {}
        for cell in change.cells:
            if cell.path is None and self._is_live(cell.column, cell.written):
                times, value = _present(cell, now)
                if value is None:  # a tombstone has no TTL: whichever statement has its time
                    times = next((group for group in groups if group[0] == times[0]), times)
                groups.setdefault(times, {})[cell.column.name_bytes] = value
        for times, values in groups.items():
            if not change.static and times == marked:
                yield self._insert, (*key, *self._values(values, False), *_packed(times))
            elif values:
                yield self._update(change.static), (*_packed(times), *self._values(values, change.static), *key)

    def _values(self, values: dict[bytes, bytes | None], static: bool) -> list[Value]:
        return [values.get(column.name_bytes, ABSENT) for column in self._simple[static]]

    def _update(self, static: bool) -> str:
        sets = ", ".join(f"{quote_identifier(column.name)} = ?" for column in self._simple[static])
        return f"UPDATE {self._name} USING TIMESTAMP ? AND TTL ? SET {sets} WHERE {self._where[static]}"  # noqa: S608 - names are quoted

    # -- elements

    def _elements(self, change: Change, key: tuple[bytes, ...], now: int) -> Iterator[Part]:
        groups: dict[tuple[bytes, int, int, bool], list[tuple[Cell, bytes | None]]] = {}
        columns: dict[bytes, Column] = {}
        for cell in change.cells:
            if cell.path is not None and self._is_live(cell.column, cell.written):
                times, value = _present(cell, now)
                columns[cell.column.name_bytes] = cell.column
                groups.setdefault((cell.column.name_bytes, *times, value is None), []).append((cell, value))
        for (name, written, seconds_left, is_deleted), cells in groups.items():
            times = written, seconds_left
            column = columns[name]
            if column.type.kind == "udt":
                yield from self._fields(column, times, cells, key, change.static)
            else:
                yield self._edit(column, times, cells, key, change.static, is_deleted)

    def _fields(
        self, column: Column, times: _Times, cells: Sequence[tuple[Cell, bytes | None]], key: tuple[bytes, ...],
        static: bool,
    ) -> Iterator[Part]:  # fmt: skip
        for cell, value in cells:
            index = int.from_bytes(cell.path or b"", "big")
            if index >= len(column.type.fields):
                raise UnsupportedError(f"a field of {column.name} that its definition does not know")
            field = f"{quote_identifier(column.name)}.{quote_identifier(column.type.fields[index])}"
            statement = f"UPDATE {self._name} USING TIMESTAMP ? AND TTL ? SET {field} = ? WHERE {self._where[static]}"  # noqa: S608 - names are quoted
            yield statement, (*_packed(times), value, *key)

    def _edit(
        self, column: Column, times: _Times, cells: Sequence[tuple[Cell, bytes | None]], key: tuple[bytes, ...],
        static: bool, removed: bool,
    ) -> Part:  # fmt: skip
        name, sign = quote_identifier(column.name), "-" if removed else "+"
        statement = (
            f"UPDATE {self._name} USING TIMESTAMP ? AND TTL ? SET {name} = {name} {sign} ? WHERE {self._where[static]}"  # noqa: S608 - names are quoted
        )
        keyed = removed or column.type.kind == "set"
        items = [cell.path if keyed else (cell.path, value) for cell, value in cells]
        return statement, (*_packed(times), _collection(items), *key)

    def _is_live(self, column: Column, written: int) -> bool:
        """Whether the definition has the column, and did not drop an earlier one of its name later than this."""
        name = column.name_bytes
        return name in self._live and written > self._dropped.get(name, written - 1)


def slices(table: Table, start: Bound, end: Bound) -> list[Slice]:
    """A deleted range, whose bounds are in storage order, as slices that CQL can delete, whatever the order of columns.

    All rows of a partition of which the static row stays, as by overlapping deletions, are those before a value and
    the others. Raises UnsupportedError where no value of their type is known.
    """
    low, high = _bound(start.values), _bound(end.values)
    shared = _same(table, low, high)
    prefix = low[:shared]
    if not shared and not low and not high:
        if not table.static:
            return [Slice(())]
        value = _some_value(table.clustering[0].type)
        return [_in_cql(table, half) for half in (Slice((), None, (value, False)), Slice((), (value, True)))]
    if (len(low) == shared and not start.inclusive) or (len(high) == shared and not end.inclusive):
        return []
    deleted = [
        Slice(low[:depth], (low[depth], start.inclusive and depth == len(low) - 1))
        for depth in range(shared + 1, len(low))
    ]
    deleted.append(
        Slice(
            prefix,
            (low[shared], start.inclusive and len(low) == shared + 1) if len(low) > shared else None,
            (high[shared], end.inclusive and len(high) == shared + 1) if len(high) > shared else None,
        )
    )
    deleted += [
        Slice(high[:depth], None, (high[depth], end.inclusive and depth == len(high) - 1))
        for depth in range(shared + 1, len(high))
    ]
    return [_in_cql(table, deleted_slice) for deleted_slice in deleted]


def _same(table: Table, low: Sequence[bytes], high: Sequence[bytes]) -> int:
    """How many values both begin with, as their types compare them: 1.0 and 1.00 are one."""
    count = 0
    for column, a, b in zip(table.clustering, low, high, strict=False):
        if a != b and sortable(column.type, a, False) != sortable(column.type, b, False):
            break
        count += 1
    return count


def _some_value(cql_type: CqlType) -> bytes:
    """A value of a type of clustering columns, whichever: as bytes that Cassandra takes for one."""
    if (value := _SOME_VALUES.get(cql_type.kind)) is not None:
        return value
    if cql_type.kind in COLLECTIONS:
        return bytes(4)  # an empty one
    if cql_type.kind in ("tuple", "udt"):
        return b"\xff" * 4 * len(cql_type.args)  # of nulls
    raise UnsupportedError(f"a deletion of all rows of a partition without its static row, by a column of {cql_type}")


_SOME_VALUES: Final[Mapping[str, bytes]] = {
    **{kind: bytes(size) for kind, size in FIXED_SIZES.items()},
    "smallint": bytes(2), "tinyint": bytes(1), "date": bytes(4), "time": bytes(8), "inet": bytes(4),
    "varint": bytes(1), "decimal": bytes(5), "text": b"", "ascii": b"", "blob": b"",
    "timeuuid": bytes.fromhex("00000000000010008000000000000000"),  # of version 1
}  # fmt: skip


def _in_cql(table: Table, key_slice: Slice) -> Slice:
    """Bounds of a column that is stored in descending order change places."""
    column_index = len(key_slice.prefix)
    if column_index < len(table.clustering) and table.clustering[column_index].descending:
        return replace(key_slice, lower=key_slice.upper, upper=key_slice.lower)
    return key_slice


def _bound(values: Sequence[bytes | None]) -> tuple[bytes, ...]:
    if any(value is None for value in values):
        raise UnsupportedError("a clustering column without a value, which CQL cannot name")
    return tuple(value for value in values if value is not None)


def _left(ttl: int | None, expires: int | None, now: int) -> int:
    """The seconds that something has left, 0 for none."""
    return 0 if ttl is None or expires is None else min(max(0, expires - now), _LONGEST)


def _marked(marker: Marker, now: int) -> _Times:
    """A marker's times as it is to be written now: there is no tombstone of one, so it expires at once."""
    return marker.written, 0 if marker.ttl is None else _left(marker.ttl, marker.expires, now) or _BRIEFLY


def _present(cell: Cell, now: int) -> tuple[_Times, bytes | None]:
    """A cell as it is to be written now: what has expired is a tombstone of its time."""
    if cell.value is None or cell.ttl is None:
        return (cell.written, 0), cell.value
    seconds_left = _left(cell.ttl, cell.expires, now)
    return ((cell.written, seconds_left), cell.value) if seconds_left else ((cell.written, 0), None)


def _packed(times: _Times) -> tuple[bytes, bytes]:
    return struct.pack(">q", times[0]), struct.pack(">i", times[1])


def _collection(items: Sequence[bytes | tuple[bytes | None, bytes | None] | None]) -> bytes:
    """A collection's bytes as the native protocol has them from version 3 on: count, then each with its length."""
    out = [struct.pack(">i", len(items))]
    for item in items:
        for element in item if isinstance(item, tuple) else (item,):
            data = element or b""
            out += [struct.pack(">i", len(data)), data]
    return b"".join(out)
