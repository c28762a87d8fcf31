"""A sink's side of a comparison: its rows, one pass over all of them each time."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tailrace_schemas.table import Table
from tailrace_schemas.tokens import token
from tailrace_spark.comparison.buckets import NO_ROWS, Buckets, Digest, with_rows
from tailrace_spark.comparison.rows import ComparedRow, RowDigests, row_digest
from tailrace_spark.comparison.source import shown_key
from tailrace_spark.merge.state_keys import STATIC
from tailrace_spark.merge.stored_row import RowKey
from tailrace_spark.rowstate.codec import newest
from tailrace_spark.sinks.protocol import ComparableSink, StoredVisible

_UNLIKE = b"shown otherwise than stored"


class TableTarget:
    """What a sink has of a table. Its methods raise ServiceError."""

    def __init__(self, sink: ComparableSink, table: Table) -> None:
        self.sink = sink
        self._table = table
        self._digests = RowDigests(table)

    def digests(self, buckets: Buckets, now: int) -> dict[int, Digest]:
        """The digests of the buckets that have rows, as they read at a time, in seconds since the epoch."""
        digests: dict[int, Digest] = {}
        for row, bucket in self._rows(buckets):
            columns = self._columns(row, now)
            if columns is not None:
                digests[bucket] = with_rows(digests.get(bucket, NO_ROWS), 1, row_digest(row.row_key, columns))
        return digests

    def rows(self, buckets: Buckets, numbers: Collection[int], now: int) -> dict[RowKey, ComparedRow]:
        """The rows of some buckets."""
        rows: dict[RowKey, ComparedRow] = {}
        for row, bucket in self._rows(buckets):
            if bucket in numbers and (columns := self._columns(row, now)) is not None:
                written = 0 if row.state is None else newest(row.state)
                rows[row.row_key] = ComparedRow(columns, written, self._shown(row))
        return rows

    def stored(self, keys: Collection[RowKey]) -> dict[RowKey, StoredVisible]:
        """What is stored of some rows."""
        return {row.row_key: row for row in self.sink.stored(self._table) if row.row_key in keys}

    def _rows(self, buckets: Buckets) -> Iterator[tuple[StoredVisible, int]]:
        last_key, bucket = None, None
        for row in self.sink.stored(self._table):
            if row.row_key[0] != last_key:
                last_key = row.row_key[0]
                bucket = buckets.of(token(last_key))
            if bucket is not None:
                yield row, bucket

    def _columns(self, row: StoredVisible, now: int) -> tuple[bytes | None, ...] | None:
        """As RowDigests says; of a row that readers see, or miss, against its state, what no source has."""
        columns = None if row.state is None else self._digests.columns(row.row_key, row.state, now)
        if (columns is not None) is row.visible:
            return columns
        if columns is None:
            # Its time is over, and the next sweep takes it away; or somebody else has put it there.
            return (_UNLIKE,) if row.state is None else None
        return None

    def _shown(self, row: StoredVisible) -> tuple[object, ...]:
        if row.row_key[1] == STATIC:
            return shown_key(self._table, row.row_key[0])
        clustering = [value if isinstance(value, int | float | str) else str(value) for value in row.clustering]
        return (*shown_key(self._table, row.row_key[0]), *clustering)
