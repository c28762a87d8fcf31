"""`read` changes of random programs: merged as sinks merge them, they are what SELECT answers."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.cluster import LiveCluster
from tailrace.local import LocalCassandra
from tailrace_schemas.avro import Encoder, SchemaEntry, decode
from tailrace_schemas.change import Change, Op
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import token
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.snapshot.changes import ReadChanges
from tailrace_spark.snapshot.driver import PageSource
from tailrace_spark.snapshot.ranges import TokenRange
from tailrace_spark.snapshot.selection import columns_of, selection, statement
from tailrace_spark.snapshot.session import ClusterView
from tailrace_spark.snapshot.settings import SnapshotSettings, settings_of
from tests.corpus.kinds import Kinds
from tests.corpus.release import dialect_of
from tests.integration.agents import contact_of_node, cql
from tests.oracle.comparison import Downstream, ask, differences
from tests.oracle.writing import Source, Writer

# No counters: CQL does not show shards. Nothing expires while it is compared.
KINDS = Kinds(counters=False, tied=True, sparing=True, ahead=False, expiries=False, long_keys=False)
PAGE_ROWS = 7
"""So few that partitions go over pages."""


def read(settings: SnapshotSettings, table: Table) -> list[Change]:
    """A table's changes, as a consumer decodes them."""
    with closing(ClusterView(settings)) as view, closing(PageSource(settings)) as source:
        selected = selection(columns_of(table, None), view.release(), times=True)
        reader, encoder = ReadChanges(table, selected, "dc1"), Encoder(table, "t")
        entry = SchemaEntry(schema_id=encoder.schema_id, topic="t.x", table=table, avro=encoder.schema_text)
        changes, state, more = [], None, True
        while more:
            page = source.select(statement(table, selected), TokenRange().bounds, PAGE_ROWS, state, None).get()
            changes += [
                decode(encoder.value(change), {encoder.schema_id: entry})
                for change in reader.changes(page.columns, page.requested_at)
            ]
            state, more = page.next_page, page.next_page is not None
    return changes


@pytest.mark.parametrize("seed", [1, 3])
def test_read_changes_are_merged_into_what_select_answers(
    node: LocalCassandra, keyspace_name: str, tmp_path: Path, seed: int
) -> None:
    contact = contact_of_node(node)
    with closing(LiveCluster(contact)) as live, cql(node) as session:
        writer = Writer(Source(session, live), keyspace_name, dialect_of(node.settings.release))
        writer.write(seed, KINDS, 400)
        answers = ask(session, writer.present)
        options = {"contact_points": node.address, "port": str(node.port), "consistency": "ONE"}
        changes = [
            change
            for table in writer.present
            for change in read(settings_of({**options, "table": str(table)}, {}), table)
        ]
        store = Downstream(f"sqlite:///{tmp_path / 'copy.db'}")
        with closing(store), closing(store.open(time.time)) as sink:
            # Each once more, as after a task that was read again.
            delivered = [
                Delivered(RecordId("t.x", 0, offset), change) for offset, change in enumerate([*changes, *changes])
            ]
            write_here(sink, [Piece(tuple(delivered))])
            assert differences(answers, store) == []
            assert store.set_aside() == []
        session.execute(f"DROP KEYSPACE {keyspace_name}")
    assert sum(len(answer.rows) for answer in answers) > 30
    assert {change.op for change in changes} == {Op.READ}
    assert all(change.key is not None and change.token == token(change.key) for change in changes)
    statics = [(change.table.id, change.key) for change in changes if change.static]
    assert len(statics) == len(set(statics))
    assert statics or seed == 1  # whose tables have static columns in 5.0 alone
