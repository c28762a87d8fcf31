"""What repair brings to a replica: in its log, and so in its feed, only where Cassandra is told to."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from tailrace.capture.cdcraw import CdcRaw
from tailrace.cluster import LiveCluster
from tailrace.commitlog.mutation import decode_mutation, first_table
from tailrace.local import CassandraSettings, LocalCassandra
from tailrace.state import Resume
from tests.integration.agents import contact_of_node, cql
from tests.support.waiting import until

pytestmark = pytest.mark.long


@pytest.mark.promise("log-tables.streamed-data")
def test_rows_that_repair_brings_are_in_the_log_and_are_told_apart(tmp_path: Path) -> None:
    """Written while the replica was down, without hints; then repaired, and one row written to both after it."""
    options = {"cdc_on_repair_enabled": True, "hinted_handoff_enabled": False}
    small = CassandraSettings(heap_mib=384, jmx_port=0, ring_delay_ms=5000, yaml=options)
    with ExitStack() as stack:
        one = stack.enter_context(LocalCassandra(tmp_path / "one", small))
        joining = replace(small, address="127.0.0.2", storage_port=one.storage_port, seeds=(one.address,))
        two = stack.enter_context(LocalCassandra(tmp_path / "two", joining))
        with cql(one) as session:
            session.execute("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 2}")
            session.execute("CREATE TABLE k.t (k int PRIMARY KEY) WITH cdc = true")
            two.stop()
            for key in range(20):
                session.execute(f"INSERT INTO k.t (k) VALUES ({key})")
            two.start()
            until(lambda: two.nodetool("status").count("UN ") == 2, "two nodes that are up")
            two.nodetool("repair", "--full", "k")
            marker = SimpleStatement("INSERT INTO k.t (k) VALUES (99)", consistency_level=ConsistencyLevel.ALL)
            session.execute(marker)
        found = keys_in_the_log(two, 99)
    assert set(found) == {*range(20), 99}
    # The file that was streamed has the least time of all of its rows; the row that has it looks like any other.
    marked = {key for key, streamed in found.items() if streamed}
    assert len(marked) == 19
    assert 99 not in marked


def keys_in_the_log(node: LocalCassandra, last: int) -> dict[int, bool]:
    """The keys of k.t in a node's cdc_raw, once `last` is one of them; of each whether the log shows it as streamed."""
    with closing(LiveCluster(contact_of_node(node))) as live:
        (table,) = (one for one in live.definitions().tables if (one.keyspace, one.name) == ("k", "t"))
    found: dict[int, bool] = {}
    with closing(CdcRaw(node.cdc_raw, Resume())) as capture:

        def seen() -> bool:
            while entries := capture.read(1000):
                for entry in entries:
                    if first_table(entry.payload, entry.version)[1] == table.id:
                        mutation = decode_mutation(entry.payload, entry.version, {table.id: table}.get)
                        found.update(
                            {int.from_bytes(update.key, "big"): update.streamed for update in mutation.updates}
                        )
            return last in found

        until(seen, "the last row in the log")
    return found
