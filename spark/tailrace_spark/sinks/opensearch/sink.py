"""Indexes of OpenSearch or Elasticsearch that follow the source: what searches see is what SELECT returns.

The rule is the SQL sink's (docs/contracts.md section 6): what was written and came a merge horizon ago. How far is
noted first, in the table's own document. So a writer that merges by its former entry finds that out, as does one that
was given a document that is gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from tailrace_schemas.change import Deletion
from tailrace_schemas.clustering import clustering_key
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered, MicroBatch
from tailrace_spark.merge.batch_changes import BatchChanges
from tailrace_spark.merge.condition import RowFilters
from tailrace_spark.merge.partition import Clustering, StoredRow
from tailrace_spark.merge.stored_row import ROW, STATIC, HeadRow, RowKey, decode_stored, purge_stored
from tailrace_spark.merge.table_record import define, newest_definition, purge, split, truncate
from tailrace_spark.rowstate.codec import encode_state
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.opensearch.bulk import Op, StoredDocument
from tailrace_spark.sinks.opensearch.client import SearchClient
from tailrace_spark.sinks.opensearch.documents import OWN, Document, Documents, digest, head_id
from tailrace_spark.sinks.opensearch.index import Indexes, StaleError, TableEntry, TableIndex, widens
from tailrace_spark.sinks.opensearch.merge import DocumentMerge
from tailrace_spark.sinks.opensearch.pieces import IndexMerge, OpensearchWriter, PieceWriter, shown_documents
from tailrace_spark.sinks.opensearch.settings import OpensearchSinkSettings
from tailrace_spark.sinks.opensearch.state import (
    KIND_HEAD,
    KIND_ROW,
    PartitionDocument,
    decode_head,
    decode_row,
    head_op,
    row_deletes,
    row_op,
)
from tailrace_spark.sinks.protocol import (
    BatchWrite,
    Capabilities,
    Definitions,
    Follows,
    Needed,
    follows_all,
    here,
    nothing_needed,
)
from tailrace_spark.sinks.table_faults import is_of_table, reason_of, shown_in_sink

log = logging.getLogger("tailrace_spark")

_PURGED_AT_ONCE: Final = 2_000  # documents of a table at each sweep
ROWS: Final[dict[str, Any]] = {"terms": {f"{OWN}.kind": [KIND_ROW, KIND_HEAD]}}
"""All documents but the table's own."""
_MICROS: Final = 1_000_000
_HEADS: Final = "#partition-"


class OpensearchSink:
    """Follows source tables; see `Sink` and `SweepingSink` for the promises.

    Each document is written by itself. Of a batch some are done and others not when it fails: it is then written again,
    and every row is as if written once.
    """

    def __init__(
        self,
        client: SearchClient,
        settings: OpensearchSinkSettings,
        *,
        ring_delay: float = 0.0,
        clock: Callable[[], float] = time.time,
        letters: Letters = LOGGED,
    ) -> None:
        """`ring_delay`: see SqlSink. `clock` tells the seconds since the epoch by which what expires is gone."""
        self._client = client
        self._settings = settings
        self._ring_delay = ring_delay
        self._clock = clock
        self._swept = 0.0
        self._filters: RowFilters = ()
        self._follows: Follows = follows_all
        self._indexes = Indexes(client, settings)
        self._letters = letters
        self._pieces = PieceWriter(self._indexes, letters, self._follow)
        self._again = PieceWriter(self._indexes, letters, self._follow_beside)

    def reach(self) -> None:
        """See that the cluster answers. Raises ServiceError."""
        self._client.reach()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(sweeping=self, following=self, filtering=self, executors=True)

    def follow(self, follows: Follows) -> None:
        """As FollowingSink says."""
        self._follows = follows

    def filter_rows(self, filters: RowFilters) -> None:
        """As RowFilteringSink says."""
        self._filters = filters

    def batch_write(self, batch: MicroBatch, needed: Needed = nothing_needed) -> BatchWrite:
        """As Sink says. What executors still write is merged with what is written meanwhile.

        A truncation fences them: see TableIndex.fence.
        """
        if batch.here:
            return here((self._again if batch.again else self._pieces).write)
        return BatchWrite(self._writer(needed()))

    def _writer(self, definitions: Definitions) -> OpensearchWriter:
        """Indexes are made and widened here."""
        refused: dict[UUID, str] = {}
        for announced, table in definitions:
            self._indexes.forget(table.id)  # executors do not see what it needs: somebody may have removed it
            try:
                self._prepare(table, announced)
            except BaseException as error:
                if not is_of_table(error):
                    raise
                refused[table.id] = reason_of(error)
                self._indexes.forget(table.id)
            else:
                self._pieces.truncations.require_none(table)
        now, filters, untruncated = int(self._clock()), self._filters, self._indexes.untruncated
        cluster = self._client.cluster
        return OpensearchWriter(cluster, self._ring_delay, refused, now, filters, untruncated, self._letters)

    def sweep(self) -> int:
        """Show again what has expired; how many rows that changed.

        It is looked for every `sweep_seconds`.
        """
        if self._clock() < self._swept + self._settings.sweep_seconds:
            return 0
        self._swept = self._clock()
        now, swept = int(self._clock()), 0
        try:
            for index in list(self._indexes.all()):
                if self._follows(index.entry.definition):
                    swept += self._sweep_index(index, now)
        except StaleError:
            self._indexes.forget()
        except BaseException:
            self._indexes.forget()
            raise
        return swept

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    def _follow(self, changes: Sequence[Delivered], refused: list[DeadLetter]) -> int:
        table, announced = newest_definition(changes)
        index = self._index(table, announced)
        now = int(self._clock())
        if index.entry.erased is not None:
            index.drain()  # whoever began that may have died while the index took no writes
        entry, truncated = truncate(index.entry, changes, self._ring_delay)
        changes, late = split(truncated.left, entry.purged_to)
        refused += late
        if not changes and entry.truncations == index.entry.truncations and index.entry.erased is None:
            return 0
        if truncated.erased is not None:
            index.fence()
        index = self._noted(index, define(entry, table, announced).with_erased(truncated.erased))
        merge = IndexMerge(self._client, self._settings, index, now, self._filters)
        erased = self._erase(index, merge.documents, now)
        return erased + merge.run(changes, refused)

    def _follow_beside(self, changes: Sequence[Delivered], refused: list[DeadLetter]) -> int:
        """As `_follow`, beside a stream: to rebuild an index is the stream's, so that no two do it at once."""
        table, announced = newest_definition(changes)
        index = self._index(table, announced)
        if _is_left(index.entry, define(index.entry, table, announced)):
            raise ServiceError(
                f"{table}: its index is to be rebuilt, which its stream does with the table's next change: run this "
                "again behind it"
            )
        return self._follow(changes, refused)

    def _index(self, table: Table, announced: int) -> TableIndex:
        """The index of a table, perhaps a new one; nothing is made or changed where the filters do not fit."""
        index = self._indexes.of(table)
        if self._filters:
            shown_in_sink(self._filters, table if index is None else define(index.entry, table, announced).definition)
        return index or self._indexes.make(table, announced)

    def _prepare(self, table: Table, announced: int) -> None:
        """Have a table's index as this definition needs it, without what a truncation took."""
        index = self._index(table, announced)
        if index.entry.erased is not None:
            index.drain()
        index = self._noted(index, define(index.entry, table, announced))
        try:
            self._erase(index, shown_documents(index.entry.definition, self._filters), int(self._clock()))
        except StaleError as error:
            raise ServiceError(f"{table}: another writer changes its index; the batch is planned again") from error

    def _noted(self, index: TableIndex, entry: TableEntry) -> TableIndex:
        """The index that has all columns of an entry's definition, with the entry kept in it."""
        former = index.entry
        if _is_left(former, entry):
            return self._rebuilt(index, replace(entry, leaving=False))
        if entry == former and index.version is not None:
            return index
        documents = shown_documents(entry.definition, self._filters)
        if entry.definition != former.definition or index.version is None:
            index.widen(documents)
        index.note(entry)
        return index

    def _rebuilt(self, index: TableIndex, entry: TableEntry) -> TableIndex:
        """The rebuilt index, as an entry's definition shows it."""
        documents = shown_documents(entry.definition, self._filters)
        # A replay writes beside. What it has written by then is copied; of what it is about to write it finds, by the
        # record, that it may be behind the copy.
        # After a crash here the record still says so, and the next writer restarts the rebuild.
        index.note(replace(index.entry, leaving=True))
        new = self._indexes.successor(index, documents)
        _Copy(self._client, index, new, documents, int(self._clock())).run()
        new.note(entry)
        self._indexes.switch(index, new)
        return new

    def _erase(self, index: TableIndex, documents: Documents, now: int) -> int:
        """Erase what truncations took and is there yet; how many rows that changed.

        It may be what a crash left: nothing was merged since.
        """
        if index.entry.erased is None:
            return 0
        index.drain()
        changed = self._look_at(index, documents, ROWS, now, erased=index.entry.erased)
        index.note(replace(index.entry, erased=None))
        return changed

    def _sweep_index(self, index: TableIndex, now: int) -> int:
        try:
            return self._sweep(index, now)
        except StaleError:
            raise
        except BaseException as error:
            if not is_of_table(error):
                raise
            log.warning("%s: could not remove expired rows; will retry: %s", index.alias, reason_of(error))
            return 0

    def _sweep(self, index: TableIndex, now: int) -> int:
        documents = shown_documents(index.entry.definition, self._filters)
        swept = self._erase(index, documents, now)
        due = {"range": {f"{OWN}.expires": {"lte": now}}}
        swept += self._look_at(index, documents, due, now)
        if self._settings.merge_horizon_seconds:
            self._purge(index, now)
        return swept

    def _purge(self, index: TableIndex, now: int) -> None:
        """Forget tombstones; `_look_at` has refreshed the index."""
        until = now - self._settings.merge_horizon_seconds
        purged = forget(self._client, index, until, now, _PURGED_AT_ONCE)
        if purged:
            log.debug("%s: %d documents purged", index.alias, purged)

    def _look_at(
        self,
        index: TableIndex,
        documents: Documents,
        query: dict[str, Any],
        now: int,
        *,
        erased: Deletion | None = None,
    ) -> int:
        """Merge what a query finds with nothing: for what has expired, or is covered by now; how many rows changed."""
        self._client.refresh(index.index)
        changed = 0
        for page in self._client.search(index.index, query):
            rows: dict[RowKey, Clustering] = {}
            for document in page:
                if document.id.startswith("#partition-"):
                    rows[decode_head(document.state)[0], STATIC] = ()
                else:
                    key, row = decode_row(document.state)
                    rows[key, ROW + clustering_key(documents.table, row.written_as)] = row.written_as
            merge = DocumentMerge(self._client, index, documents, now, erased=erased)
            changed += len(merge.run(BatchChanges(), rows).rows)
        return changed


def _is_left(former: TableEntry, entry: TableEntry) -> bool:
    """Whether an index is to be rebuilt for what is known now, or somebody began that."""
    return former.leaving or not widens(former.definition, entry.definition)


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
    row_key = key, ROW + clustering_key(table, row.written_as)
    deletes = row_deletes(remaining, now)
    return row_op(document.id, document.version, row_key, remaining, document.source or None, deletes), written


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
    return head_op(document.version, key, remaining, document.source or None, now), newest


class _Copy:
    """Puts every row and partition of `old` into `new`, as `documents` show it. Raises ServiceError, DecodeError.

    Of partitions with static columns all rows are made together, so they must fit into memory.
    """

    def __init__(self, client: SearchClient, old: TableIndex, new: TableIndex, documents: Documents, now: int) -> None:
        self._client = client
        self._old = old
        self._new = new
        self._documents = documents
        self._now = now

    def run(self) -> None:
        self._client.refresh(self._old.index)
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
        yield head_op(None, key, head, alone, self._now, unchecked=True)

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
        identity = self._documents.id_of(row_key, row.written_as)
        return row_op(identity, None, row_key, row, visible, row_deletes(row, self._now), unchecked=True)

    def _place(self, row: StoredRow) -> bytes:
        return ROW + clustering_key(self._documents.table, row.written_as)

    def _put(self, ops: Iterator[Op]) -> None:
        written = self._client.bulk(self._new.write_alias, list(ops))
        if written.refused:
            [(identity, why), *_] = written.refused.items()
            raise ServiceError(f"{self._new.index}: the document {identity} is refused: {why}")
