"""Another Cassandra cluster written by tasks: attempts beside each other, what only the driver makes, dead letters."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from cassandra.cluster import Session

from tailrace.local import LocalCassandra, LocalKafka
from tailrace_schemas.change import Cell, Change
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Delivered, MicroBatch, Piece, RecordId, Summary
from tailrace_spark.sinks.cassandra.settings import CassandraSinkSettings
from tailrace_spark.sinks.cassandra.sink_base import CassandraSink, CassandraWriter, SinkOpener
from tailrace_spark.sinks.cassandra.tables import CassandraTablesSink
from tailrace_spark.sinks.protocol import HereOnlyError, write_here
from tests.corpus.recording import select_bytes
from tests.held import Record, hold
from tests.integration.agents import cql, create_keyspace
from tests.integration.feed import Feed
from tests.integration.histories import follow
from tests.integration.letters import letters_in
from tests.integration.stream_settings import stream_settings
from tests.support.letters import MemoryLetters
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.hostile import TYPES, extremes
from tests.unit.spark.sinks.in_tasks import LogInTasks, attempt, interrupted, planned_by
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 60
PARTITION: KafkaPartition = ("t.x", 0)
_workers = count()
_opened: list[CassandraSink] = []


@dataclass(frozen=True)
class Worker(SinkOpener):
    """That of one worker process: one of another number has a connection and a memory of its own."""

    number: int = 0

    def open(self) -> CassandraSink:
        sink = super().open()
        _opened.append(sink)
        return sink


@dataclass(frozen=True)
class Copy:
    """A keyspace that a sink writes, whose name is the source's too: there is no other cluster."""

    node: LocalCassandra
    session: Session
    keyspace: str
    letters: MemoryLetters

    def opener(self) -> Worker:
        section = CassandraSinkSettings.model_validate(
            {"contact_points": [self.node.address], "port": self.node.port, "request_timeout_seconds": SECONDS}
        )
        return Worker(CassandraTablesSink, "copy", section, self.letters, number=next(_workers))

    def sink(self) -> CassandraSink:
        """A driver's."""
        return self.opener().sink()

    def task(self, task: CassandraWriter) -> CassandraWriter:
        """The same in a worker process of its own."""
        return replace(task, opener=self.opener())

    def table(self, name: str = "plain", number: int = 1, **regular: str) -> Table:
        """Another one of the same name with another number."""
        columns = regular or {"v": "int"}
        return table({"k": "int"}, regular=columns, keyspace=self.keyspace, name=name, table_id=UUID(int=number))

    def rows(self, names: str = "k, v, writetime(v)", name: str = "plain") -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in self.session.execute(f"SELECT {names} FROM {self.keyspace}.{name}"))

    def tables(self) -> set[str]:
        query = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s"
        return {row.table_name for row in self.session.execute(query, (self.keyspace,))}


@pytest.fixture
def copy(cassandra: LocalCassandra, keyspace_name: str) -> Iterator[Copy]:
    with cql(cassandra, seconds=SECONDS) as session:
        create_keyspace(session, keyspace_name)
        yield Copy(cassandra, session, keyspace_name, MemoryLetters())
        while _opened:
            _opened.pop().close()
        session.execute(f"DROP KEYSPACE {keyspace_name}")


@pytest.fixture(autouse=True)
def _held(cassandra_version: str, record_property: Record) -> None:
    hold(record_property, "cassandra, tasks", "Cassandra", cassandra_version)


def split_of(*changes: Change, begin: int = 0) -> Piece:
    return Piece(
        tuple(
            Delivered(RecordId(f"t.{change.table}", 0, offset), change, message=b"\0message")
            for offset, change in enumerate(changes, begin)
        )
    )


def planned(sink: CassandraSink, *tables: Table) -> CassandraWriter:
    return planned_by(CassandraWriter, sink, MicroBatch("s", 0, {PARTITION: 1 << 40}), list(enumerate(tables)))


@pytest.mark.promise("tasks.attempts")
def test_two_attempts_at_once_and_a_late_one_leave_the_rows_of_one(copy: Copy) -> None:
    """In the middle of the first another one writes it all; then a later batch; then the first goes on."""
    plain = copy.table()
    log = Log(plain)
    first = [split_of(*(log.insert((key,), (), 10, v=key) for key in range(begin, begin + 20))) for begin in (0, 20)]
    later = split_of(*(log.update((key,), (), 11, v=-key) for key in range(1, 40, 2)), log.delete((38,), (), 12))
    with closing(copy.sink()) as sink:
        task = planned(sink, plain)
        with interrupted(copy.task(task), PARTITION, first[0], then=first[1]) as end:
            for batch in (first, [later]):
                result = attempt(copy.task(task), PARTITION, batch)
                sink.batch_write(MicroBatch("s", 0, {})).commit([result])
            assert end().summary == Summary(40, 40)
    assert copy.rows() == [(key, -key, 11) if key % 2 else (key, key, 10) for key in range(40) if key != 38]


def test_tables_and_their_columns_are_the_drivers(copy: Copy) -> None:
    """A task that lacks one makes none: the driver writes its batch. One of an older definition goes on."""
    plain, wider = copy.table(), copy.table(v="int", w="frozen<addr>")
    with closing(copy.sink()) as sink:
        for definition, change in (
            (plain, Log(plain).insert((1,), (), 10, v=1)),
            (wider, Log(wider).insert((2,), (), 10, v=2, w={"street": "x", "zip": 1})),
        ):
            before = copy.tables(), planned(sink)
            with pytest.raises(HereOnlyError):
                attempt(copy.task(before[1]), PARTITION, [split_of(change)])
            assert copy.tables() == before[0]
            attempt(copy.task(planned(sink, definition)), PARTITION, [split_of(change)])
        old = split_of(Log(plain).insert((3,), (), 10, v=3))
        attempt(copy.task(planned(sink)), PARTITION, [old])
    assert [row[0] for row in copy.rows("k, v")] == [1, 2, 3]


def test_a_worker_notices_that_a_table_is_gone(copy: Copy) -> None:
    """Though it has written it before: the driver makes it again."""
    plain = copy.table()
    with closing(copy.sink()) as sink:
        task = copy.task(planned(sink, plain))
        attempt(task, PARTITION, [split_of(Log(plain).insert((1,), (), 10, v=1))])
        copy.session.execute(f"DROP TABLE {copy.keyspace}.plain")
        again = split_of(Log(plain).insert((2,), (), 10, v=2))
        with pytest.raises(HereOnlyError):
            attempt(task, PARTITION, [again])
        write_here(sink, [again])
        attempt(task, PARTITION, [again])
    assert copy.rows() == [(2, 2, 10)]


@pytest.mark.promise("cassandra.late-tasks")
def test_a_late_attempt_writes_nothing_into_a_table_that_was_made_again(copy: Copy) -> None:
    """The table was dropped and made again at the source, and, by hand and by the stream, there."""
    former, newer = copy.table(), copy.table(number=2)
    first = split_of(Log(former).insert((1,), (), 10, v=1))
    second = split_of(Log(former).insert((2,), (), 10, v=2), begin=1)
    with (
        closing(copy.sink()) as sink,
        interrupted(copy.task(planned(sink, former)), PARTITION, first, then=second) as end,
    ):
        copy.session.execute(f"DROP TABLE {copy.keyspace}.plain")
        current = split_of(Log(newer).insert((3,), (), 10, v=3))
        attempt(copy.task(planned(sink, newer)), PARTITION, [current])
        assert end().summary.dead_letters == 1
    assert copy.rows() == [(3, 3, 10)]


def test_two_drivers_at_once_widen_one_table(copy: Copy) -> None:
    """Each by a definition of its own; the rows of both are there."""
    definitions = [copy.table(v="int", a="int"), copy.table(v="int", b="int")]

    def run(definition: Table) -> None:
        with closing(copy.sink()) as sink:
            for key in range(20):
                write_here(LogInTasks(sink), [split_of(Log(definition).insert((key,), (), 10, v=key))])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, definitions))
    assert copy.rows("k, v, a, b") == [(key, key, None, None) for key in range(20)]


@pytest.mark.promise("sinks.extreme-values")
@pytest.mark.parametrize("by_tasks", [False, True], ids=["driver", "tasks"])
def test_values_at_the_ends_of_all_types_go_out(copy: Copy, *, by_tasks: bool) -> None:
    """Bit for bit, but in collections: timestamps of the year 10,000 too, for which Python has no value."""
    definition, rows = replace(TYPES, keyspace=copy.keyspace), extremes()
    # Each cell by itself: the run's node takes no message of more than 512 KiB.
    changes = [replace(row, table=definition, cells=(cell,)) for row in rows for cell in row.cells]
    refused = [change for change in changes if _has_no_bytes(change.cells[0])]
    with closing(copy.sink()) as sink:
        target = LogInTasks(sink) if by_tasks else sink
        summary = write_here(target, [split_of(*changes)])
        accepted = len(changes) - len(refused)
        assert replace(summary, refused={}) == Summary(accepted, accepted, len(refused))
        assert [changes[letter.record_id.offset] for letter in copy.letters.all] == refused
    names = [column.name for column in definition.regular]
    selected = select_bytes(copy.session, f"SELECT id, {', '.join(names)} FROM {copy.keyspace}.hostile")
    cells = {row.key: {one.column.name: one.value for one in row.cells if not _has_no_bytes(one)} for row in rows}
    for key, *values in selected:
        for name, value in zip(names, values, strict=True):
            assert _form(name, value) == _form(name, cells[key].get(name)), f"{key!r}, {name}"


def _form(name: str, value: bytes | None) -> object:
    """A cell's bytes; of a list or map the elements, of which Cassandra makes bytes anew when it takes them."""
    form, _, kind = name.partition("_")
    if form == "c" or value is None:
        return value
    elements, at = [], 4
    while at < len(value):
        [length] = struct.unpack_from(">i", value, at)
        element = value[at + 4 : at + 4 + max(0, length)]
        exact = kind in ("text", "ascii", "blob")
        # Java has ::ffff:1.2.3.4 as 1.2.3.4.
        decoded = element if exact or not element else codec(CqlType(kind)).decode(element)
        elements.append(repr(decoded).replace("::ffff:", ""))
        at += 4 + max(0, length)
    return elements


def _has_no_bytes(cell: Cell) -> bool:
    """Of a tinyint or smallint, or one in a collection: Cassandra takes none of these without bytes."""
    lengths = {b"", struct.pack(">ii", 1, 0), struct.pack(">iii", 1, 0, 0)}
    return cell.column.name[2:] in ("tinyint", "smallint") and cell.value in lengths


@pytest.mark.spine
@pytest.mark.promise("stream.execution")
def test_tasks_write_what_topics_have(
    spark: SparkSession, kafka: LocalKafka, prefix: str, copy: Copy, tmp_path: Path
) -> None:
    """By tasks, then by the driver, then by tasks without a checkpoint; columns come on the way."""
    plain, wider = copy.table(), copy.table(v="int", w="text")
    settings = stream_settings(
        kafka,
        prefix,
        {"checkpoint": str(tmp_path / "checkpoint"), "max_offsets_per_trigger": 40},
        {"copy": {"type": "cassandra", "contact_points": [copy.node.address], "port": copy.node.port}},
    )

    def run(**stream: str) -> tuple[set[str], int]:
        """Who wrote, and how many dead letters there were."""
        own = settings.stream.model_copy(update=stream)
        batches = follow(spark, settings.model_copy(update={"stream": own}), "copy")
        return {one.execution for one in batches if one.records}, sum(one.summary.dead_letters for one in batches)

    with closing(Feed(kafka.bootstrap, prefix)) as feed:
        feed.announce()
        feed.publish([Log(plain).insert((key,), (), 2_000_000, v=key) for key in range(50)])
        feed.poison(plain, b"no change at all")
        assert run(execution="executors") == ({"executors"}, 1)
        feed.publish([Log(wider).update((key,), (), 2_000_001, w=str(key)) for key in range(50)])
        assert run(execution="executors") == ({"executors"}, 0)
        feed.publish([Log(wider).delete((key,), (), 2_000_002) for key in range(0, 50, 2)])
        assert run(execution="driver") == ({"driver"}, 0)
        rows = [(key, key, str(key)) for key in range(1, 50, 2)]
        assert copy.rows("k, v, w") == rows
        assert run(execution="executors", checkpoint=str(tmp_path / "lost")) == ({"executors"}, 1)
        assert copy.rows("k, v, w") == rows
    assert [letter.message for letter in letters_in(kafka, prefix)] == [b"no change at all"]
