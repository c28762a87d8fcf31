"""Three real nodes with three copies: one joins and one dies while rows are read, within the limit of requests."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import Session
from cassandra.concurrent import execute_concurrent_with_args

import tailrace_spark.job.snapshot_run
from tailrace.cluster import LiveCluster
from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tailrace_spark.job.snapshot_writing import ReadRound, read_round
from tailrace_spark.job.stream import Stream
from tailrace_spark.snapshot.stream_rows import RoundReader
from tests.integration.agents import contact_of_node, cql, settings_for
from tests.integration.rings import LiveRing
from tests.integration.snapshot.following import Running, done
from tests.oracle.comparison import Downstream, ask, differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("tailrace.test")
ROWS = 3000


class Rounds:
    """What each round asks of which node, and what happens before some of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before: dict[int, Any] = {}
        self.readers: list[RoundReader] = []
        monkeypatch.setattr(tailrace_spark.job.snapshot_run, "read_round", self._read)

    @contextmanager
    def _read(self, spark: SparkSession, reader: RoundReader) -> Iterator[ReadRound]:
        event = self.before.pop(reader.position.number, None)
        if event is not None:
            event()
        self.readers.append(reader)
        with read_round(spark, reader) as read:
            yield read

    def most_tasks(self) -> int:
        """The most tasks that one node was asked by at once."""
        most = 0
        for reader in self.readers:
            tasks = [{split.replicas[0] for slot in task for split in reader.slots[slot]} for task in reader.tasks]
            most = max(most, *Counter(node for nodes in tasks for node in nodes).values())
        return most


def fill(session: Session) -> None:
    insert = session.prepare("INSERT INTO shop.t (k, v) VALUES (?, ?)")
    insert.consistency_level = ConsistencyLevel.ALL
    execute_concurrent_with_args(session, insert, [(k, f"before {k}") for k in range(ROWS)], concurrency=32)


@pytest.mark.promise("snapshots.resumes", "snapshots.equal", "snapshot.limits")
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("as_processes")
def test_a_node_joins_and_another_one_dies_while_their_rows_are_read(
    kafka: LocalKafka,
    prefix: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds, stop = Rounds(monkeypatch), threading.Event()
    with ExitStack() as stack:
        ring = LiveRing(tmp_path, kafka, prefix, {"shop": 3}, stack)
        for _ in range(3):
            ring.add_node()
        session = stack.enter_context(cql(ring.nodes[0], ConsistencyLevel.QUORUM))
        ring.create_tables(session)
        fill(session)
        for node in ring.nodes:
            ring.add_agent(node)
        ring.until_covered(3)
        contact = contact_of_node(ring.nodes[0])
        live = stack.enter_context(closing(LiveCluster(contact)))
        [table] = [table for table in live.definitions().tables if str(table) == "shop.t"]

        def join() -> None:
            _LOG.info("a node joins")
            ring.add_agent(ring.add_node(streams=True))

        def die() -> None:
            _LOG.info("a node is killed")
            ring.nodes[1].kill()

        rounds.before = {2: join, 4: die}
        store = Downstream(f"sqlite:///{tmp_path / 'copy.db'}")
        sink = stack.enter_context(closing(store.open(lambda: 1e9)))
        settings = settings_for(ring.nodes[0], kafka, prefix, "shop")
        settings |= {
            "stream": {
                "checkpoint": str(tmp_path / "checkpoint"), "topics": rf"{prefix}\.shop\.t",
                # The log before the start is not read.
                "snapshot": "initial", "starting_offsets": "latest", "trigger_seconds": 0,
            },
            "snapshot": {"ranges": 64, "page_rows": 50, "requests_per_node": 1, "concurrent_ranges": 3},
        }  # fmt: skip
        monkeypatch.setattr(tailrace_spark.job.snapshot_run, "next_least", lambda *_: 64)
        stream = Stream(spark, Settings.model_validate(settings), sink, stop=stop)
        with Running(stream, stop) as running:
            [snapshot] = running.until_met(done, 900).tables
            execute_concurrent_with_args(
                session, session.prepare("UPDATE shop.t SET v = ? WHERE k = ?"),
                [(f"later {k}", k) for k in range(0, ROWS, 10)], concurrency=8,
            )  # fmt: skip
            running.until(lambda: differences(ask(session, [table]), store) == [], 300)
    _LOG.info("%d rows in %d rounds, %d of them read again", snapshot.rows, snapshot.rounds,
              len(rounds.readers) - snapshot.rounds)  # fmt: skip
    assert rounds.before == {}
    assert snapshot.rows == ROWS
    assert {len(reader.slots[0][0].replicas) for reader in rounds.readers} == {3}
    hosts = {node for reader in rounds.readers for slot in reader.slots for split in slot for node in split.replicas}
    assert len(hosts) == 4
    assert rounds.most_tasks() == 1
