"""Dead letters of sinks that need a server of the run's: Kafka's topics, Cassandra's tables."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tailrace.local import LocalCassandra, LocalKafka
from tailrace_common.kafka import TopicReader
from tailrace_common.settings import Settings
from tailrace_schemas.errors import FencedError, SettingsError
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordId, Summary
from tailrace_spark.job import replay as letters
from tailrace_spark.job.replay import ReplayCounts, replay_letters
from tailrace_spark.sinks.cassandra.cluster import Batch, CassandraStore
from tailrace_spark.sinks.cassandra.cql import Mutation
from tailrace_spark.sinks.cassandra.tables import CassandraTablesSink
from tailrace_spark.sinks.changelog.replayable import ReplayableLogSink
from tailrace_spark.sinks.kafka.dead_letters import ReplayableKafkaOutlet
from tailrace_spark.sinks.kafka.outlet import Config, KafkaTarget, transactions
from tailrace_spark.sinks.protocol import DeadLetterSink
from tests.integration.agents import cql, create_keyspace
from tests.integration.topics import Dying, Topics
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import Crash, as_read
from tests.unit.spark.sinks.letters_contract import (
    ENCODER,
    LETTERS,
    PLAIN,
    LettersContract,
    letter,
    nowhere,
    set_aside,
    understood,
)


class Letters(Topics):
    """A Kafka sink's topics."""

    def open(self, dies_after: int | None = None) -> Any:
        def dying(config: Config, target: KafkaTarget) -> Any:
            real = transactions(config, target)
            return real if dies_after is None else Dying(real, dies_after)

        return ReplayableLogSink(ReplayableKafkaOutlet(self.config, self.target, dying))

    def ids(self) -> Sequence[int]:
        return [one["key"]["id"] for one in self.records()]

    def set_format(self, number: int | None) -> None:
        """The records are deleted, and written anew: those of a later version would be refused for ever."""
        added = {} if number is None else {"format": number}
        with TopicReader(self.config, self.target.dead_letters, beginning=True) as reader:
            values = [json.loads(record.value or b"") for _, record in reader.read_to_end()]
        end = TopicPartition(self.target.dead_letters, 0, OFFSET_END)
        admin = AdminClient(dict(self.config))  # its futures end with it
        for deleted in admin.delete_records([end]).values():
            deleted.result(60)
        producer = Producer(dict(self.config))
        for value in values:
            members = {name: member for name, member in value.items() if name != "format"}
            producer.produce(self.target.dead_letters, json.dumps({**members, **added}))
        assert producer.flush(60) == 0


@pytest.mark.long
class TestKafka(LettersContract):
    sink = "kafka"
    refused_at_start = False

    @pytest.fixture
    def stores(self, kafka: LocalKafka) -> Callable[[], Letters]:
        return lambda: Letters(kafka)


@pytest.mark.promise("sinks.dead-letters")
@pytest.mark.long
def test_letters_of_a_topic_are_sent_and_said_to_be_in_one_transaction(kafka: LocalKafka) -> None:
    """The stream's producer is not fenced; a second replay ends the first; other sinks' letters stay theirs."""
    topics, other = Letters(kafka), Letters(kafka)
    other.prefix, other.target = topics.prefix, replace(topics.target, name="other")
    with closing(topics.open()) as stream, closing(other.open()) as beside:
        stream.write([Piece((), LETTERS[:3])])
        beside.write([Piece((), LETTERS[5:6])])
        with closing(topics.open(dies_after=3)) as sink, pytest.raises(Crash):
            sum(replay_letters(sink, understood, nowhere), ReplayCounts())
        assert topics.records() == []
        with closing(topics.open()) as first:
            assert [one.record_id.offset for one in first.dead_letters(None, 9)] == [0, 1, 2]
            assert first.replay(LETTERS[:1], understood(_table(LETTERS[0]))).rows == 1
            with closing(topics.open()) as second:
                done = replay_letters(second, lambda records: set_aside(understood(records), 2), nowhere)
                assert sum(done, ReplayCounts()) == ReplayCounts(taken=1, again=1)
            assert first.replay(LETTERS[1:2], understood(_table(LETTERS[1]))) == Summary(changes=1)
            with pytest.raises(FencedError, match="another replay of the dead letters of sink copy has begun"):
                first.replay(LETTERS[2:3], understood(_table(LETTERS[2])))
        with closing(topics.open()) as last:
            assert sum(replay_letters(last, understood, nowhere), ReplayCounts()) == ReplayCounts(taken=1)
        assert sorted(topics.ids()) == [0, 1, 2]
        stream.write([Piece((), (letter(7),))])
        assert [one.record_id.offset for one in stream.dead_letters(None, 9)] == [7]
        assert [one.record_id.offset for one in beside.dead_letters(None, 9)] == [5]


def _table(one: DeadLetter) -> Any:
    return letters.records_of([one])


@pytest.mark.promise("sinks.dead-letters")
def test_debeziums_letters_are_listed_and_not_sent(kafka: LocalKafka) -> None:
    topics = Letters(kafka)
    topics.target = replace(topics.target, debezium=True)
    with closing(topics.open()) as sink:
        sink.write([Piece((), LETTERS[:1])])
        with pytest.raises(SettingsError, match=r"sink\.copy: .*into a sink of another name"):
            sum(replay_letters(sink, understood, nowhere), ReplayCounts())
        assert [one.record_id.offset for one in sink.dead_letters(None, 9)] == [0]


class _DyingStore:
    """Another store until so many writes were begun or done."""

    def __init__(self, real: CassandraStore, steps: int) -> None:
        self._real = real
        self._left = steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def write(self, batches: Iterable[Batch]) -> None:
        for batch in list(batches):
            self._step()
            self._real.write([batch])
            self._step()

    def apply(self, mutations: Iterable[Mutation]) -> None:
        for mutation in list(mutations):
            self._step()
            self._real.apply([mutation])
            self._step()

    def _step(self) -> None:
        if self._left == 0:
            raise Crash
        self._left -= 1


class Copies:
    """A keyspace of the node that a `cassandra` sink writes."""

    exactly_once = True

    def __init__(self, node: LocalCassandra) -> None:
        self.keyspace = f"k{uuid4().hex[:10]}"
        self._node = node
        with cql(node) as session:
            create_keyspace(session, self.keyspace)
        section = {
            "type": "cassandra", "contact_points": [node.address], "port": node.port, "request_timeout_seconds": 60,
        }  # fmt: skip
        self._section: Any = Settings.model_validate({"sink": {"x": section}}).sink["x"]

    def open(self, dies_after: int | None = None, *, clock: Callable[[], float] = time.time) -> DeadLetterSink:
        real = CassandraStore(self._section, "sink.x")
        store: Any = real if dies_after is None else _DyingStore(real, dies_after)
        return CassandraTablesSink(store, "t", keyspace=self.keyspace, clock=clock)

    def ids(self) -> Sequence[int]:
        with closing(CassandraStore(self._section, "sink.x")) as store:
            if not store.columns(self.keyspace, "plain"):
                return []
            return [row[0] for row in store.select(f"SELECT id FROM {self.keyspace}.plain")]

    def set_format(self, number: int | None) -> None:
        comment = "" if number is None else f"tailrace: format {number}"
        with cql(self._node) as session:
            session.execute(f"ALTER TABLE {self.keyspace}.tailrace_dead_letters WITH comment = '{comment}'")


@pytest.mark.long
class TestCassandra(LettersContract):
    sink = "cassandra"

    @pytest.fixture
    def stores(self, cassandra: LocalCassandra) -> Callable[[], Copies]:
        return lambda: Copies(cassandra)


@pytest.mark.promise("sinks.dead-letters")
def test_changes_of_a_table_that_was_set_aside_whole_are_written_once_its_cause_is_gone(
    cassandra: LocalCassandra,
) -> None:
    """By a replay; and the stream's next ones by the stream, which looks again after a minute."""
    store, now = Copies(cassandra), [1_000.0]
    changes = [Log(PLAIN).insert((number,), (), 10, v="x") for number in range(3)]

    delivered = [
        Delivered(RecordId("t.shop.plain", 0, at, ENCODER.schema_id), as_read(change), message=ENCODER.value(change))
        for at, change in enumerate(changes)
    ]
    with closing(store.open(clock=lambda: now[0])) as sink:
        with cql(cassandra) as session:
            session.execute(f"CREATE TABLE {store.keyspace}.plain (id int PRIMARY KEY, v blob)")
            assert sink.write([Piece(tuple(delivered[:2]))]).dead_letters == 2
            [one, _] = sink.dead_letters(None, 9)
            assert one.message == ENCODER.value(changes[0])
            assert "column v is blob there, and text is to be written" in one.reason
            session.execute(f"DROP TABLE {store.keyspace}.plain")
        with closing(store.open()) as command:
            assert sum(replay_letters(command, understood, nowhere), ReplayCounts()) == ReplayCounts(taken=2)
        assert sorted(store.ids()) == [0, 1]
        assert sink.write([Piece(tuple(delivered[2:]))]).dead_letters == 1
        now[0] += 61
        assert sink.write([Piece(tuple(delivered[2:]))]).rows == 1
    assert sorted(store.ids()) == [0, 1, 2]


def test_listing_letters_changes_no_table(cassandra: LocalCassandra) -> None:
    """One of an earlier version gets its column for their bytes when there are some; a stranger's is left alone."""
    store, stranger = Copies(cassandra), Copies(cassandra)
    with cql(cassandra) as session:
        session.execute(
            f"CREATE TABLE {store.keyspace}.tailrace_dead_letters (topic text, partition int, offset bigint, "
            "schema_id text, reason text, PRIMARY KEY ((topic, partition), offset))"
        )
        session.execute(
            f"INSERT INTO {store.keyspace}.tailrace_dead_letters (topic, partition, offset, schema_id, reason) "
            "VALUES ('t.shop.plain', 0, 0, '', 'why')"
        )
        session.execute(f"CREATE TABLE {stranger.keyspace}.tailrace_dead_letters (id int PRIMARY KEY)")

    def columns(of: Copies) -> set[str]:
        with cql(cassandra) as session:
            rows = session.execute(
                "SELECT column_name FROM system_schema.columns WHERE keyspace_name = %s AND table_name = %s",
                (of.keyspace, "tailrace_dead_letters"),
            )
            return {row.column_name for row in rows}

    with closing(store.open()) as sink:
        assert [(one.record_id.offset, one.message) for one in sink.dead_letters(None, 9)] == [(0, b"")]
        assert columns(store) == {"topic", "partition", "offset", "schema_id", "reason"}
        assert columns(stranger) == {"id"}
        assert sum(replay_letters(sink, understood, lambda _: LETTERS[0].message), ReplayCounts()) == ReplayCounts(
            taken=1
        )
        sink.write([Piece((), (LETTERS[1],))])
        assert [(one.record_id.offset, one.message) for one in sink.dead_letters(None, 9)] == [(1, LETTERS[1].message)]
    assert store.ids() == [0]
