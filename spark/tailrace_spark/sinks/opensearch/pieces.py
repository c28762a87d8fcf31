"""Merges pieces into indexes that are as their changes need them: what the driver and executors do alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tailrace_schemas.clustering import clustering_key
from tailrace_schemas.errors import DecodeError, ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.batch.coalesce import coalesced
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, Summary
from tailrace_spark.merge.batch_changes import BatchChanges, gather
from tailrace_spark.merge.by_table import group_by_table
from tailrace_spark.merge.partition import mergeable
from tailrace_spark.merge.row_filter import RowFilters
from tailrace_spark.merge.state_keys import ROW, STATIC
from tailrace_spark.merge.stored_row import RowKey
from tailrace_spark.sinks.letters import Letters
from tailrace_spark.sinks.opensearch.client import SearchClient
from tailrace_spark.sinks.opensearch.documents import Documents
from tailrace_spark.sinks.opensearch.groups import merge_groups
from tailrace_spark.sinks.opensearch.index import Indexes, StaleError, TableIndex
from tailrace_spark.sinks.opensearch.merge import MergeOutcome
from tailrace_spark.sinks.opensearch.settings import OpensearchSinkSettings
from tailrace_spark.sinks.shown_rows import shown_in_sink
from tailrace_spark.sinks.table_faults import written_by_table

Prepare = Callable[[Sequence[Delivered]], object]
"""Looks at changes of one table before any of a piece is written. May raise HereOnlyError."""
Follow = Callable[[Sequence[Delivered], list[DeadLetter]], int]
"""Takes in changes of one table, and adds those that it sets aside; how many rows changed. May raise StaleError."""

_TRIES: Final = 10


class PieceWriter:
    """Writes pieces table by table. What is one table's fault is set aside, and the other tables go on."""

    def __init__(self, indexes: Indexes, letters: Letters, follow: Follow, prepare: Prepare | None = None) -> None:
        self._indexes = indexes
        self._letters = letters
        self._follow = follow
        self._prepare = prepare

    def write(self, pieces: Iterable[Piece]) -> Summary:
        """Take pieces in. Where that fails, what was known of the indexes is asked for again."""
        try:
            return sum(map(self._piece, coalesced(pieces)), Summary())
        except BaseException:
            self._indexes.forget()
            raise

    def _piece(self, piece: Piece) -> Summary:
        if self._prepare is not None:
            for changes in group_by_table(piece.changes).values():
                self._prepare(changes)
        return written_by_table([piece], self._letters, self._table)

    def _table(self, changes: Sequence[Delivered], refused: list[DeadLetter]) -> int:
        for _ in range(_TRIES):
            try:
                return self._follow(changes, refused)
            except BaseException as error:
                self._indexes.forget(changes[0].change.table.id)
                if not isinstance(error, StaleError):
                    raise
                refused.clear()
        raise ServiceError(f"{changes[0].change.table}: another writer changes its index again and again")


class IndexMerge:
    """Merges changes into one table's index, by the definition that its record has; `at` is now, in seconds."""

    def __init__(
        self,
        client: SearchClient,
        settings: OpensearchSinkSettings,
        index: TableIndex,
        now: int,
        filters: RowFilters = (),
    ) -> None:
        """Searches find the rows that the filters leave. Raises TableRefusedError where these do not fit the table."""
        self.documents: Final = shown_documents(index.entry.definition, filters)
        self._client = client
        self._settings = settings
        self._index = index
        self._now = now

    def run(self, changes: Sequence[Delivered], refused: list[DeadLetter]) -> int:
        """Merge them; how many rows changed. What cannot be rendered or is refused is added to `refused`.

        Raises StaleError where another writer changed the table's record.
        """
        try:
            outcome = self._merge(gather(changes))
        except DecodeError:
            changes = mergeable(changes, self.documents, refused)
            outcome = self._merge(gather(changes))
        refused += _refused(changes, outcome)
        return len(outcome.rows)

    def _merge(self, batch: BatchChanges) -> MergeOutcome:
        rows = -(-self._settings.bulk_documents // 2)  # a group's rows and partitions are then read by one request
        at_once = self._settings.bulk_requests
        return merge_groups(self._client, self._index, self.documents, self._now, batch, size=rows, at_once=at_once)


def shown_documents(table: Table, filters: RowFilters) -> Documents:
    """The documents of a table whose rows are filtered. Raises TableRefusedError where the filters do not fit it."""
    return Documents(table, shown_in_sink(filters, table))


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


def _row_key(delivered: Delivered) -> RowKey:
    change = delivered.change
    key = change.key or b""
    if change.static or change.clustering is None:
        return key, STATIC
    return key, ROW + clustering_key(change.table, change.clustering)
