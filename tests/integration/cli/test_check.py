"""`tailrace check` against a real Cassandra and a real Kafka."""

from __future__ import annotations

from contextlib import closing

import pytest

from tailrace.cli.checks.cassandra import check_cassandra
from tailrace.cli.checks.directories import check_directories
from tailrace.cli.checks.kafka import check_kafka
from tailrace.cluster import LiveCluster
from tailrace.local import LocalCassandra, LocalKafka
from tailrace.publish.kafka import KafkaTopics
from tailrace_common.settings import Settings, load_settings
from tailrace_schemas.topics import Internal


def settings_for(cassandra: LocalCassandra, kafka: LocalKafka, prefix: str) -> Settings:
    return load_settings(
        None,
        {
            "TAILRACE_CLUSTER__CONTACT_POINTS": cassandra.address,
            "TAILRACE_CLUSTER__PORT": str(cassandra.port),
            "TAILRACE_AGENT__CDC_RAW_DIRECTORY": str(cassandra.cdc_raw),
            "TAILRACE_AGENT__COMMITLOG_DIRECTORY": str(cassandra.commitlog),
            "TAILRACE_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap,
            "TAILRACE_TOPICS__PREFIX": prefix,
        },
    )


@pytest.mark.promise("commands.check")
def test_a_node_as_it_must_be(cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str) -> None:
    settings = settings_for(cassandra, kafka, prefix)
    with closing(LiveCluster(settings.cluster)) as cluster:
        cluster.execute(
            f"CREATE KEYSPACE {keyspace_name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        cluster.execute(f"CREATE TABLE {keyspace_name}.followed (k int PRIMARY KEY) WITH cdc = true")
        cluster.execute(f"CREATE TABLE {keyspace_name}.not_followed (k int PRIMARY KEY)")
    found = {check.name: check for check in (*check_directories(settings), *check_cassandra(settings))}
    assert {name for name, check in found.items() if check.ok} == {
        "cdc_raw_directory",
        "commitlog_directory",
        "spool_directory",
        "spool disk",
        "segment",
        "cdc_raw space",
        "cassandra",
        "latency",
        "cdc_enabled",
        "cdc_on_repair_enabled",
        "ring",
        "tables",
    }
    assert f"{keyspace_name}.followed" in found["tables"].detail
    assert f"{keyspace_name}.not_followed" not in found["tables"].detail


def test_topics_that_will_do_and_one_that_will_not(cassandra: LocalCassandra, kafka: LocalKafka, prefix: str) -> None:
    settings = settings_for(cassandra, kafka, prefix)
    ours = KafkaTopics(settings.kafka.reveal(), settings.topics)
    ours.ensure_internal((Internal.OFFSETS, Internal.SCHEMAS, Internal.GENERATIONS))
    ours.ensure_table(f"{prefix}.shop.orders")
    rows = {row.name: row for row in check_kafka(settings)}
    brokers, topics, framing, copies = rows["kafka"], rows["topics"], rows["framing"], rows["copies"]
    assert all(row.ok for row in rows.values())
    assert "stock deserializers of Confluent's do not" in framing.detail
    assert (brokers.ok, topics.ok, topics.detail) == (True, True, f"4 under {prefix}")
    assert (copies.ok, copies.detail) == (True, "1 of each partition")
    assert "fewer than three copies" in copies.advice
    assert "three brokers" in brokers.advice
    larger = settings.topics.model_copy(update={"max_message_bytes": settings.topics.max_message_bytes + 1})
    _, topics, *_ = check_kafka(settings.model_copy(update={"topics": larger}))
    assert not topics.ok
    assert f"topic {prefix}.shop.orders has max.message.bytes=" in topics.detail
