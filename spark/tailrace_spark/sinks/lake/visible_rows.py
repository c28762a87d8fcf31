"""What a table of a lake shows of a source table: columns as one definition has them, and rows out of states."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailrace_common.sections.template import CLUSTERING, KEY
from tailrace_schemas.avro.convert import renaming
from tailrace_schemas.avro.names import avro_name
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec, split_key
from tailrace_schemas.table import Column, Table
from tailrace_spark.merge.partition import ClusteredState, Clustering, MergeResult, StoredPartition
from tailrace_spark.merge.row import ShownRows
from tailrace_spark.merge.stored_row import STATIC, RowKey, decode_stored
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.rowstate.visible import VisibleColumns
from tailrace_spark.sinks.arrow.schema import value_type
from tailrace_spark.sinks.arrow.types import conform, delta_schema, nearest, relabelled, relabelled_batch, sayable
from tailrace_spark.sinks.arrow.values import column_array, either
from tailrace_spark.sinks.lake.fast_rows import FastRows, StoredRows, bucket_of
from tailrace_spark.sinks.lake.names import Names, names_of
from tailrace_spark.sinks.lake.names import shown as labelled

BUCKET: Final = "__bucket"
_HIDDEN: Final = ((KEY, pa.binary()), (CLUSTERING, pa.binary()), (BUCKET, pa.int32()))
HIDDEN: Final = tuple(name for name, _ in _HIDDEN)
"""The columns that are not the source's: they name a row."""
NO_NAMES: Final[Names] = MappingProxyType({})
"""Of a table that is not there yet."""


class LakeRowRenderer:
    """The rows of one source table, by one definition of it, in such buckets."""

    def __init__(
        self, table: Table, buckets: int, existing: Names = NO_NAMES, shown_rows: ShownRows | None = None
    ) -> None:
        """`existing`: the names that its table has (lake.names).

        Rows outside `shown_rows` are rendered as none.
        """
        self.table = table
        self.shown_rows = shown_rows
        self._buckets = buckets
        self._regular = VisibleColumns(table)
        self._static = VisibleColumns(table, static=True)
        self._columns: tuple[Column, ...] = (*table.key, *self._static.columns, *self._regular.columns)
        self._decoders = [codec(column.type).decode for column in table.key]
        self._key_types = tuple(column.type for column in table.partition_key)
        plain = [pa.field(avro_name(column.name), value_type(column.type)) for column in self._columns]
        self._plain = pa.schema([*plain, *(pa.field(name, of) for name, of in _HIDDEN)])
        self._labels = labelled(self._plain, existing, HIDDEN)
        self.schema: Any = delta_schema(self._labels)
        """The pyarrow Schema of a row: the source's columns in its order, then those that name the row."""
        self.names: Names = names_of(self._labels)
        """Those of `schema`."""

    @property
    def whole_partitions(self) -> bool:
        """Whether rows of a partition show what others of it say, so that all of them are made together."""
        return bool(self.table.static)

    def row(self, row_key: RowKey, state: ClusteredState, now: int | None) -> list[object] | None:
        """What a row of a table without static columns shows; None: no row. Raises DecodeError."""
        values = self._values(state[0], now)
        return None if values is None else [*self._keys(row_key[0], state[1]), *values, *self._name(row_key)]

    def partition(
        self, key: bytes, static: RowState | None, rows: Iterable[tuple[bytes, ClusteredState]], now: int | None
    ) -> dict[RowKey, list[object]]:
        """All rows that a partition shows, by their keys; one without rows has its static columns.

        Raises DecodeError.
        """
        statics = None if static is None else self._static.values(static, None, now)
        shared = [None] * len(self._static.columns) if statics is None else statics
        visible: dict[RowKey, list[object]] = {}
        for clustering, (state, values) in rows:
            regular = self._values(state, now)
            if regular is not None:
                row_key = key, clustering
                visible[row_key] = [*self._keys(key, values), *shared, *regular, *self._name(row_key)]
        if not visible and statics is not None:
            no_clustering = [None] * len(self.table.clustering)
            empty = [None] * len(self._regular.columns)
            visible[key, STATIC] = [*self._keys(key, no_clustering), *shared, *empty, *self._name((key, STATIC))]
        return visible

    def _values(self, state: RowState, now: int | None) -> list[Any] | None:
        values = self._regular.values(state, None, now)
        return values if values is None or self.shown_rows is None or self.shown_rows.shows(values) else None

    def arrow(self, rows: Sequence[Sequence[object]]) -> Any:
        """The RecordBatch of these rows, in `schema`."""
        batch = self._arrow(rows)
        if not all(map(sayable, batch.columns)):
            types: list[CqlType | None] = [column.type for column in self._columns]
            types += [None] * len(_HIDDEN)
            batch = self._arrow(
                [[v if of is None else nearest(of, v) for of, v in zip(types, row, strict=True)] for row in rows]
            )
        return conform(batch, self.schema)

    def plain_arrow(self, plain: FastRows, now: int | None) -> list[Any]:
        """The RecordBatches of what these rows show, in `schema`. Raises DecodeError."""
        columns, batches = plain.visible, list[Any]()
        if not columns.rows:
            return batches
        arrays, odd = [], None
        for column, field in zip((*columns.keys, *columns.columns), self._plain, strict=False):
            array, inexact = column_array(column, field.type, columns.rows)
            arrays.append(array)
            odd = either(odd, inexact)
        keys, clusterings = [key for key, _ in columns.row_keys], [clustering for _, clustering in columns.row_keys]
        buckets = [plain.buckets[index] for index in plain.places]
        arrays += [pa.array(keys, pa.binary()), pa.array(clusterings, pa.binary()), pa.array(buckets, pa.int32())]
        arrays = [relabelled(array, field.type) for array, field in zip(arrays, self.schema, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if odd is None:
            return [batch]
        rows = [self.row(columns.row_keys[row], plain.state(row), now) for row in np.flatnonzero(odd).tolist()]
        return [batch.filter(pa.array(~odd)), self.arrow([row for row in rows if row is not None])]

    def _arrow(self, rows: Sequence[Sequence[object]]) -> Any:
        renamed = [renaming(column.type, True) for column in self._columns]
        arrays = []
        for index, field in enumerate(self._plain):
            rename = renamed[index] if index < len(renamed) else None
            values = [row[index] for row in rows]
            if rename is not None:
                values = [None if value is None else rename(value) for value in values]
            arrays.append(pa.array(values, type=field.type))
        return relabelled_batch(pa.RecordBatch.from_arrays(arrays, schema=self._plain), self._labels)

    def _keys(self, key: bytes, clustering: Clustering) -> list[object]:
        parts = (*split_key(self._key_types, key), *clustering)
        return [
            None if octets is None else decode(octets) for decode, octets in zip(self._decoders, parts, strict=True)
        ]

    def _name(self, row_key: RowKey) -> tuple[bytes, bytes, int]:
        return (*row_key, bucket_of(row_key[0], self._buckets))


@dataclass(frozen=True, slots=True)
class VisibleChanges:
    """What a merge puts into the table that users read, record batches, and takes away; `new`: nothing of it is there.

    That is said of the state's rows too.
    """

    rows: Sequence[Any]
    hidden: Collection[RowKey]
    new: bool


def visible_changes(
    renderer: LakeRowRenderer, fast: FastRows, result: MergeResult[list[object]], stored: Sequence[StoredRows], now: int
) -> VisibleChanges:
    """Raises DecodeError as rendering does."""
    rows = renderer.plain_arrow(fast, now)
    if result.visible:
        rows.append(renderer.arrow(list(result.visible.values())))
    # What has no state is not shown: the same batch says both.
    hidden = {
        row_key
        for row_key in (*fast.hidden, *result.hidden)
        if any(row_key in stored_rows.at for stored_rows in stored)
    }
    stored_keys = [(row[0], row[1]) for row, _ in result.stored]
    new = not hidden
    for stored_rows in stored:
        put = chain(zip(fast.keys, fast.clusterings, strict=True), stored_keys, result.removed, result.visible)
        new = new and stored_rows.at.keys().isdisjoint(put)
    return VisibleChanges(rows, hidden, new)


def rows_of(
    renderer: LakeRowRenderer, partitions: Mapping[bytes, StoredPartition], now: int
) -> dict[RowKey, list[object]]:
    """What these partitions show."""
    rows: dict[RowKey, list[object]] = {}
    for key, partition in partitions.items():
        static = None if partition.static is None else partition.static.state
        states = [
            (clustering, (decode_stored(*row.stored).state, row.written_as))
            for clustering, row in partition.rows.items()
        ]
        rows.update(renderer.partition(key, static, states, now))
    return rows
