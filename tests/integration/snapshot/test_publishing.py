"""`tailrace snapshot start --to kafka`: each row once in the topic, whatever dies."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cassandra.cluster import Session
from confluent_kafka.admin import AdminClient

from tailrace.local import LocalCassandra, LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.errors import FencedError, ServiceError, SettingsError
from tailrace_spark.cli.support import read_settings
from tailrace_spark.snapshot.publication import Publication
from tailrace_spark.snapshot.publishing import NumberedSplit, PublishedRange, PublishTask
from tests.integration.agents import cql, create_keyspace, published, raw_records
from tests.integration.snapshot.commands import Command, assert_once, fill, finish, kill_in_the_middle
from tests.integration.snapshot.comparing import run_here


@pytest.fixture
def session(cassandra: LocalCassandra, keyspace_name: str) -> Iterator[Session]:
    with cql(cassandra) as session:
        create_keyspace(session, keyspace_name)
        yield session
        session.execute(f"DROP KEYSPACE {keyspace_name}")


@pytest.fixture
def settings(cassandra: LocalCassandra, kafka: LocalKafka, prefix: str) -> Settings:
    return Settings.model_validate(
        {
            "cluster": {"contact_points": [cassandra.address], "port": cassandra.port},
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "topics": {"prefix": prefix, "partitions": 3},
        }
    )


def publication_of(settings: Settings, table: object, **options: object) -> Publication:
    asked = {"consistency": "ONE", "concurrent_ranges": 2, "ranges": 4, **options}
    reading = read_settings(settings, table=str(table), rows="changes", prefix=settings.topics.prefix, **asked)
    return Publication(settings, reading)


@pytest.mark.promise("snapshot.kafka-once")
def test_a_command_that_is_killed_goes_on_and_each_row_is_published_once(
    session: Session, kafka: LocalKafka, settings: Settings, keyspace_name: str, tmp_path: Path
) -> None:
    table = fill(session, keyspace_name)
    publication_of(settings, table)  # so that the topics are there to be looked at
    snapshot = kill_in_the_middle(Command(tmp_path, settings, table, "--rows-per-second", "600"), settings)
    finish(Command(tmp_path, settings, table), settings, kafka, table, snapshot)


def test_marks_and_headers_tell_a_snapshot_from_the_log(
    session: Session, kafka: LocalKafka, settings: Settings, keyspace_name: str
) -> None:
    table = fill(session, keyspace_name, 300)
    publication = publication_of(settings, table)
    publication.publish(run_here)
    snapshot = publication.record.id.encode()
    by_partition: dict[int, list[Any]] = {}
    for message in raw_records(kafka, f"{settings.topics.prefix}.{table}"):
        assert dict(message.headers())["tailrace.snapshot"] == snapshot
        by_partition.setdefault(message.partition(), []).append(message)
    assert by_partition.keys() == {0, 1, 2}
    for messages in by_partition.values():
        marks = [dict(message.headers()).get("tailrace.snapshot.mark") for message in messages]
        assert (marks[0], marks[-1]) == (b"first", b"last")
        assert set(marks[1:-1]) <= {None}
        assert [message.value() is None for message in messages] == [mark is not None for mark in marks]
    # It has ended: the next one is another, and reads all of it again.
    second = publication_of(settings, table)
    assert not second.resumed
    assert second.publish(run_here).changes == 310


class StoppingReader:
    """A reader that does something else after so many pages."""

    def __init__(self, reader: Any, pages: int, then: Any) -> None:
        self._reader = reader
        self._pages = pages
        self._then = then

    def pages_of(self, split: Any, state: bytes | None) -> Iterator[Any]:
        for page in self._reader.pages_of(split, state):
            if self._pages == 0:
                self._then()
            self._pages -= 1
            yield page


@pytest.mark.promise("snapshot.kafka-once")
def test_a_later_attempt_at_a_range_ends_an_earlier_one(
    session: Session, kafka: LocalKafka, settings: Settings, keyspace_name: str
) -> None:
    publication = publication_of(settings, fill(session, keyspace_name, 400), page_rows=20)

    def run(work: Sequence[tuple[NumberedSplit, ...]], task: PublishTask) -> list[PublishedRange]:
        fenced = 0
        for index, split in itertools.chain.from_iterable(work):
            with task.publisher() as earlier, task.publisher() as later:
                earlier._reader = StoppingReader(  # type: ignore[assignment]  # it has what is called
                    earlier._reader, 2, lambda later=later, index=index, split=split: later.publish(index, split)
                )
                try:
                    earlier.publish(index, split)
                except FencedError:
                    fenced += 1
        assert fenced > 0
        return []

    assert publication.publish(run).changes == 410
    assert_once(published(kafka, settings.topics.prefix, publication.destination.topic))


def test_a_page_state_that_nodes_refuse_costs_the_rows_of_one_partition(
    session: Session, kafka: LocalKafka, settings: Settings, keyspace_name: str
) -> None:
    table = fill(session, keyspace_name, 400)
    publication = publication_of(settings, table, page_rows=15, ranges=1, concurrent_ranges=1)

    def stop() -> None:
        raise ServiceError("stopped")

    def damage(work: Sequence[tuple[NumberedSplit, ...]], task: PublishTask) -> list[PublishedRange]:
        for index, split in itertools.chain.from_iterable(work):
            with task.publisher() as publisher:
                publisher._reader = StoppingReader(publisher._reader, 2, stop)  # type: ignore[assignment]  # as above
                with suppress(ServiceError):
                    publisher.publish(index, split)
                    continue
                records = publisher._progress
                records.read()
                damaged = replace(records.ranges_of(publication.record.id)[index], state=b"\x00no state")
                break
        destination, snapshot_id = publication.destination, publication.record.id
        with closing(destination.transactions(snapshot_id, f".{index}")) as producer:
            producer.open()
            producer.send(destination.range_record(snapshot_id, index, damaged))
            producer.end()
        return run_here(work, task)

    publication.publish(damage)
    records = published(kafka, settings.topics.prefix, publication.destination.topic)
    rows = Counter((record.change.key, record.change.clustering) for record in records)
    twice = {key for (key, _), count in rows.items() if count > 1}
    assert len(rows) == 410
    assert len(twice) == 1


def test_a_dry_run_says_what_it_would_be_and_publishes_nothing(
    session: Session, kafka: LocalKafka, settings: Settings, keyspace_name: str, tmp_path: Path
) -> None:
    session.execute(f"CREATE TABLE {keyspace_name}.t (k int PRIMARY KEY, v text)")
    insert = session.prepare(f"INSERT INTO {keyspace_name}.t (k, v) VALUES (?, 'v')")
    for future in [session.execute_async(insert, (key,)) for key in range(500)]:
        future.result()
    [line] = Command(tmp_path, settings, f"{keyspace_name}.t", "--rows-per-second", "100", "--dry-run").lines()
    assert line["rows"] == pytest.approx(500, rel=0.5)
    assert line["seconds"] == pytest.approx(line["rows"] / 100, abs=1)
    assert (line["tasks"], line["ranges"] >= 32) == (2, True)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    assert [topic for topic in admin.list_topics(timeout=60).topics if topic.startswith(settings.topics.prefix)] == []


def test_what_cannot_be_published_is_said_before_anything_is(
    session: Session, settings: Settings, keyspace_name: str
) -> None:
    session.execute(f"CREATE TABLE {keyspace_name}.n (k int PRIMARY KEY, n counter)")
    with pytest.raises(SettingsError, match="has counters: CQL shows totals"):
        publication_of(settings, f"{keyspace_name}.n")
    session.execute(f"CREATE TABLE {keyspace_name}.x (k int PRIMARY KEY)")
    excluding = settings.model_copy(update={"tables": settings.tables.model_copy(update={"exclude": ("*.x",)})})
    with pytest.raises(SettingsError, match=r"tables.exclude leave .*\.x out"):
        publication_of(excluding, f"{keyspace_name}.x")
    by_others = settings.model_copy(update={"topics": settings.topics.model_copy(update={"create": False})})
    with pytest.raises(SettingsError, match="is missing, and topics"):
        publication_of(by_others, f"{keyspace_name}.x")
