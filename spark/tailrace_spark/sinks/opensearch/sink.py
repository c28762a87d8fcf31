"""Indexes of OpenSearch or Elasticsearch that follow the source: what searches see is what SELECT returns."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
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
from tailrace_spark.merge.partition import Clustering
from tailrace_spark.merge.stored_row import ROW, STATIC, RowKey
from tailrace_spark.merge.table_record import define, newest_definition, split, truncate
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.opensearch.client import SearchClient
from tailrace_spark.sinks.opensearch.documents import OWN, Documents
from tailrace_spark.sinks.opensearch.index import Indexes, StaleError, TableEntry, TableIndex, widens
from tailrace_spark.sinks.opensearch.merge import DocumentMerge
from tailrace_spark.sinks.opensearch.pieces import IndexMerge, OpensearchWriter, PieceWriter, shown_documents
from tailrace_spark.sinks.opensearch.settings import OpensearchSinkSettings
from tailrace_spark.sinks.opensearch.state import KIND_HEAD, KIND_ROW, decode_head, decode_row
from tailrace_spark.sinks.opensearch.upkeep import copy, forget
from tailrace_spark.sinks.protocol import BatchWrite, Capabilities, Definitions, Needed, here, nothing_needed
from tailrace_spark.sinks.table_faults import is_of_table, reason_of, shown_in_sink

log = logging.getLogger("tailrace_spark")

_PURGED_AT_ONCE: Final = 2_000  # documents of a table at each sweep
ROWS: Final[dict[str, Any]] = {"terms": {f"{OWN}.kind": [KIND_ROW, KIND_HEAD]}}
"""All documents but the table's own."""


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
        self._indexes = Indexes(client, settings)
        self._letters = letters
        self._pieces = PieceWriter(self._indexes, letters, self._follow)

    def reach(self) -> None:
        """See that the cluster answers. Raises ServiceError."""
        self._client.reach()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(sweeping=self, filtering=self, executors=True)

    def filter_rows(self, filters: RowFilters) -> None:
        """As RowFilteringSink says."""
        self._filters = filters

    def batch_write(self, batch: MicroBatch, needed: Needed = nothing_needed) -> BatchWrite:
        """As Sink says. What executors still write is merged with what is written meanwhile.

        A truncation fences them: see TableIndex.fence.
        """
        return here(self._pieces.write) if batch.here else BatchWrite(self._writer(needed()))

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

    def _index(self, table: Table, announced: int) -> TableIndex:
        """The index of a table, perhaps a new one; nothing is made or changed where the filters do not fit."""
        index = self._indexes.of(table)
        if self._filters:
            shown_in_sink(self._filters, table if index is None else define(index.entry, table, announced).definition)
        return index or self._indexes.make(table, announced)

    def _documents(self, definition: Table) -> Documents:
        return shown_documents(definition, self._filters)

    def _prepare(self, table: Table, announced: int) -> None:
        """Have a table's index as this definition needs it, without what a truncation took."""
        index = self._index(table, announced)
        if index.entry.erased is not None:
            index.drain()
        index = self._noted(index, define(index.entry, table, announced))
        try:
            self._erase(index, self._documents(index.entry.definition), int(self._clock()))
        except StaleError as error:
            raise ServiceError(f"{table}: another writer changes its index; the batch is planned again") from error

    def _noted(self, index: TableIndex, entry: TableEntry) -> TableIndex:
        """The index that has all columns of an entry's definition, with the entry kept in it."""
        former = index.entry
        if entry == former and index.version is not None:
            return index
        documents = self._documents(entry.definition)
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
        documents = self._documents(index.entry.definition)
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
