"""Forgets tombstones in the documents of one table: those of deleted rows go, others lose what only deletes.

The rule is the SQL sink's (docs/contracts.md section 6): what was written and came a merge horizon ago. How far is
noted first, in the table's own document. So a writer that merges by its former entry finds that out, as does one that
was given a document that is gone.
"""

from __future__ import annotations

from typing import Final

from tailrace_schemas.clustering import clustering_key
from tailrace_schemas.table import Table
from tailrace_spark.merge.partition import StoredRow
from tailrace_spark.merge.partition_head import HeadRow
from tailrace_spark.merge.purge import purge_stored
from tailrace_spark.merge.state_keys import ROW, STATIC
from tailrace_spark.merge.table_record import purge
from tailrace_spark.rowstate.codec import encode_state
from tailrace_spark.sinks.opensearch.bulk import Op, StoredDocument
from tailrace_spark.sinks.opensearch.client import SearchClient
from tailrace_spark.sinks.opensearch.documents import OWN
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
