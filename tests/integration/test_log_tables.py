"""Log tables as users of ScyllaDB's CDC know them: a live node, an agent, Kafka, the stream, and SELECTs in CQL."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from cassandra.cluster import Session

from examples.log_reader.__main__ import main
from examples.log_reader.comparison import differences, rows_of
from examples.log_reader.descriptions import Descriptions
from examples.log_reader.limits import behind_now
from examples.log_reader.reader import LogRow, ProgressFile, Reader, write_time
from examples.log_reader.reader import Progress as Done
from examples.log_reader.replication import Replicator
from tailrace.cluster import LiveCluster
from tailrace.local import LocalCassandra, LocalKafka
from tailrace.publish.kafka import KafkaLog
from tailrace.topology.mirror import CqlStore, Mirror
from tailrace.topology.mirror_plan import MirrorOptions
from tailrace_common.settings import Settings
from tailrace_common.topics import GenerationReader
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.generation_records import Proposal, encode_proposal
from tailrace_schemas.streams import Generation, build_generation, stream_for
from tailrace_schemas.tokens import token
from tailrace_schemas.topics import Internal, internal_topic
from tailrace_spark.job.progress import Progress
from tailrace_spark.sinks.registry import sink_of
from tests.held import Record, hold
from tests.integration.agents import (
    AgentProcess,
    contact_of_node,
    cql,
    create_keyspace,
    published,
    settings_for,
    start_here,
)
from tests.integration.replicated import statements
from tests.integration.stream_settings import stream_settings
from tests.integration.streams import followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

YEAR_2100 = 4_102_444_800_000
"""Milliseconds: a generation of then can still be announced, and USING TIMESTAMP writes into it today."""
LATER = YEAR_2100 * 1000 + 5
TABLES = {
    "t": "CREATE TABLE {ks}.t (pk int, ck int, v int, l list<int>, PRIMARY KEY (pk, ck)) WITH cdc = true",
    "o": "CREATE TABLE {ks}.o (pk int, ck int, v int, PRIMARY KEY (pk, ck)) WITH cdc = true",
    "p": "CREATE TABLE {ks}.p (pk int, pk2 text, ck int, ck2 int, v int, PRIMARY KEY ((pk, pk2), ck, ck2)) "
    "WITH CLUSTERING ORDER BY (ck DESC, ck2 ASC) AND cdc = true",
    "a": "CREATE TABLE {ks}.a (pk int, ck int, ck2 text, v int, w text, s int static, m map<int, text>, c set<text>, "
    "u {ks}.ut, f frozen<list<int>>, PRIMARY KEY (pk, ck, ck2)) WITH CLUSTERING ORDER BY (ck ASC, ck2 DESC) "
    "AND cdc = true",
}
HISTORY = 180
KEY = 1_000
"""Of rows in two tables and two generations."""


@pytest.fixture(autouse=True)
def _held(cassandra_version: str, record_property: Record) -> None:
    hold(record_property, "log-tables", "Cassandra", cassandra_version)


@dataclass(frozen=True)
class Logged:
    """A keyspace whose tables have their log tables, and how that came."""

    session: Session
    keyspace: str
    settings: Settings
    first: Generation
    second: Generation
    batches: list[Progress]

    def log(self, table: str, columns: str, key: int | None = None) -> list[tuple[object, ...]]:
        """Rows of a log table, or those of one partition of its table, in the order of their streams."""
        where = "" if key is None else f" WHERE pk = {key} ALLOW FILTERING"
        rows = self.session.execute(f"SELECT {columns} FROM {self.keyspace}.{table}_scylla_cdc_log{where}")
        return [tuple(_plain(value) for value in row) for row in rows]


@pytest.fixture(scope="module")
def logged(
    spark: SparkSession, cassandra: LocalCassandra, kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Logged]:
    """What the statements leave in the log tables."""
    place, unique = tmp_path_factory.mktemp("log"), uuid4().hex[:12]
    prefix, keyspace = f"log{unique}", f"ks_{unique}"
    with cql(cassandra) as session:
        create_keyspace(session, keyspace)
        session.execute(f"CREATE TYPE {keyspace}.ut (a int, b int, c int)")
        for statement in TABLES.values():
            session.execute(statement.format(ks=keyspace))
        start_here(session, cassandra, kafka, prefix, keyspace)
        with AgentProcess(place, settings_for(cassandra, kafka, prefix, keyspace)) as agent:
            agent.until_ready().until_covered()
            first, second = announce(kafka, prefix)
            write(session, keyspace)
            agent.until(lambda: _arrived(kafka, prefix, f"{prefix}.{keyspace}.p"))
            assert agent.stop() == 0
        settings = stream_settings(
            kafka,
            prefix,
            {"max_offsets_per_trigger": 300, "checkpoint": str(place / "checkpoint")},
            {"log": {"type": "log-tables", "contact_points": [cassandra.address], "port": cassandra.port}},
        )
        with closing(sink_of(settings, "log")) as sink:
            batches = followed(spark, settings, sink)
        yield Logged(session, keyspace, settings, first, second, batches)


def _arrived(kafka: LocalKafka, prefix: str, topic: str) -> bool:
    """Whether the last row is published."""
    changes = [record.change for record in published(kafka, prefix, topic)]
    return any(cell.value == b"the last" for change in changes for cell in change.cells)


def announce(kafka: LocalKafka, prefix: str) -> tuple[Generation, Generation]:
    """The generation that the agent made, and a second one of the same ring, of 2100."""
    config: dict[str, bool | int | float | str] = {"bootstrap.servers": kafka.bootstrap}
    topic = internal_topic(prefix, Internal.GENERATIONS)
    with GenerationReader.open(config, topic) as reader:
        [known] = reader.refresh()
    ring, first = known.unpack().ring, known.unpack().generation
    second = build_generation(ring, timestamp=YEAR_2100, seed=2)
    log = KafkaLog(config, topic)
    proposal = Proposal(uuid=uuid4(), predecessor=first.timestamp, ring=ring, generation=second)
    for record_key, value in encode_proposal(proposal):
        log.append(record_key, value)
    return first, second


def columns_of(session: Session, keyspace: str, table: str) -> set[str]:
    """The names of a table's columns; none where there is no such table."""
    names = "SELECT column_name FROM system_schema.columns WHERE keyspace_name = %s AND table_name = %s"
    return {name for (name,) in session.execute(names, (keyspace, table))}


LISTS = ("l = [1, 2, 1]", "l = l + [3]", "l = [0] + l", "l[1] = 5", "l = l - [1]", "l = null")


def write(session: Session, keyspace: str) -> None:
    """Lists; rows of one key in two tables and two generations; a random history; columns added and dropped."""
    for assignment in LISTS:
        session.execute(f"UPDATE {keyspace}.t SET {assignment} WHERE pk = {KEY + 1} AND ck = 0")
    for table in ("t", "o"):
        for ck, using in enumerate(("", f"USING TIMESTAMP {LATER}", "USING TIMESTAMP 7")):
            session.execute(f"INSERT INTO {keyspace}.{table} (pk, ck, v) VALUES ({KEY}, {ck}, 7) {using}")
    inserts = [
        f"INSERT INTO {keyspace}.{table} (pk, ck, v) VALUES ({KEY + 2}, {ck}, 7)" for table in "to" for ck in "123"
    ]
    session.execute(f"BEGIN BATCH {'; '.join(inserts)}; APPLY BATCH")
    for statement in statements(6, HISTORY, f"{keyspace}.a"):
        session.execute(statement)
    for pk in range(3):
        for at in (7, LATER, LATER + 1):
            session.execute(f"UPDATE {keyspace}.a USING TIMESTAMP {at} SET s = {pk} WHERE pk = {pk}")
    session.execute(f"ALTER TABLE {keyspace}.p ADD added text")
    session.execute(f"INSERT INTO {keyspace}.p (pk, pk2, ck, ck2, v, added) VALUES (-1, '', 0, 0, 1, 'new')")
    session.execute(f"ALTER TABLE {keyspace}.p ADD gone list<int>")
    session.execute(f"INSERT INTO {keyspace}.p (pk, pk2, ck, ck2, gone) VALUES (-1, '', 1, 0, [1])")
    session.execute(f"ALTER TABLE {keyspace}.p DROP gone")
    session.execute(f"INSERT INTO {keyspace}.p (pk, pk2, ck, ck2, added) VALUES (-1, '', 2, 0, 'the last')")


def _plain(value: Any) -> object:
    """The driver's collections as Python's own."""
    match type(value).__name__:
        case "OrderedMapSerializedKey":
            return dict(value)
        case "SortedSet":
            return set(value)
        case _:
            return tuple(value) if isinstance(value, tuple) else value


def micros(time_uuid: Any) -> int:
    """The write time of a cdc$time, as ScyllaDB's guide computes it."""
    return (UUID(str(time_uuid)).time - 0x01B21DD213814000) // 10


def test_a_lists_cells_have_their_time_uuids(logged: Logged) -> None:
    rows: Any = logged.log("t", 'l, "cdc$deleted_l", "cdc$deleted_elements_l"', KEY + 1)
    cells: dict[UUID, int] = {}
    seen = []
    for added, deleted, removed in rows:
        if deleted:
            cells.clear()
        cells |= added or {}
        for path in removed or ():
            del cells[path]
        seen.append([value for _, value in sorted(cells.items(), key=lambda cell: cell[0].time)])
    assert seen == [[1, 2, 1], [1, 2, 1, 3], [0, 1, 2, 1, 3], [0, 5, 2, 1, 3], [0, 5, 2, 3], []]


@pytest.mark.promise("log-tables.streams")
def test_a_partition_key_has_one_stream_in_every_table_and_another_in_another_generation(logged: Logged) -> None:
    key = token(codec(CqlType("int")).encode(KEY))
    first, second = (stream_for(generation, key).value for generation in (logged.first, logged.second))
    assert first != second
    for table in ("t", "o"):
        # Time 7 is before the first generation, which it is assigned to.
        assert sorted(logged.log(table, 'ck, "cdc$stream_id"', KEY)) == [(0, first), (1, second), (2, first)]
    marks = [batch.marks for batch in logged.batches]
    assert sum(mark.get("before_first", 0) for mark in marks) >= 4
    assert sum(mark.get("ahead", 0) for mark in marks) == 2 + 6


def test_a_mutation_of_two_tables_is_a_batch_in_each(logged: Logged) -> None:
    for table in ("t", "o"):
        rows = logged.log(table, '"cdc$batch_seq_no", ck, "cdc$end_of_batch"', KEY + 2)
        assert rows == [(0, 1, None), (1, 2, None), (2, 3, True)]


@pytest.mark.promise("log-tables.streams")
def test_streams_are_in_the_order_of_time_and_batches_end_once(logged: Logged) -> None:
    for table in TABLES:
        streams: dict[object, list[tuple[int, object, Any]]] = {}
        ends: Counter[object] = Counter()
        rows: Any = logged.log(table, '"cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$end_of_batch"')
        for stream, at, number, end in rows:
            streams.setdefault(stream, []).append((micros(at), at, number))
            ends[at] += bool(end)
        for places in streams.values():
            for (written, at, number), (next_written, next_at, next_number) in pairwise(places):
                assert written <= next_written
                assert next_number == (number + 1 if next_at == at else 0)
        assert set(ends.values()) == {1}
    assert len(streams) > 1


@pytest.mark.promise("log-tables.columns")
def test_columns_are_those_of_the_table(logged: Logged) -> None:
    rows = logged.log("p", 'ck, v, "cdc$deleted_v", added, "cdc$deleted_added"', -1)
    assert rows == [(0, 1, None, "new", None), (1, None, None, None, None), (2, None, None, "the last", None)]
    assert not any("gone" in column for column in columns_of(logged.session, logged.keyspace, "p_scylla_cdc_log"))


def mirror(logged: Logged, cassandra: LocalCassandra, keyspace: str) -> None:
    """The description tables of both generations, as agents write them ([mirror])."""
    topic = internal_topic(logged.settings.topics.prefix, Internal.GENERATIONS)
    with (
        closing(LiveCluster(contact_of_node(cassandra))) as live,
        GenerationReader.open(logged.settings.kafka.reveal(), topic) as reader,
    ):
        store = CqlStore(live, keyspace)
        assert Mirror(store, MirrorOptions()).update(reader.refresh(), logged.first.timestamp) > 2


class Killed(Exception):
    """The reader's end, in the middle of a window."""


@pytest.mark.spine
@pytest.mark.promise("log-tables.whole-change")
def test_a_reader_of_scylladbs_kind_replicates_a_table(
    logged: Logged, cassandra: LocalCassandra, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed in each generation, it goes on; nothing of the second generation comes before the first is finished."""
    session, keyspace = logged.session, logged.keyspace
    session.execute(
        TABLES["a"].format(ks=keyspace).replace(f"{keyspace}.a ", f"{keyspace}.b ").replace(" AND cdc = true", "")
    )
    described = f"{keyspace}_cdc"
    mirror(logged, cassandra, described)
    progress = ProgressFile(tmp_path / "progress.json")
    tables = session.cluster.metadata.keyspaces[keyspace].tables
    replicate, now = Replicator(session, tables["b"]), time.time() + 60
    seen: list[tuple[int, LogRow]] = []
    patience = 40

    def consume(write: Sequence[LogRow]) -> None:
        if len(seen) == patience:
            raise Killed
        replicate(write)
        seen.append((write_time(write[0]), write[0]))

    def reader(at: float) -> Reader:
        """A new process: it knows what the progress file says."""
        descriptions = Descriptions(session, described)
        log = f"{keyspace}.a_scylla_cdc_log"
        return Reader(session, log, descriptions, progress, behind_now(5, lambda: at), window=25)

    with pytest.raises(Killed):
        reader(now).read_all(consume)
    patience = -1
    reader(now).read_all(consume)
    known = progress.load()
    assert known is not None
    assert known.generation == logged.first.timestamp
    assert list(differences(session, tables["a"], tables["b"])), "the second generation's changes are not there yet"
    # Seventy-four years later, of which nobody wants to read every minute.
    progress.save(Done(logged.first.timestamp, YEAR_2100 * 1000 - 10_000_000))
    assert reader(YEAR_2100 / 1000 - 1).read_all(consume) == 0, "not finished while it may still grow"
    reader(YEAR_2100 / 1000 + 60).read_all(consume)
    assert progress.load() == Done(YEAR_2100, YEAR_2100 * 1000 + 50_000_000)
    assert list(differences(session, tables["a"], tables["b"])) == []
    assert rows_of(session, tables["b"]) >= 10
    assert {operation for (operation,) in logged.log("a", '"cdc$operation"')} == set(range(1, 9))
    started = [written >= YEAR_2100 * 1000 for written, _ in seen]
    assert started == sorted(started)
    assert started.count(True) == 6
    words = [f"{keyspace}.a", f"{keyspace}.b", "--contact", cassandra.address, "--port", str(cassandra.port)]
    words += ["--descriptions", described, "--progress", str(tmp_path / "progress.json"), "--once", "--compare"]
    assert main(words) == 0
    session.execute(f"UPDATE {keyspace}.b SET v = 7 WHERE pk = 0 AND ck = 99 AND ck2 = 'z'")
    assert main(words) == 1
    assert "(0, 99, 'z'): missing and ('None'," in capsys.readouterr().out
