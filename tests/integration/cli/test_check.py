"""`tailrace check` against a real Cassandra and a real Kafka."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.assembly.services import contact_of, mirror_of
from tailrace.cli.checks.cassandra import check_cassandra
from tailrace.cli.checks.directories import check_directories
from tailrace.cli.checks.kafka import check_kafka
from tailrace.cluster import LiveCluster
from tailrace.local import LocalCassandra, LocalKafka
from tailrace.publish.kafka import KafkaLog, KafkaTopics
from tailrace.topology.mirror_tables import IdForm, wanted
from tailrace_common.cli.checks import Check
from tailrace_common.settings import Settings, load_settings
from tailrace_common.topics import GenerationReader
from tailrace_schemas.generation_records import encode_proposal
from tailrace_schemas.topics import Internal, internal_topic
from tests.unit.topology.rings import proposal


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
    with closing(LiveCluster(contact_of(settings.cluster))) as cluster:
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


def test_another_directory_than_the_nodes(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    settings = settings_for(cassandra, kafka, prefix)
    elsewhere = settings.agent.model_copy(update={"cdc_raw_directory": tmp_path})
    settings = settings.model_copy(update={"agent": elsewhere})
    found = {check.name: check for check in check_cassandra(settings)}
    assert not found["same directory"].ok
    assert str(cassandra.cdc_raw) in found["same directory"].advice
    (tmp_path / "CommitLog-7-1.log").touch()
    found = {check.name: check for check in check_cassandra(settings)}
    assert found["same directory"].ok, "the same under another name"


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


@pytest.mark.promise("commands.check")
def test_a_mirror(cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str) -> None:
    """Before it is made, as it must be, and after somebody altered its keyspace; its generations against Kafka's."""
    settings = settings_for(cassandra, kafka, prefix)
    mirror = settings.mirror.model_copy(update={"keyspace": keyspace_name})
    settings = settings.model_copy(update={"mirror": mirror})

    def rows(of: Settings = settings) -> dict[str, Check]:
        return {row.name: row for row in check_cassandra(of) if row.name.startswith("mirror")}

    assert "an agent makes it" in rows()["mirror"].detail
    refused = settings.model_copy(update={"mirror": mirror.model_copy(update={"create": False})})
    assert not rows(refused)["mirror"].ok
    KafkaTopics(settings.kafka.reveal(), settings.topics).ensure_internal((Internal.GENERATIONS,))
    log = KafkaLog(settings.kafka.reveal(), internal_topic(prefix, Internal.GENERATIONS))
    with closing(LiveCluster(contact_of(settings.cluster))) as cluster:
        one = proposal(cluster.ring(), None, time.time_ns() // 1_000_000 + 60_000)
        for key, value in encode_proposal(one):
            log.append(key, value)
        made = mirror_of(settings, cluster)
        assert made is not None
        with GenerationReader.open(settings.kafka.reveal(), internal_topic(prefix, Internal.GENERATIONS)) as reader:
            published = reader.refresh()
        assert len(published) == 1
        made.store.create_keyspace({cluster.local().datacenter: 1})
        for table in wanted(v1=False):
            made.store.create_table(table, IdForm.BLOB)
        missing = rows()
        assert (missing["mirror writes"].ok, missing["mirror generations"].ok) == (True, False)
        made.update(published, time.time_ns() // 1_000_000)
        found = rows()
        assert {name for name, row in found.items() if row.ok} == found.keys(), found
        assert found["mirror generations"].detail == "1 of 1 generations in Kafka"
        cluster.execute(f"DROP TABLE {keyspace_name}.cdc_local")
        assert not rows(refused)["mirror"].ok
        cluster.execute(f"DROP KEYSPACE {keyspace_name}")
