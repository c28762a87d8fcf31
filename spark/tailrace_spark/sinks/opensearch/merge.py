"""Merges changes into the documents of one table: read, merged, and written back where nobody else wrote meanwhile.

Of a row one document has what is shown and the state that later merges need: a write changes both or neither. What is
deleted in a partition beside its rows' own deletions, and its static row, stand in a document of the partition. Where
these change it is written first, as pending, so that whoever writes a row of the partition from then on sees it. Then
come the stored rows, and last it is settled. What a crash leaves pending, the next write of the partition completes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, NoReturn

from tailrace_schemas.change import Deletion
from tailrace_schemas.clustering import clustering_key
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.merge.batch_changes import BatchChanges, RowChanges
from tailrace_spark.merge.erasure import erase_partitions
from tailrace_spark.merge.partition import (
    Clustering,
    MergedHead,
    MergeResult,
    PartitionMerge,
    StoredPartition,
    StoredRow,
)
from tailrace_spark.merge.stored_row import ROW, STATIC, RowKey, StateTableRow
from tailrace_spark.rowstate.deletions import NOTHING_DELETED
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.sinks.opensearch.bulk import BulkResult, Op, StoredDocument
from tailrace_spark.sinks.opensearch.client import SearchClient
from tailrace_spark.sinks.opensearch.documents import OWN, TABLE_ID, Document, Documents, digest
from tailrace_spark.sinks.opensearch.index import StaleError, TableIndex
from tailrace_spark.sinks.opensearch.state import (
    KIND_ROW,
    PartitionDocument,
    StoredDocuments,
    decode_head,
    decode_row,
    head_op,
    ordered,
    row_deletes,
    row_op,
)

_TRIES: Final = 50
_TERMS: Final = 500  # clauses of one query


@dataclass(slots=True)
class MergeOutcome:
    """What became of changes: rows whose state changed, and those that the store refused, with why."""

    rows: set[RowKey] = field(default_factory=set)
    refused: dict[RowKey, str] = field(default_factory=dict)


class DocumentMerge:
    """Merges into one table's index, by one definition; `at` is now, in seconds since the epoch."""

    def __init__(
        self,
        client: SearchClient,
        index: TableIndex,
        documents: Documents,
        now: int,
        *,
        erased: Deletion | None = None,
    ) -> None:
        """`erased`: what a truncation takes of the rows that are stored."""
        self._client = client
        self._index = index
        self._documents = documents
        self._table = documents.table
        self._now = now
        self._erased = erased
        self._headed = bool(self._table.clustering)
        self._outcome = MergeOutcome()
        self._created: list[Op] = []

    def run(self, batch: BatchChanges, rows: Mapping[RowKey, Clustering] | None = None) -> MergeOutcome:
        """Merge what was gathered; `rows` are looked at too, under STATIC a partition.

        Raises StaleError where another writer changed the table's entry, ServiceError, and DecodeError for what
        cannot be rendered. Then it may be partly done, and is to be done again.
        """
        clusterings = dict(rows or {})
        if not self._headed:
            batch = _without_heads(batch, self._table)
        for _ in range(_TRIES):
            lost = self._once(batch, clusterings)
            if not lost:
                return self._outcome
            batch = _within(batch, lost)
            clusterings = {row_key: clustering for row_key, clustering in clusterings.items() if row_key[0] in lost}
        raise ServiceError(f"{self._index.index}: other writers change the same documents again and again")

    def _once(self, batch: BatchChanges, clusterings: Mapping[RowKey, Clustering]) -> set[bytes]:
        """Do it all once; the keys of partitions in which another writer came first."""
        read = self._read(batch, clusterings)
        heads, changed = self._merge_heads(read, batch)
        lost = self._announce(read, changed)
        reread = {key for key, head in read.heads.items() if head.pending}.union(changed) - lost
        keys = {*batch.deletions, *batch.statics, *(key for key, _ in (*batch.rows, *clusterings))} - lost
        loaded = keys if self._documents.whole_partitions else reread
        if loaded:
            self._load(read, loaded, {} if self._documents.whole_partitions else _bounds(batch, read, reread))
        if lost:
            batch, heads = _within(batch, keys), {key: head for key, head in heads.items() if key in keys}
        stored = {key: rows for key, rows in read.rows.items() if key not in lost}
        merged = self._merge_rows(heads, stored, batch, loaded)
        wrote = self._write_rows(read, stored, merged, lost)
        settled = self._settle(read, changed, merged, keys - lost, lost)
        if wrote:
            self._look_back(read, keys - lost - settled, lost)
        return lost

    def _read(self, batch: BatchChanges, requested: Mapping[RowKey, Clustering]) -> StoredDocuments:
        read = StoredDocuments()
        clusterings = {**requested, **{row_key: changes.clustering for row_key, changes in batch.rows.items()}}
        keys = {*batch.deletions, *batch.statics, *(key for key, _ in clusterings)}
        heads = {read.head_id(key): key for key in keys} if self._headed else {}
        read.ids = {
            row_key: self._documents.id_of(row_key, clustering)
            for row_key, clustering in clusterings.items()
            if row_key[1] >= ROW
        }
        # The table's last: who forgets deletions notes that there before it takes them away.
        ids = [*heads, *read.ids.values(), TABLE_ID]
        read.found = self._client.documents(self._index.index, ids, source=self._documents.whole_partitions)
        if read.version(TABLE_ID) != self._index.version:
            raise StaleError
        for identity, key in heads.items():
            document = read.found.get(identity)
            if document is not None:
                read.heads[key] = decode_head(document.state)[1]
        for row_key, identity in read.ids.items():
            document = read.found.get(identity)
            if document is not None:
                read.rows.setdefault(row_key[0], {})[row_key[1]] = decode_row(document.state)[1]
        return read

    def _merge_heads(
        self, read: StoredDocuments, batch: BatchChanges
    ) -> tuple[dict[bytes, MergedHead], dict[bytes, PartitionDocument]]:
        """What stands above the rows after the batch, and the documents of partitions in which that is anything new."""
        if not self._headed:
            return {}, {}
        stored: Mapping[bytes, StoredPartition] = {
            key: StoredPartition(head.deletions, head.static, document.expires, {})
            for key, document in read.heads.items()
            for head in (document.head,)
        }
        erasing = MergeResult[Document]()
        if self._erased is not None:
            stored, erasing = erase_partitions(self._documents, stored, self._erased, self._now)
        heads, later = PartitionMerge[Document](self._documents, self._now).merge_heads(stored, batch)
        merged = erasing.then(later)
        changed: dict[bytes, PartitionDocument] = {}
        for row, _ in merged.stored:
            head = changed.get(row[0], read.head(row[0]))
            rows = {**head.rows, row[1]: (row[1], row[3], row[4], row[5])}
            changed[row[0]] = PartitionDocument(rows, False, row[6] if row[1] == STATIC else head.expires)
        for key, clustering in merged.removed:
            head = changed.get(key, read.head(key))
            rows = {state_key: head_row for state_key, head_row in head.rows.items() if state_key != clustering}
            changed[key] = PartitionDocument(rows, False, None if clustering == STATIC else head.expires)
        return heads, changed

    def _merge_rows(
        self,
        heads: Mapping[bytes, MergedHead],
        stored: Mapping[bytes, Mapping[bytes, StoredRow]],
        batch: BatchChanges,
        whole_partitions: Collection[bytes],
    ) -> MergeResult[Document]:
        merge = PartitionMerge[Document](self._documents, self._now)
        if self._erased is None:
            return merge.merge_rows(heads, stored, batch.rows, whole_partitions)
        partitions = {key: StoredPartition(NOTHING_DELETED, None, None, rows) for key, rows in stored.items()}
        remaining, erasing = erase_partitions(self._documents, partitions, self._erased, self._now)
        rows_left = {key: partition.rows for key, partition in remaining.items()}
        return erasing.then(merge.merge_rows(heads, rows_left, batch.rows, whole_partitions))

    def _announce(self, read: StoredDocuments, heads: Mapping[bytes, PartitionDocument]) -> set[bytes]:
        """Write changed heads as pending; the keys of those in which another writer came first."""
        ops = {}
        for key, head in heads.items():
            identity = read.head_id(key)
            document = read.found.get(identity)
            source = dict(document.source or {}) if document is not None else {}
            ops[identity] = key, self._head_op(read, key, replace(head, pending=True), source or None)
        written = self._put([op for _, op in ops.values()])
        for identity, version in written.done.items():
            document = read.found.get(identity)
            read.found[identity] = StoredDocument(identity, version, b"", None if document is None else document.source)
        for identity, why in written.refused.items():
            self._outcome.refused[ops[identity][0], STATIC] = why
        return {ops[identity][0] for identity in written.conflicts}

    def _load(
        self, read: StoredDocuments, keys: Collection[bytes], bounds: Mapping[bytes, tuple[bytes, bytes | None]]
    ) -> None:
        """All rows of partitions; of those with bounds, the rows between."""
        self._client.refresh(self._index.index)
        digests = [read.digest(key) for key in keys if key not in bounds]
        queries: list[dict[str, object]] = [
            {"terms": {f"{OWN}.partition": digests[start : start + _TERMS]}} for start in range(0, len(digests), _TERMS)
        ]
        parts = [_between(key, *ends) for key, ends in bounds.items()]
        queries += [{"bool": {"should": parts[start : start + _TERMS]}} for start in range(0, len(parts), _TERMS)]
        for query in queries:
            of_rows = {"bool": {"filter": [{"term": {f"{OWN}.kind": KIND_ROW}}, query]}}
            pages = self._client.search(self._index.index, of_rows, source=self._documents.whole_partitions)
            for document in chain.from_iterable(pages):
                key, row = decode_row(document.state)
                state_key = ROW + clustering_key(self._table, row.written_as)
                read.found[document.id] = document
                read.ids[key, state_key] = document.id
                read.rows.setdefault(key, {})[state_key] = row

    def _write_rows(
        self,
        read: StoredDocuments,
        stored: Mapping[bytes, Mapping[bytes, StoredRow]],
        merged: MergeResult[Document],
        lost: set[bytes],
    ) -> bool:
        """Write rows; whether any was. Notes what became of them."""
        stored_rows = {
            (row[0], row[1]): _stored_row(row, written_as) for row, written_as in merged.stored if row[1] >= ROW
        }
        deletes = {(row[0], row[1]): row[7] for row, _ in merged.stored}
        removed = {row_key for row_key in merged.removed if row_key[1] >= ROW}
        ops: dict[str, Op] = {}
        named: dict[str, RowKey] = {}
        for row_key in sorted({*stored_rows, *removed, *merged.visible, *merged.hidden}):
            if row_key[1] < ROW:
                continue
            row = stored_rows.get(row_key)
            if row is None and row_key not in removed:
                row = stored.get(row_key[0], {}).get(row_key[1])
            identity = read.ids.get(row_key) or self._documents.id_of(row_key, () if row is None else row.written_as)
            visible = merged.visible.get(row_key)
            version = read.version(identity)
            if row is None or row_key in removed:
                if version is not None:
                    ops[identity] = Op(identity, version, None)
            elif row_key in stored_rows or not read.shows(identity, visible):
                later = deletes[row_key] if row_key in deletes else row_deletes(row, self._now)
                ops[identity] = row_op(
                    identity, version, row_key, row, visible, later, partition=read.digest(row_key[0])
                )
            named[identity] = row_key
        written = self._put(list(ops.values()), rows=True)
        lost |= {named[identity][0] for identity in written.conflicts}
        self._outcome.rows |= {
            named[index] for index in written.done if named[index] in stored_rows or named[index] in removed
        }
        self._outcome.refused |= {named[identity]: why for identity, why in written.refused.items()}
        return bool(ops)

    def _settle(
        self,
        read: StoredDocuments,
        heads: Mapping[bytes, PartitionDocument],
        merged: MergeResult[Document],
        keys: Set[bytes],
        lost: set[bytes],
    ) -> set[bytes]:
        """Write heads whose rows are done; their keys."""
        if not self._headed:
            return set()
        ops: dict[str, tuple[bytes, Op]] = {}
        # Without a document there is nothing to settle: what is shown of a static row has one.
        for key in sorted({*read.heads, *heads} & keys):
            head_document = read.head(key)
            visible = merged.visible.get((key, STATIC))
            identity = read.head_id(key)
            if key in heads or head_document.pending or not read.shows(identity, visible):
                head = replace(heads.get(key, head_document), pending=False)
                ops[identity] = key, self._head_op(read, key, head, visible)
        written = self._put([op for _, op in ops.values()])
        lost |= {ops[identity][0] for identity in written.conflicts}
        for identity, why in written.refused.items():
            self._outcome.refused[ops[identity][0], STATIC] = why
        self._outcome.rows |= {(key, STATIC) for key in heads if read.head_id(key) in written.done}
        return {key for key, _ in ops.values()}

    def _head_op(self, read: StoredDocuments, key: bytes, head: PartitionDocument, visible: Document | None) -> Op:
        identity = read.head_id(key)
        version = read.version(identity)
        if not head.rows and not head.pending:
            return Op(identity, version, None)
        return head_op(version, key, head, visible, self._now, partition=read.digest(key))

    def _put(self, ops: Sequence[Op], *, rows: bool = False) -> BulkResult:
        """Write documents; remember which rows are new. Raises StaleError after another writer's truncation."""
        written = self._client.bulk(self._index.write_alias, ops)
        if rows:
            self._created = [
                Op(op.id, written.done[op.id], None) for op in ops if op.version is None and op.id in written.done
            ]
        if written.unnamed:
            self._index.require_exists(next(iter(written.unnamed.values())))
            self._give_up()
        return written

    def _give_up(self) -> NoReturn:
        # Another writer may have truncated the table in between, and found none of the rows that are new: those of
        # changes that it took must go, and the others are merged again. Of a row that was there before it, either
        # write would have failed.
        self._client.remove(self._index.index, self._created)
        raise StaleError

    def _look_back(self, read: StoredDocuments, keys: Collection[bytes], lost: set[bytes]) -> None:
        """See that what the rows were merged by was still there when they were written."""
        heads = {read.head_id(key): key for key in keys} if self._headed else {}
        now = self._client.documents(self._index.index, [TABLE_ID, *heads])
        versions = {identity: document.version for identity, document in now.items()}
        if versions.get(TABLE_ID) != self._index.version:
            self._give_up()
        lost |= {key for identity, key in heads.items() if versions.get(identity) != read.version(identity)}


def _stored_row(row: StateTableRow, written_as: Clustering | None) -> StoredRow:
    return StoredRow((row[3], row[4], row[5]), tuple(written_as or ()), row[6])


def _within(batch: BatchChanges, keys: Collection[bytes]) -> BatchChanges:
    """What was gathered of some partitions."""
    return BatchChanges(
        {key: changes for key, changes in batch.deletions.items() if key in keys},
        {key: changes for key, changes in batch.statics.items() if key in keys},
        {row_key: changes for row_key, changes in batch.rows.items() if row_key[0] in keys},
    )


def _without_heads(batch: BatchChanges, table: Table) -> BatchChanges:
    """The same of a table whose partitions are one row each: their deletions are rows' own."""
    state_key = ROW + clustering_key(table, ())
    rows = dict(batch.rows)
    for key, partition in batch.deletions.items():
        state = RowState(deletion=partition.deletion)
        state.assign(partition.assignment)
        changes = rows.get((key, state_key))
        if changes is not None:
            state.absorb(changes.state)
        rows[key, state_key] = RowChanges((), None, state)
    return BatchChanges({}, {}, rows)


def _bounds(
    batch: BatchChanges, read: StoredDocuments, reread: Collection[bytes]
) -> dict[bytes, tuple[bytes, bytes | None]]:
    """Of partitions in which nothing but ranges is deleted now: between which clustering values that is."""
    bounds = {}
    for key in reread:
        deletions = batch.deletions.get(key)
        if deletions is None or deletions.deletion is not None or not deletions.ranges or read.head(key).pending:
            continue
        bounds[key] = deletions.ranges[0].start, deletions.ranges[-1].end
    return bounds


def _between(key: bytes, start: bytes, end: bytes | None) -> dict[str, object]:
    limits = {"gte": ordered(start)} if end is None else {"gte": ordered(start), "lte": ordered(end)}
    limited = [{"term": {f"{OWN}.partition": digest(key)}}, {"range": {f"{OWN}.clustering": limits}}]
    return {"bool": {"filter": limited}}
