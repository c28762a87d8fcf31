"""Indexes of OpenSearch or Elasticsearch that follow the source: what searches see is what SELECT returns."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from tailrace_schemas.change import Deletion
from tailrace_schemas.cql.order import clustering_key
from tailrace_schemas.errors import DecodeError, ServiceError
from tailrace_spark.batch.coalesce import coalesced
from tailrace_spark.batch.dead_letters import accepted
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordId, Summary
from tailrace_spark.merge.batch_changes import BatchChanges, gather
from tailrace_spark.merge.by_table import group_by_table
from tailrace_spark.merge.definitions import newest_definition
from tailrace_spark.merge.partition import Clustering, mergeable
from tailrace_spark.merge.purge_horizon import split
from tailrace_spark.merge.state_keys import ROW, STATIC
from tailrace_spark.merge.stored_row import RowKey
from tailrace_spark.merge.table_record import define, truncate
from tailrace_spark.sinks.opensearch.client import SearchClient
from tailrace_spark.sinks.opensearch.dead_letters import OpensearchDeadLetters
from tailrace_spark.sinks.opensearch.documents import OWN, Documents
from tailrace_spark.sinks.opensearch.groups import merge_groups
from tailrace_spark.sinks.opensearch.index import Indexes, TableIndex, widens
from tailrace_spark.sinks.opensearch.merge import DocumentMerge, MergeOutcome, StaleError
from tailrace_spark.sinks.opensearch.purge import forget, have_field
from tailrace_spark.sinks.opensearch.reindex import copy
from tailrace_spark.sinks.opensearch.settings import OpensearchSinkSettings
from tailrace_spark.sinks.opensearch.state import KIND_HEAD, KIND_ROW, TableEntry, decode_head, decode_row
from tailrace_spark.sinks.protocol import Capabilities
from tailrace_spark.sinks.table_faults import is_of_table, reason_of, refusals_of
from tailrace_spark.sinks.table_faults import set_aside as refuse

log = logging.getLogger("tailrace_spark")

_TRIES: Final = 10
_PURGED_AT_ONCE: Final = 2_000  # documents of a table at each sweep
ROWS: Final[dict[str, Any]] = {"terms": {f"{OWN}.kind": [KIND_ROW, KIND_HEAD]}}
"""All documents but the table's own."""


class OpensearchSink:
    """Follows source tables; see `Sink` and `SweepingSink` for the promises.

    Each document is written by itself. Of a batch some are done and others not when it fails: it is then written again,
    and every row comes out as if once.
    """

    def __init__(
        self,
        client: SearchClient,
        settings: OpensearchSinkSettings,
        *,
        ring_delay: float = 0.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`ring_delay`: see SqlSink. `clock` tells the seconds since the epoch by which what expires is gone."""
        self._client = client
        self._settings = settings
        self._ring_delay = ring_delay
        self._clock = clock
        self._swept = 0.0
        self._indexes = Indexes(client, settings)
        self._purgeable: set[str] = set()
        self._letters = OpensearchDeadLetters(client, settings)

    def reach(self) -> None:
        """See that the cluster answers. Raises ServiceError."""
        self._client.reach()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(sweeping=self, dead_letters=self)

    def write(self, pieces: Iterable[Piece]) -> Summary:
        """Take in one micro-batch. Raises ServiceError when the cluster does not answer."""
        return self._write(pieces, [])

    def dead_letters(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        """As DeadLetterSink says."""
        return self._letters.list(after, limit)

    def replay(self, letters: Sequence[DeadLetter], pieces: Iterable[Piece]) -> Summary:
        """As DeadLetterSink says: the changes first, then the letters go; after a crash between they merge again."""
        set_aside: list[DeadLetter] = []
        summary = self._write(pieces, set_aside)
        self._letters.remove(accepted(letters, set_aside))
        return summary

    def _write(self, pieces: Iterable[Piece], set_aside: list[DeadLetter]) -> Summary:
        summary = Summary()
        try:
            for piece in coalesced(pieces):
                summary += self._piece(piece, set_aside)
        except BaseException:
            self._indexes.forget()
            self._letters.forget()
            raise
        return summary

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

    def _piece(self, piece: Piece, set_aside: list[DeadLetter]) -> Summary:
        letters = list(piece.dead_letters)
        summary = Summary()
        for changes in group_by_table(piece.changes).values():
            refused = list[DeadLetter]()
            try:
                rows = self._table(changes, refused)
            except BaseException as error:
                if not is_of_table(error):
                    raise
                self._indexes.forget(changes[0].change.table.id)
                summary += refuse(changes[0].change.table, changes, error, letters)
            else:
                summary += Summary(len(changes) - len(refused), rows, refused=refusals_of(changes, refused))
                letters += refused
        self._letters.put(letters)
        set_aside += letters
        return summary + Summary(dead_letters=len(letters))

    def _table(self, changes: Sequence[Delivered], refused: list[DeadLetter]) -> int:
        for _ in range(_TRIES):
            try:
                return self._follow(changes, refused)
            except StaleError:
                self._indexes.forget(changes[0].change.table.id)
                refused.clear()
        raise ServiceError(f"{changes[0].change.table}: another writer changes its index again and again")

    def _follow(self, changes: Sequence[Delivered], refused: list[DeadLetter]) -> int:
        table, announced = newest_definition(changes)
        index = self._indexes.of(table) or self._indexes.make(table, announced)
        now = int(self._clock())
        entry, truncated = truncate(index.entry, changes, self._ring_delay)
        changes, late = split(truncated.left, entry.purged_to)
        refused += late
        if not changes and entry.truncations == index.entry.truncations and index.entry.erased is None:
            return 0
        index = self._noted(index, define(entry, table, announced).with_erased(truncated.erased))
        documents = Documents(index.entry.definition)
        erased = self._erase(index, documents, now)
        try:
            outcome = self._merge(index, documents, now, gather(changes))
        except DecodeError:
            changes = mergeable(changes, documents, refused)
            outcome = self._merge(index, documents, now, gather(changes))
        refused += _refused(changes, outcome)
        return erased + len(outcome.rows)

    def _merge(self, index: TableIndex, documents: Documents, at: int, batch: BatchChanges) -> MergeOutcome:
        rows = -(-self._settings.bulk_documents // 2)  # a group's rows and partitions are then read by one request
        at_once = self._settings.bulk_requests
        return merge_groups(self._client, index, documents, at, batch, size=rows, at_once=at_once)

    def _noted(self, index: TableIndex, entry: TableEntry) -> TableIndex:
        """The index that has all columns of an entry's definition, with the entry kept in it."""
        former = index.entry
        if entry == former and index.version is not None:
            return index
        documents = Documents(entry.definition)
        if not widens(former.definition, entry.definition):
            new = self._indexes.successor(index, documents)
            copy(self._client, index, new, documents, int(self._clock()))
            new.note(entry)
            self._indexes.switch(index, new)
            return new
        if entry.definition != former.definition or index.version is None:
            index.widen(documents)
        index.note(entry)
        return index

    def _erase(self, index: TableIndex, documents: Documents, at: int) -> int:
        """Erase what truncations took and is there yet; how many rows that changed.

        It may be what a crash left: nothing was merged since.
        """
        if index.entry.erased is None:
            return 0
        changed = self._look_at(index, documents, ROWS, at, erased=index.entry.erased)
        index.note(replace(index.entry, erased=None))
        return changed

    def _sweep_index(self, index: TableIndex, at: int) -> int:
        try:
            return self._sweep(index, at)
        except StaleError:
            raise
        except BaseException as error:
            if not is_of_table(error):
                raise
            log.warning("%s: could not remove expired rows; will retry: %s", index.alias, reason_of(error))
            return 0

    def _sweep(self, index: TableIndex, at: int) -> int:
        documents = Documents(index.entry.definition)
        swept = self._erase(index, documents, at)
        due = {"range": {f"{OWN}.expires": {"lte": at}}}
        swept += self._look_at(index, documents, due, at)
        if self._settings.merge_horizon_seconds:
            self._purge(index, at)
        return swept

    def _purge(self, index: TableIndex, at: int) -> None:
        """Forget tombstones; `_look_at` has refreshed the index."""
        if index.index not in self._purgeable:
            have_field(self._client, index)
            self._purgeable.add(index.index)
        until = at - self._settings.merge_horizon_seconds
        purged = forget(self._client, index, until, at, _PURGED_AT_ONCE)
        if purged:
            log.debug("%s: %d documents purged", index.alias, purged)

    def _look_at(
        self, index: TableIndex, documents: Documents, query: dict[str, Any], at: int, *, erased: Deletion | None = None
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
            merge = DocumentMerge(self._client, index, documents, at, erased=erased)
            changed += len(merge.run(BatchChanges(), rows).rows)
        return changed


def _refused(changes: Iterable[Delivered], outcome: MergeOutcome) -> list[DeadLetter]:
    """The changes of rows whose documents the store refused."""
    if not outcome.refused:
        return []
    letters = []
    for delivered in changes:
        why = outcome.refused.get(_row_key(delivered))
        if why is not None:
            letters.append(DeadLetter(delivered.record_id, why, delivered.message))
    return letters


def _row_key(one: Delivered) -> RowKey:
    change = one.change
    key = change.key or b""
    if change.static or change.clustering is None:
        return key, STATIC
    return key, ROW + clustering_key(change.table, change.clustering)
