"""Rebuilds a table's documents in another index, of the states in its present one: where columns go."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace_schemas.clustering import clustering_key
from tailrace_schemas.errors import ServiceError
from tailrace_spark.merge.partition import StoredRow
from tailrace_spark.merge.state_keys import ROW, STATIC
from tailrace_spark.merge.stored_row import RowKey, decode_stored
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
