"""`tailrace compare` with the tables of another cluster: what differs is found, and repair makes both answer alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import pytest
from cassandra.cluster import Session

from tailrace.local import LocalCassandra
from tailrace_common.backoff import Timing
from tailrace_common.settings import Settings
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.cli.compare import comparable_sink
from tailrace_spark.cli.support import read_settings
from tailrace_spark.comparison.rows import Kind
from tailrace_spark.comparison.run import Comparison
from tailrace_spark.comparison.source import source_rows
from tailrace_spark.sinks.protocol import ReachableSink, write_here
from tailrace_spark.sinks.registry import open_sink
from tests.integration.agents import cql, create_keyspace
from tests.integration.snapshot.comparing import (
    TABLE,
    UNSEEN,
    require_repaired,
    run_here,
    told,
    write_source,
    write_unseen,
)


@dataclass
class Copy:
    """A table, and its copy in a second keyspace of the node."""

    node: LocalCassandra
    session: Session
    keyspace: str
    section: dict[str, object]
    sink: ReachableSink
    stack: ExitStack

    def run(self, statement: str) -> list[Any]:
        """`KS.` is the source's keyspace, `CP.` the copy's."""
        statement = statement.replace("KS.", f"{self.keyspace}.").replace("CP.", f"{self.keyspace}_copy.")
        return list(self.session.execute(statement))

    def comparison(self, **options: object) -> Comparison:
        cluster = {"contact_points": [self.node.address], "port": self.node.port}
        settings = Settings.model_validate({"cluster": cluster, "sink": {"copy": self.section}})
        asked = {"consistency": "ONE", "concurrent_ranges": 2, "ranges": 4, "page_rows": 50, **options}
        reading = read_settings(settings, table=f"{self.keyspace}.t", rows="changes", **asked)
        store, target = comparable_sink(settings, "copy", reading)
        self.stack.callback(store.close)
        return Comparison(reading, target, run_here, Timing(time.time, lambda _: None), 0.0)

    def fill(self) -> None:
        """Rows, static columns and collections at the source, and all of them in the copy."""
        write_source(self.run)
        comparison = self.comparison()
        splits = comparison._survey.splits()
        changes = [row.change for row in source_rows(comparison.source, splits, 1)]
        delivered = [Delivered(RecordId("t", 0, offset), change) for offset, change in enumerate(changes)]
        write_here(self.sink, [Piece(tuple(delivered))])


@pytest.fixture
def copy(cassandra: LocalCassandra, keyspace_name: str) -> Iterator[Copy]:
    section: dict[str, object] = {
        "type": "cassandra", "contact_points": [cassandra.address], "port": cassandra.port,
        "keyspace": "{keyspace}_copy", "consistency": "ONE", "request_timeout_seconds": 60,
    }  # fmt: skip
    settings = Settings.model_validate({"sink": {"copy": section}}).sink["copy"]
    with ExitStack() as stack:
        session = stack.enter_context(cql(cassandra))
        for keyspace in (keyspace_name, f"{keyspace_name}_copy"):
            create_keyspace(session, keyspace)
            stack.callback(session.execute, f"DROP KEYSPACE IF EXISTS {keyspace}")
        sink = stack.enter_context(closing(open_sink("copy", settings, "t")))
        yield Copy(cassandra, session, keyspace_name, section, sink, stack)


@pytest.mark.promise("compare.finds", "compare.repairs")
def test_a_table_of_another_cluster_is_compared_and_repaired(copy: Copy) -> None:
    copy.run(TABLE)
    # There is no table there yet.
    copy.run("INSERT INTO KS.t (k, c, v) VALUES (1, 0, 'v0') USING TIMESTAMP 900")
    assert told(copy.comparison().compare().differences) == {(1, 0, Kind.MISSING, ())}
    copy.run("DROP TABLE KS.t")
    copy.fill()
    compared = copy.comparison().compare()
    assert (compared.rows, compared.differences) == (80, {})
    # The stream has lost these.
    write_unseen(copy.run)
    # Somebody has written there.
    copy.run("INSERT INTO CP.t (k, c, v) VALUES (7, 9, 'theirs') USING TIMESTAMP 3000")
    comparison = copy.comparison()
    compared = comparison.compare()
    assert told(compared.differences) == {*UNSEEN, (7, 9, Kind.EXTRA, ())}
    require_repaired(comparison, compared, copy.comparison)
    columns = "k, c, s, v, w, m, WRITETIME(v), WRITETIME(w), WRITETIME(s)"
    assert copy.run(f"SELECT {columns} FROM CP.t") == copy.run(f"SELECT {columns} FROM KS.t")
