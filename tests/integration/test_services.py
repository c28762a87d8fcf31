"""The shared services are what they say they are, and come back after a crash."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tailrace.local import LocalCassandra, LocalKafka
from tests.integration.agents import cql, create_keyspace
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def create_topic(kafka: LocalKafka, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    created: Future[None] = admin.create_topics([NewTopic(name, 1, 1)])[name]
    created.result(60)


def produce(kafka: LocalKafka, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def consume(kafka: LocalKafka, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() or b"" for message in consumer.consume(count, timeout=60)]
    finally:
        consumer.close()


def indexes(cassandra: LocalCassandra) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in cassandra.cdc_raw.glob("*_cdc.idx")}


def test_cassandra_links_a_segment_with_changes_and_writes_its_index(
    cassandra: LocalCassandra, keyspace_name: str
) -> None:
    with cql(cassandra) as session:
        create_keyspace(session, keyspace_name)
        session.execute(f"CREATE TABLE {keyspace_name}.t (k int PRIMARY KEY, v text) WITH cdc = true")
        before = indexes(cassandra)
        session.execute(f"INSERT INTO {keyspace_name}.t (k, v) VALUES (1, 'one')")
        until(lambda: indexes(cassandra) != before, "another index")
        (row,) = session.execute("SELECT release_version FROM system.local")
        assert row.release_version == "5.0.9"
    # Finished segments stay in cdc_raw alone; of those that Cassandra has open, both names are one file.
    names = {path.name for path in cassandra.cdc_raw.glob("*.log")} & {
        path.name for path in cassandra.commitlog.iterdir()
    }
    assert names
    assert all((cassandra.cdc_raw / name).samefile(cassandra.commitlog / name) for name in names)


@pytest.mark.long
def test_cassandra_keeps_what_it_synced_and_its_port_over_a_crash(
    cassandra: LocalCassandra, keyspace_name: str
) -> None:
    port = cassandra.port
    with cql(cassandra) as session:
        create_keyspace(session, keyspace_name)
    cassandra.kill()
    assert not cassandra.running
    cassandra.start()
    assert cassandra.port == port
    with cql(cassandra) as session:
        assert keyspace_name in session.cluster.metadata.keyspaces


@pytest.mark.long
def test_kafka_keeps_its_records_and_its_port_over_a_crash(kafka: LocalKafka, prefix: str) -> None:
    topic, bootstrap = f"{prefix}.crash", kafka.bootstrap
    create_topic(kafka, topic)
    produce(kafka, topic, [b"one"])
    kafka.kill()
    assert not kafka.running
    kafka.start()
    assert kafka.bootstrap == bootstrap
    produce(kafka, topic, [b"two"])
    assert consume(kafka, topic, 2) == [b"one", b"two"]


def test_spark_reads_what_a_kafka_client_wrote(kafka: LocalKafka, spark: SparkSession, prefix: str) -> None:
    topic = f"{prefix}.smoke"
    create_topic(kafka, topic)
    produce(kafka, topic, [b"one", b"two"])
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "endingOffsets": "latest",
    }
    frame = spark.read.format("kafka").options(**options).load().selectExpr("CAST(value AS STRING)", "offset")
    assert sorted((row.offset, row.value) for row in frame.collect()) == [(0, "one"), (1, "two")]
