"""The columns of a change that a filter may refer to, in Arrow, of the types that Spark has. Pure.

The columns of the primary key stand under their names; `change` says what kind of change it is. Where a filter may ask
for them, `columns` has what the change writes, null where it writes nothing. A key column called like one of these two
hides it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import pyarrow as pa

from tailrace_schemas.avro.convert import to_avro
from tailrace_schemas.change import Change, record_times
from tailrace_schemas.cql.values import split_key
from tailrace_schemas.table import Column, Table
from tailrace_spark.sinks.arrow.schema import value_type
from tailrace_spark.sinks.arrow.types import delta_type

CHANGE: Final = "change"
COLUMNS: Final = "columns"
_CHANGE: Final = pa.struct(
    [
        ("op", pa.string()),
        ("keyspace", pa.string()),
        ("table", pa.string()),
        ("written", pa.timestamp("us", "UTC")),
        ("ttl", pa.int32()),
        ("static", pa.bool_()),
        ("origin", pa.string()),
    ]
)


def known_key_columns(change: Change) -> int:
    """The number of leading primary key columns that are the same in all rows of a change.

    Of a deleted range those that both of its ends begin with; of a truncation none.
    """
    if change.key is None:
        return 0
    if change.clustering is not None:
        return len(change.table.key)
    count = len(change.table.partition_key)
    if change.start is not None and change.end is not None:
        for start, end in zip(change.start.values, change.end.values, strict=False):
            if start != end:
                break
            count += 1
    return count


class FilterColumns:
    """The columns of one table's changes for filters; `table` is its newest definition, by which they are named."""

    def __init__(self, table: Table, *, written: bool, names: Collection[str] | None = None) -> None:
        """With `written`, `columns` is there too: of the columns that are not in the key, those that are one cell.

        `names` are those of the columns to make, by default all; a column that no condition asks for costs only time.
        """
        self.table = table
        key_names = {column.name.lower() for column in table.key}
        plain = [column for column in table.columns if not column.type.multicell and column.type.kind != "counter"]
        self._columns = [column for column in plain if written and COLUMNS not in key_names]
        extra = [] if CHANGE in key_names else [pa.field(CHANGE, _CHANGE)]
        if self._columns:
            of = pa.struct([pa.field(column.name, _spark_type(column)) for column in self._columns])
            extra.append(pa.field(COLUMNS, of))
        self._extra = frozenset(field.name for field in extra)
        key = [pa.field(column.name, _spark_type(column)) for column in table.key]
        self.schema: Any = pa.schema([field for field in [*key, *extra] if names is None or field.name in names])
        self._key = [(index, column) for index, column in enumerate(table.key) if names is None or column.name in names]

    def named(self, known_key_columns: int) -> frozenset[str]:
        """The names whose values are known of changes of which `known_key_columns` is so much."""
        return self._extra | {column.name for column in self.table.key[:known_key_columns]}

    def rows(self, changes: Sequence[Change]) -> Any:
        """A pyarrow Table with a row for each change; what is not known of one is null.

        Raises ValueError for a change without a write time. Raises pyarrow.ArrowInvalid for a value that no column of
        Spark's can have, such as a timestamp in a year of six digits.
        """
        indexes = [index for index, _ in self._key]
        keys = [_key(change, indexes) for change in changes]
        arrays = [
            _array([key[index] for key in keys], column, _spark_type(column))
            for index, (_, column) in enumerate(self._key)
        ]
        for field in list(self.schema)[len(arrays) :]:
            if field.name == CHANGE:
                arrays.append(pa.array([_change_values(change) for change in changes], _CHANGE))
            else:
                arrays.append(self._written(changes))
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _written(self, changes: Sequence[Change]) -> Any:
        cells = [{cell.column.name_bytes: cell.value for cell in change.cells} for change in changes]
        fields = [
            _array([_value(column, written.get(column.name_bytes)) for written in cells], column, _spark_type(column))
            for column in self._columns
        ]
        return pa.StructArray.from_arrays(fields, names=[column.name for column in self._columns])


def _spark_type(column: Column) -> Any:
    return delta_type(value_type(column.type))


def _array(values: list[object], column: Column, of: Any) -> Any:
    return pa.array(values, value_type(column.type)).cast(of)


def _key(change: Change, indexes: Sequence[int]) -> list[object]:
    """The values of these of the key's columns, null where they are not known."""
    table = change.table
    if not indexes:
        return []
    parts: list[bytes | None] = []
    if change.key is not None:
        parts += split_key([column.type for column in table.partition_key], change.key)
    if change.clustering is not None:
        parts += change.clustering
    elif change.start is not None:
        parts += change.start.values[: known_key_columns(change) - len(table.partition_key)]
    parts += [None] * (len(table.key) - len(parts))
    return [_value(table.key[index], parts[index]) for index in indexes]


def _value(column: Column, data: bytes | None) -> object:
    return None if data is None else to_avro(column.type, data)[0]


def _change_values(change: Change) -> dict[str, object]:
    written, ttl, _ = record_times(change)
    return {
        "op": change.op.value,
        "keyspace": change.table.keyspace,
        "table": change.table.name,
        "written": written,
        "ttl": ttl,
        "static": change.static,
        "origin": None if change.source is None else change.source.origin.value,
    }
