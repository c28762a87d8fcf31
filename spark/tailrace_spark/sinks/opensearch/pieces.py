"""Merges pieces into indexes that are as their changes need them: what the driver and executors do alike.

While the server answers for one group, another is merged and rendered here. All rows of a partition are of one group,
which reads and writes them in the order that one merge does.

A document is written in place of the version that was read, or as new. So attempts beside each other and late ones lose
nothing. Merging what is merged already changes nothing. What is of a whole table is the driver's: indexes, fields,
a table's record, truncations, purging. Each merge reads the record before its rows and behind them, so
what this process knows of it may be stale. After a truncation the cluster refuses what writers of before still send:
see TableIndex.fence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID

from tailrace_schemas.clustering import clustering_key
from tailrace_schemas.errors import DecodeError, ServiceError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import CommitMessage, DeadLetter, Delivered, Piece, Summary
from tailrace_spark.batch.pieces import coalesced, one_copy
from tailrace_spark.merge.batch_changes import BatchChanges, gather, group_by_table
from tailrace_spark.merge.condition import RowFilters
from tailrace_spark.merge.partition import mergeable
from tailrace_spark.merge.stored_row import ROW, STATIC, RowKey
from tailrace_spark.merge.table_record import define, newest_definition, split, truncate
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.opensearch.client import SearchClient, SearchCluster
from tailrace_spark.sinks.opensearch.documents import Documents
from tailrace_spark.sinks.opensearch.index import Indexes, StaleError, TableIndex
from tailrace_spark.sinks.opensearch.merge import DocumentMerge, MergeOutcome
from tailrace_spark.sinks.opensearch.settings import OpensearchSinkSettings
from tailrace_spark.sinks.protocol import HereOnlyError
from tailrace_spark.sinks.table_faults import TableRefusedError, TruncationsAside, shown_in_sink, written_by_table
from tailrace_spark.sinks.worker_cache import WorkerCache

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
        self.truncations: Final = TruncationsAside()

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
        return written_by_table([piece], self._letters, self._table, self.truncations)

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
        """Merge groups of rows, `bulk_requests` at a time.

        Raises as `DocumentMerge.run` does, when no request is under way any more.
        """
        size = -(-self._settings.bulk_documents // 2)  # a group's rows and partitions are then read by one request
        at_once, documents = self._settings.bulk_requests, self.documents

        def merged(group: BatchChanges) -> MergeOutcome:
            return DocumentMerge(self._client, self._index, documents, self._now).run(group)

        if at_once == 1 or documents.whole_partitions or len(batch.rows) <= size:
            return merged(batch)
        together = {*batch.deletions, *batch.statics} if documents.table.clustering else set[bytes]()
        outcome = MergeOutcome()
        with ThreadPoolExecutor(at_once, thread_name_prefix="tailrace-search") as pool:
            under_way = [pool.submit(merged, group) for group in groups(batch, size, together)]
            try:
                for future in under_way:
                    done = future.result()
                    outcome.rows |= done.rows
                    outcome.refused |= done.refused
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)  # what has begun is waited for behind
                raise
        return outcome


def shown_documents(table: Table, filters: RowFilters) -> Documents:
    """The documents of a table whose rows are filtered. Raises TableRefusedError where the filters do not fit it."""
    return Documents(table, shown_in_sink(filters, table))


def _refused(changes: Iterable[Delivered], outcome: MergeOutcome) -> list[DeadLetter]:
    """The changes of rows whose documents the store refused, and what their partitions were told of besides."""
    if not outcome.refused:
        return []
    # A deletion or a static row may be what a row was refused with, or what its document lacks now.
    of_partitions = {key: why for (key, _), why in outcome.refused.items()}
    letters = []
    for delivered in changes:
        key, state_key = _row_key(delivered)
        why = outcome.refused.get((key, state_key)) if state_key != STATIC else of_partitions.get(key)
        if why is not None:
            letters.append(DeadLetter(delivered.record_id, why, delivered.message))
    return letters


def _row_key(delivered: Delivered) -> RowKey:
    change = delivered.change
    key = change.key or b""
    if change.static or change.clustering is None:
        return key, STATIC
    return key, ROW + clustering_key(change.table, change.clustering)


def groups(batch: BatchChanges, size: int, together: Collection[bytes] = ()) -> Iterator[BatchChanges]:
    """What was gathered, cut between partitions into parts of `size` rows, or more where one partition has more.

    The partitions `together` are one part, the first: what they need of the index is then searched for once.
    """
    first, keys = BatchChanges(), dict[bytes, BatchChanges]()
    for key in dict.fromkeys((*batch.deletions, *batch.statics, *(key for key, _ in batch.rows))):
        keys[key] = first if key in together else BatchChanges()
        if key in batch.deletions:
            keys[key].deletions[key] = batch.deletions[key]
        if key in batch.statics:
            keys[key].statics[key] = batch.statics[key]
    for row_key, changes in batch.rows.items():
        keys[row_key[0]].rows[row_key] = changes
    if together:
        yield first
    group, count = BatchChanges(), 0
    for key, partition in keys.items():
        if key in together:
            continue
        group.deletions |= partition.deletions
        group.statics |= partition.statics
        group.rows |= partition.rows
        count += len(partition.rows) or 1
        if count >= size:
            yield group
            group, count = BatchChanges(), 0
    if count:
        yield group


@dataclass(frozen=True, slots=True)
class OpensearchWriter:
    """Merges a share.

    `refused`: why the cluster does not take what definitions of some tables need. `now` is the plan's time, in seconds
    since the epoch: rows are written as they read then. Searches find those that the filters leave. `untruncated` are
    the ids of tables without truncations, as far as the plan knows.
    """

    cluster: SearchCluster = field(repr=False)
    ring_delay: float
    refused: Mapping[UUID, str]
    now: int
    filters: RowFilters = ()
    untruncated: frozenset[UUID] = frozenset()
    letters: Letters = LOGGED

    def write(self, share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        """As DataWriter says; where it raises, some of the records may be written."""
        with _WORKERS.borrowed(self.cluster) as worker:
            return CommitMessage(share, worker.write(self, pieces))


class _Worker:
    """A worker process's connections to a cluster, and what it knows of the indexes."""

    def __init__(self, cluster: SearchCluster) -> None:
        self._client = cluster.connect()
        self._settings = cluster.settings
        self._indexes = Indexes(self._client, cluster.settings)

    def write(self, plan: OpensearchWriter, pieces: Iterable[Piece]) -> Summary:
        follow, prepare = partial(self._follow, plan), partial(self._prepared, plan)
        # As the plan knows it: what this process knows may be from before a truncation.
        copied = one_copy(pieces, lambda table: table.id not in plan.untruncated)
        return PieceWriter(self._indexes, plan.letters, follow, prepare).write(copied)

    def close(self) -> None:
        self._client.close()

    def _prepared(self, plan: OpensearchWriter, changes: Sequence[Delivered]) -> TableIndex | None:
        """The index as the plan has made it ready for these changes; None where the cluster refuses what they need.

        Raises HereOnlyError where it is not ready, and where a truncation is yet to be brought to an end.
        """
        table, announced = newest_definition(changes)
        index = self._indexes.of(table)
        if index is None or define(index.entry, table, announced) != index.entry:
            if table.id in plan.refused:
                return None
            self._indexes.forget(table.id)
            raise HereOnlyError(f"{table}: its index is another than it was made ready to be")
        if index.entry.erased is not None:
            raise HereOnlyError(f"a truncation of {table} that is not brought to its end")
        if index.entry.leaving:
            raise HereOnlyError(f"{table}: its index is being rebuilt")
        return index

    def _follow(self, plan: OpensearchWriter, changes: Sequence[Delivered], refused: list[DeadLetter]) -> int:
        index = self._prepared(plan, changes)
        if index is None:
            raise TableRefusedError(plan.refused[changes[0].change.table.id])
        entry, truncated = truncate(index.entry, changes, plan.ring_delay)
        in_time, late = split(truncated.left, entry.purged_to)
        refused += late
        if not in_time:
            return 0
        return IndexMerge(self._client, self._settings, index, plan.now, plan.filters).run(in_time, refused)


_WORKERS: Final = WorkerCache(_Worker)
