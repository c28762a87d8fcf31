"""Upkeep of one table's documents: tombstones forgotten, and all of them rebuilt in another index.

The rule is the SQL sink's (docs/contracts.md section 6): what was written and came a merge horizon ago. How far is
noted first, in the table's own document. So a writer that merges by its former entry finds that out, as does one that
was given a document that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tailrace_schemas.clustering import clustering_key
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.merge.partition import StoredRow
from tailrace_spark.merge.stored_row import ROW, STATIC, HeadRow, RowKey, decode_stored, purge_stored
from tailrace_spark.merge.table_record import purge
from tailrace_spark.rowstate.codec import encode_state
from tailrace_spark.sinks.opensearch.bulk import Op, StoredDocument
from tailrace_spark.sinks.opensearch.client import SearchClient
from tailrace_spark.sinks.opensearch.documents import OWN, Document, Documents, digest, head_id
from tailrace_spark.sinks.opensearch.index import TableIndex
from tailrace_spark.sinks.opensearch.state import (
    KIND_HEAD,
    KIND_ROW,
    PartitionDocument,
    decode_head,
    decode_row,
    encode_head,
    encode_row,
    head_deletes,
    own,
    row_deletes,
)

_MICROS: Final = 1_000_000
_HEADS: Final = "#partition-"


def forget(client: SearchClient, index: TableIndex, until: int, now: int, limit: int) -> int:
    """Forget what was written and came by `until`, seconds, in so many documents at most, and more of their page; how
    many.

    What another writer changes meanwhile is left for the next time. Raises ServiceError.
    """
    due = {"range": {f"{OWN}.deletes": {"lte": until}}}
    ops: list[Op] = []
    purged: list[int] = []
    for page in client.search(index.index, due, source=True):
        for document in page:
            op, written = forgotten(document, index.entry.definition, until * _MICROS, now)
            if written is not None:
                purged.append(written)
            if op is not None:
                ops.append(op)
        if len(ops) >= limit:
            break
    if purged:
        index.note(purge(index.entry, purged))
    return len(client.bulk(index.write_alias, ops).done) if ops else 0


def forgotten(document: StoredDocument, table: Table, horizon: int, now: int) -> tuple[Op | None, int | None]:
    """What becomes of a document, and the largest write time of what it loses; None: nothing.

    Up to `horizon`, in microseconds; `now` in seconds.
    """
    if document.id.startswith(_HEADS):
        return _head(document, horizon, now)
    key, row = decode_row(document.state)
    state, written = purge_stored(ROW, row.stored, horizon)
    if state.empty:
        return Op(document.id, document.version, None), written
    remaining = StoredRow((encode_state(state), *row.stored[1:]), row.written_as, state.next_expiry(after=now))
    fields = own(
        KIND_ROW, encode_row(key, remaining), visible=bool(document.source),
        row_key=(key, ROW + clustering_key(table, row.written_as)), expires=remaining.next_expiry,
        deletes=row_deletes(remaining, now),
    )  # fmt: skip
    return Op(document.id, document.version, {**(document.source or {}), OWN: fields}), written


def _head(document: StoredDocument, horizon: int, now: int) -> tuple[Op | None, int | None]:
    key, head = decode_head(document.state)
    if head.pending:  # its rows are yet to be brought to it
        return None, None
    rows: dict[bytes, HeadRow] = {}
    purged: list[int] = []
    expires = None
    for state_key, head_row in head.rows.items():
        state, written = purge_stored(state_key, head_row[1:], horizon)
        purged += () if written is None else (written,)
        if state_key == STATIC and not state.empty:
            rows[state_key] = state_key, encode_state(state), head_row[2], head_row[3]
            expires = state.next_expiry(after=now)
        elif state_key != STATIC and written is None:
            rows[state_key] = head_row
    newest = max(purged, default=None)
    if not rows:
        return Op(document.id, document.version, None), newest
    remaining = PartitionDocument(rows, False, expires)
    fields = own(
        KIND_HEAD, encode_head(key, remaining), visible=bool(document.source), row_key=(key, STATIC), expires=expires,
        deletes=head_deletes(remaining, now),
    )  # fmt: skip
    return Op(document.id, document.version, {**(document.source or {}), OWN: fields}), newest


def copy(client: SearchClient, old: TableIndex, new: TableIndex, documents: Documents, now: int) -> None:
    """Put every row and partition of `old` into `new`, as `documents` show it. Raises ServiceError, DecodeError.

    Of partitions with static columns all rows are made together, so they must fit into memory.
    """
    client.refresh(old.index)
    _Copy(client, old, new, documents, now).run()


class _Copy:
    def __init__(self, client: SearchClient, old: TableIndex, new: TableIndex, documents: Documents, now: int) -> None:
        self._client = client
        self._old = old
        self._new = new
        self._documents = documents
        self._now = now

    def run(self) -> None:
        of_heads = {"term": {f"{OWN}.kind": KIND_HEAD}}
        for page in self._client.search(self._old.index, of_heads):
            for document in page:
                key, head = decode_head(document.state)
                self._put(self._partition(key, head))
        of_rows = {"term": {f"{OWN}.kind": KIND_ROW}}
        for page in self._client.search(self._old.index, of_rows):
            self._put(self._rows(page))

    def _partition(self, key: bytes, head: PartitionDocument) -> Iterator[Op]:
        """A head, and where it has static columns the partition's rows."""
        visible: dict[RowKey, Document] = {}
        static = head.head.static
        if static is not None:
            rows: dict[bytes, StoredRow] = {}
            within = {
                "bool": {"filter": [{"term": {f"{OWN}.kind": KIND_ROW}}, {"term": {f"{OWN}.partition": digest(key)}}]}
            }
            for page in self._client.search(self._old.index, within):
                rows |= {self._place(row): row for _, row in (decode_row(document.state) for document in page)}
            states = [
                (clustering, (decode_stored(*row.stored).state, row.written_as)) for clustering, row in rows.items()
            ]
            visible = self._documents.partition(key, static.state, states, self._now)
            for clustering, row in rows.items():
                yield self._row((key, clustering), row, visible.get((key, clustering)))
        alone = visible.get((key, STATIC))
        encoded = encode_head(key, head)
        fields = own(
            KIND_HEAD, encoded, visible=alone is not None, row_key=(key, STATIC), expires=head.expires,
            deletes=head_deletes(head, self._now),
        )  # fmt: skip
        yield Op(head_id(digest(key)), None, {**(alone or {}), OWN: fields}, unchecked=True)

    def _rows(self, page: list[StoredDocument]) -> Iterator[Op]:
        """Rows of partitions without static columns."""
        decoded = [decode_row(document.state) for document in page]
        with_statics: set[bytes] = set()
        if self._documents.whole_partitions:
            heads = {head_id(digest(key)): key for key, _ in decoded}
            for identity, stored_row in self._client.documents(self._old.index, list(heads)).items():
                if decode_head(stored_row.state)[1].head.static is not None:
                    with_statics.add(heads[identity])
        for key, row in decoded:
            if key not in with_statics:
                row_key = key, self._place(row)
                visible = self._documents.partition(
                    key, None, [(row_key[1], (decode_stored(*row.stored).state, row.written_as))], self._now
                )
                yield self._row(row_key, row, visible.get(row_key))

    def _row(self, row_key: RowKey, row: StoredRow, visible: Document | None) -> Op:
        encoded = encode_row(row_key[0], row)
        fields = own(
            KIND_ROW, encoded, visible=visible is not None, row_key=row_key, expires=row.next_expiry,
            deletes=row_deletes(row, self._now),
        )  # fmt: skip
        identity = self._documents.id_of(row_key, row.written_as)
        return Op(identity, None, {**(visible or {}), OWN: fields}, unchecked=True)

    def _place(self, row: StoredRow) -> bytes:
        return ROW + clustering_key(self._documents.table, row.written_as)

    def _put(self, ops: Iterator[Op]) -> None:
        written = self._client.bulk(self._new.write_alias, list(ops))
        if written.refused:
            [(identity, why), *_] = written.refused.items()
            raise ServiceError(f"{self._new.index}: the document {identity} is refused: {why}")
