"""The records of a task's pages: by plans where a table's columns are all simple, else by way of changes. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from tailrace_schemas.avro import Encoder
from tailrace_schemas.change import Change, Op, record_times
from tailrace_schemas.table import Table
from tailrace_spark.snapshot.changes import GRACE_MICROS, ReadChanges
from tailrace_spark.snapshot.page_records import PageRecords, Records, row_number, writes_pages_of
from tailrace_spark.snapshot.reading import Page
from tailrace_spark.snapshot.selection import Selected

CHANGE_SCHEMA: Final = pa.schema(
    [("op", pa.string()), ("token", pa.int64()), ("written", pa.int64()), ("digest", pa.binary()),
     ("key", pa.binary()), ("value", pa.binary())]
)  # fmt: skip
"""Of changes as messages: framed keys and values as in a table's topic, and what tells and orders them."""


class TaskRecords:
    """Makes records of one task's pages, which come in order. `selected` has all columns with their times.

    Raises UnsupportedError for a counter table, but with `counters` (`ReadChanges`).
    """

    def __init__(
        self, table: Table, selected: Sequence[Selected], encoder: Encoder, datacenter: str, *, counters: bool = False
    ) -> None:
        self._encoder = encoder
        self._changes = ReadChanges(table, selected, datacenter, counters=counters)
        self._pages: PageRecords | None = None
        if writes_pages_of(table):
            indices = {(item.column.name_bytes, str(item.kind)): index for index, item in enumerate(selected)}
            self._pages = PageRecords(table, encoder, indices, datacenter, GRACE_MICROS)

    def of(self, page: Page) -> Records:
        """The records of a page."""
        if self._pages is not None:
            return self._pages.records(page.parsed.data, page.requested_at)
        return records_of(self._changes.changes(page.columns, page.requested_at), self._encoder)


def records_of(changes: Iterable[Change], encoder: Encoder) -> Records:
    """The records of changes, in their order."""
    records = Records()
    for change in changes:
        written, ttl, expires = record_times(change)
        records.tokens.append(change.token)
        records.written.append(written)
        records.ttl.append(ttl)
        records.expires.append(expires)
        records.digests.append(change.digest)
        records.keys.append(encoder.key(change) or b"")
        records.values.append(encoder.value(change))
        records.numbers.append(row_number(change.key or b"", None if change.static else change.clustering or ()))
    return records


def messages(records: Records) -> Any:
    """The RecordBatch of records, by CHANGE_SCHEMA."""
    count = len(records.tokens)
    columns = ([Op.READ.value] * count, records.tokens, records.written, records.digests, records.keys, records.values)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, CHANGE_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=CHANGE_SCHEMA)
