"""The rows of a sink of the type `cassandra`: tables of another cluster, read there as the source is read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing

from tailrace_schemas.change import Cell, Change, Deletion, Op
from tailrace_schemas.cql.values import codec
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import token
from tailrace_spark.batch.delivery import MicroBatch
from tailrace_spark.comparison.rows import repair_of
from tailrace_spark.comparison.source import SourceRow, source_rows
from tailrace_spark.merge.stored_row import RowKey
from tailrace_spark.rowstate.partition import Clustering
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.sinks.cassandra.settings import CassandraSinkSettings, keyspace_name
from tailrace_spark.sinks.protocol import (
    BatchWrite,
    Capabilities,
    Needed,
    ReachableSink,
    StoredVisible,
    nothing_needed,
    write_here,
)
from tailrace_spark.snapshot.ranges import TokenRange
from tailrace_spark.snapshot.session import ClusterView, survey
from tailrace_spark.snapshot.settings import SnapshotSettings, contact_of


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
