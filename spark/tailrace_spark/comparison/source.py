"""Both sides of a comparison: tasks that read the source by token ranges, and one pass over a sink's rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from tailrace_schemas.change import Cell, Change, Deletion, Op
from tailrace_schemas.clustering import clustering_key
from tailrace_schemas.cql.json_value import plain
from tailrace_schemas.cql.values import codec, split_key
from tailrace_schemas.errors import TailraceError
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import token
from tailrace_spark.batch.delivery import MicroBatch
from tailrace_spark.comparison.rows import (
    NO_ROWS,
    Buckets,
    ComparedRow,
    Digest,
    RowDigests,
    repair_of,
    row_digest,
    with_rows,
)
from tailrace_spark.merge.stored_row import ROW, STATIC, RowKey
from tailrace_spark.rowstate.codec import newest
from tailrace_spark.rowstate.partition import Clustering
from tailrace_spark.rowstate.row import RowState, state_of
from tailrace_spark.sinks.cassandra.settings import CassandraSinkSettings, keyspace_name
from tailrace_spark.sinks.protocol import (
    BatchWrite,
    Capabilities,
    ComparableSink,
    Needed,
    ReachableSink,
    StoredVisible,
    nothing_needed,
    write_here,
)
from tailrace_spark.snapshot.changes import GRACE_MICROS, ReadChanges
from tailrace_spark.snapshot.ranges import Split, TokenRange
from tailrace_spark.snapshot.session import ClusterView, TableReading, range_reader, survey
from tailrace_spark.snapshot.settings import SnapshotSettings, contact_of
from tailrace_spark.streams.assign import begin_task

_MICROS = 1_000_000
_UNLIKE = b"shown otherwise than stored"


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row of the source, with its key as sinks have it."""

    row_key: RowKey
    change: Change
    state: RowState
    requested_at: int


def source_rows(source: TableReading, splits: Sequence[Split], tasks: int) -> Iterator[SourceRow]:
    """The rows and static rows of ranges, read by one of so many tasks. Raises ServiceError."""
    table = source.table
    changes = ReadChanges(table, source.shape.selected, "")
    with range_reader(source, tasks) as reader:
        for page in reader.pages(splits):
            for change in changes.changes(page.columns, page.requested_at):
                clustering = STATIC if change.static else ROW + clustering_key(table, change.clustering or ())
                yield SourceRow((change.key or b"", clustering), change, state_of(change), page.requested_at)


@dataclass(frozen=True, slots=True)
class TaskFindings:
    """What a task found: digests by bucket, or rows by key; or an error's words."""

    digests: dict[int, Digest] = field(default_factory=dict)
    rows: dict[RowKey, ComparedRow] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ReadTask:
    """What each task does, one of so many: with `buckets` it gives their digests, else the rows of its ranges."""

    source: TableReading
    tasks: int
    buckets: Buckets | None = None

    def __call__(self, splits: Iterator[Sequence[Split]]) -> Iterator[TaskFindings]:
        """The findings of each task."""
        begin_task()
        for task_splits in splits:
            try:
                yield self._read(task_splits)
            except TailraceError as error:
                yield TaskFindings(error=str(error))

    def _read(self, splits: Sequence[Split]) -> TaskFindings:
        table = self.source.table
        digests = RowDigests(table)
        findings = TaskFindings()
        for row in source_rows(self.source, splits, self.tasks):
            columns = digests.columns(row.row_key, row.state, row.requested_at // _MICROS)
            if columns is None:  # it has just expired
                continue
            if self.buckets is None:
                findings.rows[row.row_key] = ComparedRow(
                    columns, _newest(row), _shown(table, row.change.key or b"", _clustering(row.change))
                )
            elif (bucket := self.buckets.of(row.change.token)) is not None:
                digest = findings.digests.get(bucket, NO_ROWS)
                findings.digests[bucket] = with_rows(digest, 1, row_digest(row.row_key, columns))
        return findings


def _newest(row: SourceRow) -> int:
    """The newest write time that the source shows; what it does not show stands as of the reading, or of its grace."""
    written = {cell.written for cell in row.change.cells} - {row.requested_at - GRACE_MICROS}
    return max([time for time in written if time < row.requested_at], default=0)


def _shown(table: Table, key: bytes, clustering: Iterable[object]) -> tuple[object, ...]:
    """The columns of a row's key as JSON has them."""
    types = [column.type for column in table.partition_key]
    values = [codec(of).decode(data) for of, data in zip(types, split_key(types, key), strict=True)]
    return tuple(map(plain, (*values, *clustering)))


class SinkTable:
    """What a sink has of a table. Its methods raise ServiceError."""

    def __init__(self, sink: ComparableSink, table: Table) -> None:
        self.sink = sink
        self._table = table
        self._digests = RowDigests(table)

    def digests(self, buckets: Buckets, now: int) -> dict[int, Digest]:
        """The digests of the buckets that have rows, as they read at a time, in seconds since the epoch."""
        digests: dict[int, Digest] = {}
        for row, bucket in self._rows(buckets):
            columns = self._columns(row, now)
            if columns is not None:
                digests[bucket] = with_rows(digests.get(bucket, NO_ROWS), 1, row_digest(row.row_key, columns))
        return digests

    def rows(self, buckets: Buckets, numbers: Collection[int], now: int) -> dict[RowKey, ComparedRow]:
        """The rows of some buckets."""
        rows: dict[RowKey, ComparedRow] = {}
        for row, bucket in self._rows(buckets):
            if bucket in numbers and (columns := self._columns(row, now)) is not None:
                written = 0 if row.state is None else newest(row.state)
                clustering = () if row.row_key[1] == STATIC else row.clustering
                rows[row.row_key] = ComparedRow(columns, written, _shown(self._table, row.row_key[0], clustering))
        return rows

    def stored(self, keys: Collection[RowKey]) -> dict[RowKey, StoredVisible]:
        """What is stored of some rows."""
        return {row.row_key: row for row in self.sink.stored(self._table) if row.row_key in keys}

    def _rows(self, buckets: Buckets) -> Iterator[tuple[StoredVisible, int]]:
        last_key, bucket = None, None
        for row in self.sink.stored(self._table):
            if row.row_key[0] != last_key:
                last_key = row.row_key[0]
                bucket = buckets.of(token(last_key))
            if bucket is not None:
                yield row, bucket

    def _columns(self, row: StoredVisible, now: int) -> tuple[bytes | None, ...] | None:
        """As RowDigests says; of a row that readers see, or miss, against its state, what no source has."""
        columns = None if row.state is None else self._digests.columns(row.row_key, row.state, now)
        if (columns is not None) is row.visible:
            return columns
        if columns is None:
            # Its time is over, and the next sweep takes it away; or somebody else has put it there.
            return (_UNLIKE,) if row.state is None else None
        return None


class CopiedTables:
    """A ComparableSink of tables in another cluster, which are read at the limits of `limits`, and by one task.

    Its methods raise ServiceError, and SettingsError where a table there cannot be read.
    """

    def __init__(self, sink: ReachableSink, settings: CassandraSinkSettings, limits: SnapshotSettings) -> None:
        self._sink = sink
        self._settings = settings
        self._limits = limits

    def batch_write(self, batch: MicroBatch, needed: Needed = nothing_needed) -> BatchWrite:
        """As Sink says: the sink's own."""
        return self._sink.batch_write(batch, needed)

    def close(self) -> None:
        """The sink is closed by who opened it."""

    @property
    def capabilities(self) -> Capabilities:
        """The sink's own."""
        return self._sink.capabilities

    def stored(self, table: Table) -> Iterator[StoredVisible]:
        """As ComparableSink says."""
        for row in self._rows(table, None):
            yield StoredVisible(row.row_key, row.state, visible=True, clustering=_clustering(row.change))

    def amend(self, table: Table, states: Mapping[RowKey, RowState], to_show: Mapping[RowKey, Clustering]) -> None:
        """As ComparableSink says. Rows are shown as they are stored: there is nothing to show again."""
        del to_show
        removals = {row_key: state for row_key, state in states.items() if not state.empty}
        if not removals:
            return
        changes = [
            _removal(table, row, removals[row.row_key])
            for row in self._rows(table, {key for key, _ in removals})
            if row.row_key in removals
        ]
        write_here(self._sink, [repair_of(table, changes)])

    def _rows(self, table: Table, keys: Collection[bytes] | None) -> Iterator[SourceRow]:
        """The rows there of these partitions, None: of all; none where there is no such table."""
        settings = self._reading(table)
        with closing(ClusterView(settings)) as view:
            if view.find(*settings.name) is None:
                return
        survey_now = survey(settings)
        if keys is None:
            splits = survey_now.splits()
        else:
            tokens = sorted({token(key) for key in keys})
            splits = [survey_now.split_of(TokenRange(ring_token - 1, ring_token)) for ring_token in tokens]
        yield from source_rows(survey_now.reading, splits, 1)

    def _reading(self, table: Table) -> SnapshotSettings:
        target = self._settings
        keyspace = keyspace_name(target.keyspace, table.keyspace)
        return self._limits.model_copy(
            update={
                **contact_of(target),
                "table": f"{keyspace}.{table.name}",
                "datacenter": target.datacenter,
                "consistency": target.consistency,
            }
        )


def _clustering(change: Change) -> tuple[object, ...]:
    values = zip(change.table.clustering, change.clustering or (), strict=False)
    return tuple([None if data is None else codec(column.type).decode(data) for column, data in values])


def _removal(table: Table, row: SourceRow, state: RowState) -> Change:
    """The change that takes from a row there what `state` takes: the row, or some of its cells."""
    columns = {column.name_bytes: column for column in table.columns}
    if row.change.static and state.deletion is not None:
        # No statement deletes a static row: its cells go one by one.
        cells = [
            Cell(columns[cell.column.name_bytes], cell.path, cell.written, None, state.deletion.local, None)
            for cell in row.change.cells
            if cell.column.name_bytes in columns
        ]
    else:
        cells = [
            Cell(columns[name], path, cell.written, None, cell.expires, None)
            for name, column in state.columns.items()
            for path, cell in column.cells.items()
            if name in columns
        ]
    deletion: Deletion | None = None if row.change.static else state.deletion
    return Change(
        op=Op.UPDATE if deletion is None else Op.DELETE,
        table=table,
        token=row.change.token,
        key=row.change.key,
        clustering=row.change.clustering,
        static=row.change.static,
        deletion=deletion,
        cells=tuple(sorted(cells, key=_order)),
    )


def _order(cell: Cell) -> tuple[bytes, bytes]:
    return cell.column.name_bytes, cell.path or b""
